// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Interface of a transport: creates connections and listeners of one kind. Each transport lives in
// its own folder and is named only in conn/transports/transports.cc.

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
#include "conn/core/pending_connection.h"
#include "conn/endpoint.h"
#include "conn/fallback.h"
#include "conn/histogram.h"
#include "conn/listener.h"
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

/// Counters kept by the base for each type on each loop.
struct LoopCounters {
  std::uint64_t accepted = 0;       ///< accepted or adopted
  std::uint64_t connected = 0;      ///< established by connect()
  std::uint64_t failed = 0;         ///< ended by an error
  std::uint64_t closed = 0;         ///< closed by close() or abort(), also after a failure
  std::uint64_t open = 0;           ///< connections that exist now, including those that linger
  std::uint64_t bytes_read = 0;     ///< by the program
  std::uint64_t bytes_written = 0;  ///< by the program
  /// Writes that took less than they were given, or nothing (EAGAIN). Connections of tls and of the
  /// transport below it are counted separately.
  std::uint64_t short_writes = 0;
  /// Pending connections lost, or deferred because descriptors ran out.
  std::uint64_t accept_errors = 0;
  std::uint64_t refused = 0;    ///< pending connections beyond max-connections
  std::uint64_t fallbacks = 0;  ///< list of schemes: connections by another scheme than the first
  FallbackCounts not_taken{};   ///< schemes of a list that were not taken, by reason
  FallbackCounts not_connected{};  ///< failed connect() calls, by reason
  Histogram connect_time;          ///< from connect() until established
  /// From the pending connection until established, if there is a step in between.
  Histogram accept_time;
};

using Statistics = std::vector<std::pair<std::string, std::uint64_t>>;  ///< counters by name

/// A transport. Several loops, each on its own thread, may share one. Call configure() before the
/// first use, unless the type's configure() allows it while loops run. A type must outlive its
/// connections and listeners.
class AECONN_API ConnectionType {
 public:
  ConnectionType() = default;
  ConnectionType(const ConnectionType&) = delete;
  ConnectionType& operator=(const ConnectionType&) = delete;
  virtual ~ConnectionType() = default;

  virtual std::string_view name() const noexcept = 0;      ///< the URL scheme: "tcp"
  virtual Capabilities capabilities() const noexcept = 0;  ///< supported features

  /// Sets defaults for every endpoint of this type. Throws Error for an unknown key or a bad value,
  /// and then changes nothing. May be called again (reconfigure): new connections use the new
  /// values.
  virtual void configure(const Options& options) = 0;
  /// The options that configure() and URLs accept; null if the transport keeps no table.
  virtual const OptionTable* option_table() const noexcept { return nullptr; }
  /// The option `key` accepted by configure() and URLs, whether it belongs to this type, the type
  /// below it, or one of its list; null if there is none. The default searches option_table().
  virtual const OptionRow* find_option(std::string_view key) const noexcept;
  /// Throws Error, as configure() and listen() would, if `endpoint` is not valid for this type.
  virtual void check(const Endpoint& endpoint) const = 0;

  /// Listens until the result is destroyed. Throws Error, for example for a port in use.
  [[nodiscard]] virtual ListenerPtr listen(ae::EventLoop& loop, const Endpoint& endpoint,
                                           AcceptHandler accepted) const = 0;
  /// Creates a connection in state kNone.
  [[nodiscard]] virtual ConnectionPtr create(ae::EventLoop& loop) const = 0;

  /// Turns a connected socket (accepted elsewhere, inherited, from socketpair(2)) into a
  /// connection, which then owns it. The socket becomes non-blocking and close-on-exec and gets the
  /// type's options (nodelay, keepalive, buffers, ...). Throws Error if the type has no descriptors
  /// (Capabilities::descriptor), if a handshake must come first (tls: adopt it as a carrier and
  /// pass that to TlsType::wrap()), or if `fd` is not a connected stream socket of the type's
  /// family; the caller then still owns `fd`.
  [[nodiscard]] virtual ConnectionPtr adopt(ae::EventLoop& loop, int fd) const;
  /// Adopts a listening socket, for example from socket activation (LISTEN_FDS) or a master
  /// process. The listener and its connections have the type's options, overridden by `options`.
  /// Settings fixed at creation (address, reuseport, mode) remain, as does the backlog unless an
  /// option sets it. `fd` is closed when listening ends; other owners of the socket continue to
  /// listen, and a Unix socket's file remains. The socket becomes non-blocking for all its owners.
  /// Throws Error if the type has no listening descriptors, for a bad option, or if `fd` is not a
  /// listening stream socket of the type's family; the caller then still owns `fd`.
  [[nodiscard]] virtual ListenerPtr adopt_listener(ae::EventLoop& loop, int fd,
                                                   AcceptHandler accepted,
                                                   const Options& options = {}) const;

  /// Registers memory from which send() sends without copying (for 1 KiB or more), if the
  /// transport's devices can read it (rdma). Other transports return an object without effect, so
  /// that programs need no special case. `bytes` is not owned: see conn::Memory. Throws
  /// std::bad_alloc. rdma pins all of it when a connection first sends from it, within
  /// memory-limit; otherwise the data is copied. Use whole pages that hold nothing else: on older
  /// kernels, registered pages are missing in a child of fork().
  [[nodiscard]] virtual std::unique_ptr<Memory> register_memory(ae::EventLoop& loop,
                                                                std::span<std::byte> bytes) const;

  // --- one port, several loops: see conn/listener_group.h and conn/core/pending_connection.h ---
  /// As listen() and adopt_listener(), but hands out pending connections before their set-up
  /// begins. The default throws Error: the transport serves only one loop per port.
  [[nodiscard]] virtual PortListenerPtr open_port(ae::EventLoop& loop, const Endpoint& endpoint,
                                                  PendingHandler arrived) const;
  /// As adopt_listener(); see open_port().
  [[nodiscard]] virtual PortListenerPtr adopt_port(ae::EventLoop& loop, int fd,
                                                   PendingHandler arrived,
                                                   const Options& options = {}) const;
  /// Creates a loop's acceptor for the port listener's pending connections. `endpoint` is the same
  /// as for the port listener, or has only its options if that adopted a socket.
  [[nodiscard]] virtual LoopAcceptorPtr open_acceptor(ae::EventLoop& loop, const Endpoint& endpoint,
                                                      AcceptHandler accepted) const;

  /// As Redis's function of this name: whether there is work that no descriptor announces. For
  /// hosts that poll it themselves; on an ae::EventLoop such work is a source and runs
  /// automatically.
  virtual bool has_pending_data(ae::EventLoop&) const { return false; }
  /// Does that work; returns how much there was.
  virtual std::size_t process_pending_data(ae::EventLoop&) const { return 0; }
  /// Frees the caches and shared queues that the type keeps for `loop` besides connections and
  /// listeners. The end of the loop does the same.
  virtual void cleanup(ae::EventLoop&) const {}

  /// Returns the limits that apply, and how many connections with the options of `endpoint` each
  /// allows. The default: descriptors, if a connection has one. Inspects the process, the machine
  /// and, if the address determines it, the device. Throws Error as check() does.
  virtual std::vector<Capacity> capacity(const Endpoint& endpoint, std::uint64_t connections) const;

  LoopCounters& counters(ae::EventLoop& loop) const;  ///< the base's, of this type on `loop`
  /// Counters by name, the base's first; INFO prints them. Time histograms and failure reasons
  /// appear once they have a first value: connect_time_le_25000 (connects that took at most that
  /// many nanoseconds), connect_time_sum_ns, connect_time_count, the same for accept_time;
  /// connect_failed_refused and similar.
  virtual Statistics statistics(ae::EventLoop& loop) const;
};

}}  // namespace conn
