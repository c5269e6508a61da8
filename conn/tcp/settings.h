// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The options of tcp and unix, parsed once per type, or per endpoint that has options of its own.
// The member initializers are the defaults; names, ranges and documentation texts are in
// settings.cc.

#include <chrono>

#include "ae/abi.h"
#include "ae/time.h"
#include "conn/kit/address_choice.h"
#include "conn/kit/defaults.h"
#include "conn/kit/end_linger.h"
#include "conn/kit/quota.h"
#include "conn/kit/resolver.h"
#include "conn/options.h"
#include "conn/url/option_table.h"

namespace conn { inline namespace AECONN_ABI { namespace tcp {

struct Settings {
  // tcp and unix
  int backlog = defaults::kBacklog;
  unsigned accept_batch = defaults::kAcceptBatch;
  std::uint64_t max_connections = Quota::kDefault;
  ae::Duration connect_timeout = defaults::kConnectTimeout;
  int send_buffer = 0;  ///< bytes; 0: the kernel chooses and adapts
  // tcp
  ae::Duration linger = defaults::kLinger;        ///< how long delivery may continue after close()
  ae::Duration end_linger = EndLinger::kDefault;  ///< the same when the loop ends
  int receive_buffer = 0;                         ///< as send_buffer
  bool nodelay = true;
  bool reuseport = false;
  ae::Duration keepalive = std::chrono::seconds(300);  ///< idle time before probes; 0: off
  ae::Duration user_timeout{0};  ///< data unacknowledged for this long is fatal; 0: kernel's rule
  std::uint64_t zero_copy = 0;   ///< minimum bytes for send() to use MSG_ZEROCOPY; 0: never
  SocketAddress source;          ///< local address to connect from; size 0: kernel's choice
  AddressOrder spread = AddressOrder::kFirst;
  // unix
  int mode = -1;  ///< permissions of the socket file; -1: as the umask allows
};

/// Throws Error for an unknown key or a bad value.
Settings tcp_settings(const Options& options);
/// As tcp_settings(), for unix.
Settings unix_settings(const Options& options);

const OptionTable& tcp_options();   ///< the options tcp_settings() accepts
const OptionTable& unix_options();  ///< the options unix_settings() accepts

}}}  // namespace conn::tcp
