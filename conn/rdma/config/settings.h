// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The values of the options of rdma://. Defaults are the member initializers here, and those of
// StreamConfig (stream.h) for the behavior of the stream. Names, ranges and documentation texts of
// the options are in settings.cc; those of the options for the network below a connection
// (traffic-class, gid-index, ...) are in fabric.cc.

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

/// Which peers could reach a receive window of another connection with a guessed key.
enum class Isolation : std::uint8_t {
  kAuto,        ///< kWindow if the device supports it, otherwise kConnection
  kConnection,  ///< each connection has a protection domain and a receive queue of its own
  kWindow,      ///< one domain and a shared receive queue; each key is bound to one queue pair
  kNone,        ///< one domain and a shared receive queue; the peers must trust each other
};

/// Returns half of the machine's memory in bytes, or 0 if its size is unknown. It is the default
/// limit for registered memory, which cannot be swapped out: more would starve the system.
std::uint64_t half_of_memory() noexcept;

struct Settings {
  std::uint32_t window = StreamConfig{}.window;
  std::uint32_t max_window = StreamConfig{}.max_window;
  std::uint32_t max_windows = StreamConfig{}.max_windows;
  std::uint32_t max_peer_window = StreamConfig{}.max_peer_window;
  /// Most bytes that are accepted for sending and not yet confirmed by the device.
  std::uint32_t send_buffer = 256 * 1024;
  /// send_buffer grows up to this if it improves throughput.
  std::uint32_t max_send_buffer = 4u << 20;
  std::uint32_t send_queue = 16;  ///< most work requests on one connection's send queue
  /// Receives of a connection that has a receive queue of its own.
  std::uint32_t receive_queue = 256;
  std::uint32_t shared_receive_queue = 4096;  ///< receives in a loop's shared receive queue
  /// Data up to this many bytes is copied into the work request itself.
  std::uint32_t inline_data = 128;
  std::uint32_t read_budget = 1024 * 1024;  ///< bytes that one connection may read in one iteration
  std::uint32_t accept_batch = defaults::kAcceptBatch;
  std::uint32_t backlog = defaults::kBacklog;
  /// Queue pairs that a listener keeps ready on each loop for new connections.
  std::uint32_t prepared = 0;
  std::uint64_t max_connections = Quota::kDefault;
  /// Most registered bytes of the process; 0: no limit.
  std::uint64_t memory_limit = half_of_memory();
  ae::Duration keepalive = StreamConfig{}.keepalive;
  ae::Duration connect_timeout = defaults::kConnectTimeout;
  ae::Duration accept_timeout = std::chrono::seconds(10);
  ae::Duration linger = defaults::kLinger;
  ae::Duration end_linger = EndLinger::kDefault;
  ae::Spin spin;  ///< how the loop spins while it has a connection
  Isolation isolation = Isolation::kAuto;
  bool in_place = false;  ///< peek() shows the windows themselves, which the peer can still write
  /// Index of the completion vector on the device; -1: the loop chooses one.
  int completion_vector = -1;
  std::string device;  ///< name of the only device to use; empty: any device
  std::string source;  ///< address to connect from; empty: that of the route
  AddressOrder spread = AddressOrder::kFirst;
  QpTimeouts timeouts;
  Fabric fabric;

  /// Reads the settings from `options`. Throws Error for an unknown option or a bad value.
  static Settings from(const Options& options);
  /// Returns the table of the options that from() accepts.
  static const OptionTable& options();
  StreamConfig stream(Role role, std::uint64_t connection = 0) const;
  MemoryLimit limit() const noexcept { return {memory_limit}; }
};

}}}  // namespace conn::rdma
