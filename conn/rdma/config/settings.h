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
#include "conn/kit/idle_timeout.h"
#include "conn/kit/quota.h"
#include "conn/rdma/device/fabric.h"
#include "conn/rdma/device/memory.h"
#include "conn/rdma/device/queue_pair.h"
#include "conn/rdma/protocol/stream.h"
#include "conn/url/option_table.h"

namespace conn { inline namespace AECONN_ABI { namespace rdma {

/// Option isolation: which peers could write into a receive window of another connection if they
/// guessed its key.
enum class Isolation : std::uint8_t {
  kAuto,        ///< kWindow if the device supports it, otherwise kConnection
  kConnection,  ///< each connection has a protection domain and a receive queue of its own
  /// One protection domain and a shared receive queue; the key of each window works on one queue
  /// pair only.
  kWindow,
  /// One protection domain, a shared receive queue, keys that work for every peer; the peers must
  /// trust each other.
  kNone,
};

/// Returns half of the machine's memory in bytes, or 0 if its size is unknown. It is the default
/// limit for registered memory, which cannot be swapped out: more would starve the system.
std::uint64_t half_of_memory() noexcept;

struct Settings {
  std::uint32_t window = StreamConfig{}.window;
  std::uint32_t max_window = StreamConfig{}.max_window;
  std::uint32_t max_windows = StreamConfig{}.max_windows;
  std::uint32_t max_peer_window = StreamConfig{}.max_peer_window;
  /// Most bytes that a connection accepts for sending before the device has confirmed them; the
  /// buffer may grow to max_send_buffer.
  std::uint32_t send_buffer = 256 * 1024;
  /// Greatest length in bytes to which a connection's send buffer grows while longer buffers
  /// improve its throughput.
  std::uint32_t max_send_buffer = 4u << 20;
  std::uint32_t send_queue = 16;  ///< most work requests that may be on one connection's send queue
  /// Number of receives that are posted for a connection that has a receive queue of its own.
  std::uint32_t receive_queue = 256;
  /// Number of receives that are posted in an event loop's shared receive queue.
  std::uint32_t shared_receive_queue = 4096;
  /// Data of at most this many bytes is copied into its work request, so that the device need not
  /// fetch it from memory.
  std::uint32_t inline_data = 128;
  /// Bytes that one connection may read in one iteration of its event loop.
  std::uint32_t read_budget = 1024 * 1024;
  std::uint32_t accept_batch = defaults::kAcceptBatch;
  std::uint32_t backlog = defaults::kBacklog;
  /// Number of unused queue pairs that a listener keeps ready on each event loop for new
  /// connections; 0: none.
  std::uint32_t prepared = 0;
  std::uint64_t max_connections = Quota::kDefault;
  /// Most bytes of memory that the process may register for RDMA; 0: no limit.
  std::uint64_t memory_limit = half_of_memory();
  ae::Duration keepalive = StreamConfig{}.keepalive;
  ae::Duration connect_timeout = defaults::kConnectTimeout;
  ae::Duration accept_timeout = std::chrono::seconds(10);
  ae::Duration linger = defaults::kLinger;
  ae::Duration end_linger = EndLinger::kDefault;
  ae::Duration idle_timeout = IdleTimeout::kDefault;
  /// Whether a connection goes on over a new path when its path is lost, if the peer wants that
  /// too.
  bool resume = false;
  ae::Duration resume_time = std::chrono::seconds(10);  ///< how long the new path may take
  ae::Spin spin;  ///< how the event loop busy-polls while it has an rdma connection
  Isolation isolation = Isolation::kAuto;
  /// Whether peek() shows the receive windows themselves; the peer can still change their bytes.
  bool in_place = false;
  /// Index of the device's completion vector (its interrupt) for the completion queues; -1: the
  /// event loop chooses one.
  int completion_vector = -1;
  std::string device;  ///< name of the only RDMA device that may be used; empty: any device
  /// Local address to connect from; empty: the address that the kernel's route selects.
  std::string source;
  AddressOrder spread = AddressOrder::kFirst;
  QpTimeouts timeouts;
  Fabric fabric;

  /// Reads the settings from `options`. Throws Error for an unknown option or a bad value.
  static Settings from(const Options& options);
  /// Returns the table of the options that Settings::from() accepts, with their names, ranges,
  /// defaults and texts.
  static const OptionTable& options();
  StreamConfig stream(Role role, std::uint64_t connection = 0) const;
  MemoryLimit limit() const noexcept { return {memory_limit}; }

  /// Whether all settings of both objects are equal.
  friend bool operator==(const Settings&, const Settings&) = default;
};

}}}  // namespace conn::rdma
