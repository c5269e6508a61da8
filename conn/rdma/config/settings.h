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

/// Option isolation: prevents a peer from writing into a receive window of another connection by
/// guessing the window's key.
enum class Isolation : std::uint8_t {
  kAuto,        ///< chooses kWindow if the device supports it, otherwise kConnection
  kConnection,  ///< each connection has its own protection domain and its own receive queue
  /// The connections of a loop share a protection domain and a receive queue. The key of each
  /// receive window works on one queue pair only.
  kWindow,
  /// The connections of a loop share a protection domain and a receive queue. The keys work for
  /// every peer, so the peers must trust each other.
  kNone,
};

/// Returns half of the machine's memory in bytes, or 0 if its size is unknown. This is the default
/// limit for registered memory. Such memory cannot be swapped out, so more of it would starve the
/// system.
std::uint64_t half_of_memory() noexcept;

struct Settings {
  std::uint32_t window = StreamConfig{}.window;
  std::uint32_t max_window = StreamConfig{}.max_window;
  std::uint32_t max_windows = StreamConfig{}.max_windows;
  std::uint32_t max_peer_window = StreamConfig{}.max_peer_window;
  /// Initial size in bytes of a connection's send buffer, which limits the bytes accepted for
  /// sending and not yet confirmed by the device. The buffer may grow to max_send_buffer.
  std::uint32_t send_buffer = 256 * 1024;
  /// Greatest size in bytes of a connection's send buffer. The buffer grows as long as that
  /// improves the throughput.
  std::uint32_t max_send_buffer = 4u << 20;
  /// Number of work requests that a connection's send queue can hold.
  std::uint32_t send_queue = 16;
  /// Number of posted receives of a connection that has its own receive queue.
  std::uint32_t receive_queue = 256;
  /// Number of posted receives in the shared receive queue of an event loop.
  std::uint32_t shared_receive_queue = 4096;
  /// Data of at most this many bytes is copied into its work request, so that the device need not
  /// fetch it from memory.
  std::uint32_t inline_data = 128;
  /// Greatest number of bytes that one connection may read in one iteration of its event loop.
  std::uint32_t read_budget = 1024 * 1024;
  std::uint32_t accept_batch = defaults::kAcceptBatch;
  std::uint32_t backlog = defaults::kBacklog;
  /// Number of queue pairs that a listener creates in advance on each event loop, to make new
  /// connections faster; 0: none.
  std::uint32_t prepared = 0;
  std::uint64_t max_connections = Quota::kDefault;
  /// Greatest number of bytes that the process may register for RDMA; 0: no limit.
  std::uint64_t memory_limit = half_of_memory();
  ae::Duration keepalive = StreamConfig{}.keepalive;
  ae::Duration connect_timeout = defaults::kConnectTimeout;
  ae::Duration accept_timeout = std::chrono::seconds(10);
  ae::Duration linger = defaults::kLinger;
  ae::Duration end_linger = EndLinger::kDefault;
  ae::Duration idle_timeout = IdleTimeout::kDefault;
  /// True: if its network path is lost, a connection continues over a new one. The peer must have
  /// set this option, too.
  bool resume = false;
  /// Time within which a connection that has lost its network path must find a new one; otherwise
  /// it fails.
  ae::Duration resume_time = std::chrono::seconds(10);
  /// How long the event loop polls before it sleeps, while it has an rdma connection.
  ae::Spin spin;
  Isolation isolation = Isolation::kAuto;
  /// True: peek() returns views of the receive windows themselves, in which the peer can still
  /// change bytes. False: it returns a copy.
  bool in_place = false;
  /// Completion vector (interrupt) of the device for the completion queues; -1: the event loop
  /// chooses one.
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

  friend bool operator==(const Settings&, const Settings&) = default;
};

}}}  // namespace conn::rdma
