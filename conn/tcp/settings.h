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
  // Options of both tcp and unix
  int backlog = defaults::kBacklog;
  unsigned accept_batch = defaults::kAcceptBatch;
  std::uint64_t max_connections = Quota::kDefault;
  ae::Duration connect_timeout = defaults::kConnectTimeout;
  int send_buffer = 0;  ///< bytes; 0: the kernel chooses and adapts
  // Options of tcp only
  ae::Duration linger = defaults::kLinger;  ///< how long delivery may continue after close()
  /// how long delivery may continue when the loop ends
  ae::Duration end_linger = EndLinger::kDefault;
  int receive_buffer = 0;  ///< bytes; 0: the kernel chooses and adapts
  bool nodelay = true;
  bool reuseport = false;
  ae::Duration keepalive = std::chrono::seconds(300);  ///< idle time before probes; 0: none
  /// If data stays unacknowledged for this long, the connection fails; 0: the kernel's rule.
  ae::Duration user_timeout{0};
  std::uint64_t zero_copy = 0;  ///< minimum bytes for send() to use MSG_ZEROCOPY; 0: never
  SocketAddress source;         ///< local address to connect from; with size 0 the kernel chooses
  AddressOrder spread = AddressOrder::kFirst;
  // Options of unix only
  int mode = -1;  ///< permissions of the socket file; -1: as the umask allows
};

/// Returns the settings of tcp with `options` applied. Throws Error for an unknown option or a bad
/// value.
Settings tcp_settings(const Options& options);
/// Returns the settings of unix with `options` applied. Throws Error for an unknown option or a bad
/// value.
Settings unix_settings(const Options& options);

const OptionTable& tcp_options();   ///< the options tcp_settings() accepts
const OptionTable& unix_options();  ///< the options unix_settings() accepts

}}}  // namespace conn::tcp
