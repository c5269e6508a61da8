// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The options of tcp and unix, parsed once for a type, or for an endpoint that has its own. Each
// default is a member's, here; names, ranges and what pages say are in settings.cc.

#include <chrono>

#include "ae/abi.h"
#include "ae/time.h"
#include "conn/kit/address_choice.h"
#include "conn/kit/defaults.h"
#include "conn/kit/quota.h"
#include "conn/kit/resolver.h"
#include "conn/options.h"
#include "conn/url/end_linger.h"
#include "conn/url/option_table.h"

namespace conn { inline namespace AECONN_ABI { namespace tcp {

struct Settings {
  // Both.
  int backlog = defaults::kBacklog;
  unsigned accept_batch = defaults::kAcceptBatch;
  std::uint64_t max_connections = Quota::kDefault;
  ae::Duration connect_timeout = defaults::kConnectTimeout;
  ae::Duration linger = defaults::kLinger;        ///< how long close() may go on delivering
  ae::Duration end_linger = EndLinger::kDefault;  ///< the same where the loop ends
  int send_buffer = 0, receive_buffer = 0;        ///< bytes; 0: the kernel decides (and adapts)
  // tcp
  bool nodelay = true;
  bool reuseport = false;
  ae::Duration keepalive = std::chrono::seconds(300);  ///< idle time before probes; 0: off
  ae::Duration user_timeout{0};  ///< unacknowledged data kills after this; 0: the kernel's
  std::uint64_t zero_copy = 0;   ///< bytes from which send() uses MSG_ZEROCOPY; 0: never
  SocketAddress source;          ///< address to connect from; size 0: the kernel's
  AddressOrder spread = AddressOrder::kFirst;
  // unix
  int mode = -1;  ///< permissions of the socket file; -1: the umask's
};

/// Throws Error for an unknown key or a bad value.
Settings tcp_settings(const Options& options);
/// The same of unix.
Settings unix_settings(const Options& options);

const OptionTable& tcp_options();   ///< what tcp_settings() takes
const OptionTable& unix_options();  ///< what unix_settings() takes

}}}  // namespace conn::tcp
