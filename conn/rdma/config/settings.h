// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The options of rdma://. Defaults are the member initializers here, and those in StreamConfig
// (stream.h) for the stream's own behavior. Names, ranges and documentation texts are in
// settings.cc; those for the network below a connection (traffic-class, gid-index, ...) in
// fabric.cc.

#include <cstdint>
#include <string>

#include "ae/abi.h"
#include "ae/time.h"
#include "conn/kit/address_choice.h"
#include "conn/kit/defaults.h"
#include "conn/kit/end_linger.h"
#include "conn/kit/quota.h"
#include "conn/rdma/device/fabric.h"
#include "conn/rdma/device/memory.h"
#include "conn/rdma/device/queue_pair.h"
#include "conn/rdma/protocol/stream.h"
#include "conn/url/option_table.h"

namespace conn { inline namespace AECONN_ABI { namespace rdma {

/// Which peers can reach a receive window with a guessed key.
enum class Isolation : std::uint8_t {
  kAuto,        ///< kWindow if the device supports it, else kConnection
  kConnection,  ///< a protection domain and a receive queue for each connection
  kWindow,      ///< one domain and a shared receive queue; keys are bound to one queue pair
  kNone,        ///< one domain and a shared receive queue; peers trust each other
};

/// Registered memory cannot be swapped out: more than half of the memory would starve the system.
std::uint64_t half_of_memory() noexcept;

struct Settings {
  std::uint32_t window = StreamConfig{}.window;
  std::uint32_t max_window = StreamConfig{}.max_window;
  std::uint32_t max_windows = StreamConfig{}.max_windows;
  std::uint32_t max_peer_window = StreamConfig{}.max_peer_window;
  std::uint32_t send_buffer = 256 * 1024;     ///< bytes accepted and not yet confirmed
  std::uint32_t max_send_buffer = 4u << 20;   ///< send_buffer grows up to this if throughput gains
  std::uint32_t send_queue = 16;              ///< work requests on one connection's send queue
  std::uint32_t receive_queue = 256;          ///< receives of a connection without an SRQ
  std::uint32_t shared_receive_queue = 4096;  ///< receives in a loop's SRQ
  std::uint32_t inline_data = 128;            ///< bytes copied into the work request itself
  std::uint32_t read_budget = 1024 * 1024;    ///< bytes one connection may read in one iteration
  std::uint32_t accept_batch = defaults::kAcceptBatch;
  std::uint32_t backlog = defaults::kBacklog;
  std::uint32_t prepared = 0;  ///< queue pairs a listener keeps ready for new connections
  std::uint64_t max_connections = Quota::kDefault;
  std::uint64_t memory_limit = half_of_memory();  ///< registered bytes of the process; 0: no limit
  ae::Duration keepalive = StreamConfig{}.keepalive;
  ae::Duration connect_timeout = defaults::kConnectTimeout;
  ae::Duration accept_timeout = std::chrono::seconds(10);
  ae::Duration linger = defaults::kLinger;
  ae::Duration end_linger = EndLinger::kDefault;
  ae::Spin spin;  ///< of the loop, while it has a connection
  Isolation isolation = Isolation::kAuto;
  bool in_place = false;       ///< peek() shows the windows, which the peer can still write
  int completion_vector = -1;  ///< index on the device; -1: chosen by the loop
  std::string device;          ///< name of the only device to use; "": any
  std::string source;          ///< address to connect from; "": the route's
  AddressOrder spread = AddressOrder::kFirst;
  QpTimeouts timeouts;
  Fabric fabric;

  /// Throws Error for an unknown key or a bad value.
  static Settings from(const Options& options);
  /// The options that it accepts.
  static const OptionTable& options();
  StreamConfig stream(Role role, std::uint64_t connection = 0) const;
  MemoryLimit limit() const noexcept { return {memory_limit}; }
};

}}}  // namespace conn::rdma
