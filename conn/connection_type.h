// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// What a program can ask of a transport, which creates connections and listeners of one kind. Each
// transport lives in its own folder and is named only in conn/transports/transports.cc; its author
// derives from conn::Transport (conn/core/transport.h).

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ae/abi.h"
#include "conn/capacity.h"
#include "conn/connection.h"
#include "conn/endpoint.h"
#include "conn/listener.h"
#include "conn/loop_counters.h"
#include "conn/url/option_table.h"

namespace conn { inline namespace AECONN_ABI {

/// What a transport can do. Operations that it does not support still exist and report an error.
struct Capabilities {
  bool half_close = false;  ///< shutdown() works; after the peer's end of stream, writing goes on
  bool rebind = false;      ///< rebind() works
  bool descriptor = false;  ///< fd() is a descriptor used by this connection alone
  bool integrity = false;   ///< the transport protects the bytes against modification (TLS)
  /// reserve() returns the transport's own memory, and registered memory (register_memory()) is
  /// sent without copying. Whether peek() shows the transport's own memory may depend on an option.
  bool in_place = false;
  /// After abort(), the peer's read() fails with ECONNRESET, even if there was no unread data.
  bool reset = false;
  bool reuseport = false;  ///< the kernel can spread one port over several loops (SO_REUSEPORT)
};

using Statistics = std::vector<std::pair<std::string, std::uint64_t>>;  ///< counters by name

/// A transport, as programs see it. Several loops, each on its own thread, may share one. Call
/// configure() before the first use, unless the type's configure() allows it while loops run. A
/// type must outlive its connections and listeners.
class AECONN_API ConnectionType {
 public:
  ConnectionType(const ConnectionType&) = delete;
  ConnectionType& operator=(const ConnectionType&) = delete;

  std::string_view name() const noexcept;      ///< the URL scheme: "tcp"
  Capabilities capabilities() const noexcept;  ///< supported features

  /// Sets defaults for every endpoint of this type. Throws Error for an unknown key or a bad value,
  /// and then changes nothing. May be called again (reconfigure): new connections use the new
  /// values.
  void configure(const Options& options);
  /// The options that configure() and URLs accept; null if the transport keeps no table.
  const OptionTable* option_table() const noexcept;
  /// The option `key` accepted by configure() and URLs, whether it belongs to this type, the type
  /// below it, or one of its list; null if there is none.
  const OptionRow* find_option(std::string_view key) const noexcept;
  /// Throws Error, as configure() and listen() would, if `endpoint` is not valid for this type.
  void check(const Endpoint& endpoint) const;

  /// Listens until the result is destroyed. Throws Error, for example for a port in use.
  [[nodiscard]] ListenerPtr listen(ae::EventLoop& loop, const Endpoint& endpoint,
                                   AcceptHandler accepted) const;
  /// Creates a connection in state kNone.
  [[nodiscard]] ConnectionPtr create(ae::EventLoop& loop) const;

  /// Turns a connected socket (accepted elsewhere, inherited, from socketpair(2)) into a
  /// connection, which then owns it. The socket becomes non-blocking and close-on-exec and gets the
  /// type's options (nodelay, keepalive, buffers, ...). Throws Error if the type has no descriptors
  /// (Capabilities::descriptor), if a handshake must come first (tls: adopt it as a carrier and
  /// pass that to TlsType::wrap()), or if `fd` is not a connected stream socket of the type's
  /// family; the caller then still owns `fd`.
  [[nodiscard]] ConnectionPtr adopt(ae::EventLoop& loop, int fd) const;
  /// Adopts a listening socket, for example from socket activation (LISTEN_FDS) or a master
  /// process. The listener and its connections have the type's options, overridden by `options`.
  /// Settings fixed at creation (address, reuseport, mode) remain, as does the backlog unless an
  /// option sets it. `fd` is closed when listening ends; other owners of the socket continue to
  /// listen, and a Unix socket's file remains. The socket becomes non-blocking for all its owners.
  /// Throws Error if the type has no listening descriptors, for a bad option, or if `fd` is not a
  /// listening stream socket of the type's family; the caller then still owns `fd`.
  [[nodiscard]] ListenerPtr adopt_listener(ae::EventLoop& loop, int fd, AcceptHandler accepted,
                                           const Options& options = {}) const;

  /// Registers memory from which send() sends without copying (for 1 KiB or more), if the
  /// transport's devices can read it (rdma). Other transports return an object without effect, so
  /// that programs need no special case. `bytes` is not owned: see conn::Memory. Throws
  /// std::bad_alloc. rdma pins all of it when a connection first sends from it, within
  /// memory-limit; otherwise the data is copied. Use whole pages that hold nothing else: on older
  /// kernels, registered pages are missing in a child of fork().
  [[nodiscard]] std::unique_ptr<Memory> register_memory(ae::EventLoop& loop,
                                                        std::span<std::byte> bytes) const;

  /// As Redis's function of this name: whether there is work that no descriptor announces. For
  /// hosts that poll it themselves; on an ae::EventLoop such work is a source and runs
  /// automatically.
  bool has_pending_data(ae::EventLoop& loop) const;
  /// Does that work; returns how much there was.
  std::size_t process_pending_data(ae::EventLoop& loop) const;
  /// Frees the caches and shared queues that the type keeps for `loop` besides connections and
  /// listeners. The end of the loop does the same.
  void cleanup(ae::EventLoop& loop) const;

  /// Returns the limits that apply, and how many connections with the options of `endpoint` each
  /// allows. Inspects the process, the machine and, if the address determines it, the device.
  /// Throws Error as check() does.
  std::vector<Capacity> capacity(const Endpoint& endpoint, std::uint64_t connections) const;

  LoopCounters& counters(ae::EventLoop& loop) const;  ///< of every transport, of this on `loop`
  /// Counters by name, those of every transport first; INFO prints them. Time histograms and
  /// failure reasons appear once they have a first value: connect_time_le_25000 (connects that took
  /// at most that many nanoseconds), connect_time_sum_ns, connect_time_count, the same for
  /// accept_time; connect_failed_refused and similar.
  Statistics statistics(ae::EventLoop& loop) const;

 protected:
  ConnectionType() = default;
  ~ConnectionType() = default;
};

}}  // namespace conn
