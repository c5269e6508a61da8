// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The options of tcp, unix and vsock, parsed once per type, or per endpoint that has options of its
// own. The member initializers are the defaults; names, ranges and documentation texts are in
// settings.cc.

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "ae/abi.h"
#include "ae/time.h"
#include "conn/kit/address_choice.h"
#include "conn/kit/defaults.h"
#include "conn/kit/end_linger.h"
#include "conn/kit/idle_timeout.h"
#include "conn/kit/quota.h"
#include "conn/kit/resolver.h"
#include "conn/options.h"
#include "conn/url/option_table.h"

namespace conn { inline namespace AECONN_ABI { namespace tcp {

class TrustedSenders;

struct Settings {
  // Options that tcp and unix have in common; vsock has some of them
  int backlog = defaults::kBacklog;
  unsigned accept_batch = defaults::kAcceptBatch;
  std::uint64_t max_connections = Quota::kDefault;
  ae::Duration connect_timeout = defaults::kConnectTimeout;
  /// Size of the socket's send buffer in bytes; 0: the kernel chooses and adapts it.
  int send_buffer = 0;
  ae::Duration idle_timeout = IdleTimeout::kDefault;
  /// Senders whose connections begin with a header of the PROXY protocol; null: none.
  std::shared_ptr<const TrustedSenders> proxies;
  // Options that only tcp has
  ae::Duration linger = defaults::kLinger;
  /// How long unsent bytes may still be delivered when the loop ends.
  ae::Duration end_linger = EndLinger::kDefault;
  /// Size of the socket's receive buffer in bytes; 0: the kernel chooses and adapts it.
  int receive_buffer = 0;
  bool nodelay = true;
  bool reuseport = false;
  /// Idle time before TCP keepalive probes; 0: no probes.
  ae::Duration keepalive = std::chrono::seconds(300);
  /// How long sent data may stay unacknowledged before the connection fails; 0: as the kernel
  /// decides.
  ae::Duration user_timeout{0};
  /// Minimum number of bytes for which send() uses MSG_ZEROCOPY; 0: never.
  std::uint64_t zero_copy = 0;
  SocketAddress source;  ///< local address to connect from; if its size is 0 the kernel chooses
  AddressOrder spread = AddressOrder::kFirst;
  bool mptcp = false;       ///< true if sockets use Multipath TCP
  std::uint32_t mark = 0;   ///< mark of the packets (SO_MARK) for the kernel's rules; 0: none
  int traffic_class = -1;   ///< traffic class of the packets, 0 to 255; -1: the kernel's default
  std::string bind_device;  ///< network device that the packets use; "": that of the route
  // Options that only unix has
  int mode = -1;  ///< permissions of the listening socket's file; -1: as the umask allows
  /// Group of the listening socket's file; no value: that of the process.
  std::optional<gid_t> group;
};

/// Returns the settings of tcp with `options` applied. Throws Error for an unknown option or a bad
/// value.
Settings tcp_settings(const Options& options);
/// Returns the settings of unix with `options` applied. Throws Error for an unknown option or a bad
/// value.
Settings unix_settings(const Options& options);

/// Returns the settings of vsock with `options` applied. Throws Error for an unknown option or a
/// bad value.
Settings vsock_settings(const Options& options);

const OptionTable& tcp_options();    ///< returns the table of options that tcp_settings() accepts
const OptionTable& unix_options();   ///< returns the table of options that unix_settings() accepts
const OptionTable& vsock_options();  ///< returns the table of options that vsock_settings() accepts

}}}  // namespace conn::tcp
