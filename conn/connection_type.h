// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// A transport: how connections of one kind are made. Each lives in its own folder and is named in
// conn/transports/transports.cc; nothing else knows it.

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

/// What a transport cannot promise is said here, never by a missing operation.
struct Capabilities {
  bool half_close = false;  ///< shutdown() works, and the peer's end of stream leaves writing open
  bool rebind = false;      ///< rebind() works
  bool descriptor = false;  ///< fd() is a descriptor of the connection's own
  bool integrity = false;   ///< the transport protects the bytes against change (TLS)
  /// reserve() gives the transport's own memory, and what register_memory() made is sent from where
  /// it lies. Whether peek() shows the transport's own is an option, where there is a choice.
  bool in_place = false;
  /// abort() shows: the peer's read() says ECONNRESET, also where nothing was unread.
  bool reset = false;
  bool reuseport = false;  ///< the kernel can spread one port over several loops (SO_REUSEPORT)
};

/// What the base counts for each type on each loop.
struct LoopCounters {
  std::uint64_t accepted = 0;       ///< handed to an accept handler
  std::uint64_t connected = 0;      ///< by connect()
  std::uint64_t failed = 0;         ///< ended by an error
  std::uint64_t closed = 0;         ///< ended without one
  std::uint64_t open = 0;           ///< connections that exist now, lingering ones included
  std::uint64_t bytes_read = 0;     ///< by programs
  std::uint64_t bytes_written = 0;  ///< by programs
  /// Took less than they were given, or nothing (EAGAIN). Of this type's connections: those of tls
  /// and those of the transport below it are counted apart.
  std::uint64_t short_writes = 0;
  std::uint64_t accept_errors = 0;  ///< arrivals lost, or put off because descriptors ran out
  std::uint64_t refused = 0;        ///< arrivals beyond max-connections
  std::uint64_t fallbacks = 0;      ///< of a list of schemes: not the first was taken
  FallbackCounts not_taken{};       ///< and why, for each that was not
  FallbackCounts not_connected{};   ///< connect() that failed, by kind
  Histogram connect_time;           ///< from connect() until it stood
  Histogram accept_time;  ///< from arrival until it stood, where there is something between
};

using Statistics = std::vector<std::pair<std::string, std::uint64_t>>;  ///< counters by name

/// Several loops, each on its own thread, may share one. configure() is for the time before it is
/// used, or for a type whose configure() says that it may run beside the loops. It must outlive its
/// connections and listeners.
class AECONN_API ConnectionType {
 public:
  ConnectionType() = default;
  ConnectionType(const ConnectionType&) = delete;
  ConnectionType& operator=(const ConnectionType&) = delete;
  virtual ~ConnectionType() = default;

  virtual std::string_view name() const noexcept = 0;      ///< the URL scheme: "tcp"
  virtual Capabilities capabilities() const noexcept = 0;  ///< what it can and cannot do

  /// Defaults for every endpoint of this type. Throws Error for an unknown key or a bad value and
  /// then changes nothing. May be called again (reconfigure): new connections take the new values.
  virtual void configure(const Options& options) = 0;
  /// Which options configure() and URLs may have; null where a transport keeps no table of them.
  virtual const OptionTable* option_table() const noexcept { return nullptr; }
  /// The option of that name that configure() and URLs may have, be it of this type, of the type
  /// below it, or of one of its list; null: there is none. The default looks into option_table().
  virtual const OptionRow* find_option(std::string_view key) const noexcept;
  /// Throws Error, as configure() and listen() would, if `endpoint` is not fit for this type.
  virtual void check(const Endpoint& endpoint) const = 0;

  /// Listens until the result is destroyed. Throws Error: port in use, no such device, ...
  [[nodiscard]] virtual ListenerPtr listen(ae::EventLoop& loop, const Endpoint& endpoint,
                                           AcceptHandler accepted) const = 0;
  /// A connection in state kNone.
  [[nodiscard]] virtual ConnectionPtr create(ae::EventLoop& loop) const = 0;

  /// Makes a connected socket of the host's own a connection, which owns it from now on: accepted
  /// elsewhere, inherited, from socketpair(2). It becomes non-blocking and close-on-exec, and gets
  /// the type's options (nodelay, keepalive, buffers, ...). Throws Error where the type has no
  /// descriptors (Capabilities::descriptor), where a handshake has to come first (tls: adopt it
  /// below and TlsType::wrap() that), or if `fd` is not a connected stream socket of the type's
  /// family; `fd` is then still the caller's.
  [[nodiscard]] virtual ConnectionPtr adopt(ae::EventLoop& loop, int fd) const;
  /// The same for a socket that listens already: from socket activation (LISTEN_FDS), from a master
  /// that bound it. The listener has the type's options with `options` over them, and its
  /// connections have them. What was decided when the socket was made stays (address, reuseport,
  /// mode), as does its backlog unless one of the two gives one. `fd` is closed when listening
  /// ends; others who hold the socket listen on, a Unix socket's file stays. It becomes
  /// non-blocking for all who hold it. Throws Error where the type has no listening descriptors,
  /// for a bad option, or if `fd` is not a listening stream socket of the type's family; `fd` is
  /// then still the caller's.
  [[nodiscard]] virtual ListenerPtr adopt_listener(ae::EventLoop& loop, int fd,
                                                   AcceptHandler accepted,
                                                   const Options& options = {}) const;

  /// Memory that send() takes from where it lies without copying (1 KiB of it or more), where the
  /// transport's devices can read it (rdma); for the others an empty shell, so that a program need
  /// not ask. `bytes` is borrowed: see conn::Memory. Throws std::bad_alloc. rdma pins all of it
  /// when a connection first sends from it, as far as memory-limit allows; else it is copied. Whole
  /// pages of their own are best: registered ones are not there in a child of fork() on older
  /// kernels.
  [[nodiscard]] virtual std::unique_ptr<Memory> register_memory(ae::EventLoop& loop,
                                                                std::span<std::byte> bytes) const;

  // --- one port, several loops: for conn/listener_group.h; see conn/core/pending_connection.h
  // ----------------
  /// As listen() and adopt_listener(), but what arrives is handed out before it begins. The
  /// default throws Error: the transport serves one loop.
  [[nodiscard]] virtual PortListenerPtr open_port(ae::EventLoop& loop, const Endpoint& endpoint,
                                                  PendingHandler arrived) const;
  /// As adopt_listener(), see open_port().
  [[nodiscard]] virtual PortListenerPtr adopt_gate(ae::EventLoop& loop, int fd,
                                                   PendingHandler arrived,
                                                   const Options& options = {}) const;
  /// The other end, for the gate's arrivals: with the same endpoint, or with its options alone
  /// where the gate is of a socket that was taken over.
  [[nodiscard]] virtual LoopAcceptorPtr open_acceptor(ae::EventLoop& loop, const Endpoint& endpoint,
                                                      AcceptHandler accepted) const;

  /// As Redis's call: whether there is work that no descriptor announces. For a host that drives it
  /// itself; on our own loop that is a source, and runs without being called.
  virtual bool has_pending_data(ae::EventLoop&) const { return false; }
  /// Does it; returns how much there was.
  virtual std::size_t process_pending_data(ae::EventLoop&) const { return 0; }
  /// Frees what the type keeps for `loop` beyond connections and listeners (caches, shared queues).
  /// The loop's end does the same.
  virtual void cleanup(ae::EventLoop&) const {}

  /// Which limits there are, and how many connections of `endpoint`'s options each leaves room for;
  /// the default: descriptors, where a connection has one. Looks at the process, the machine and,
  /// where an address says which it is, the device. Throws Error as check().
  virtual std::vector<Capacity> capacity(const Endpoint& endpoint, std::uint64_t connections) const;

  LoopCounters& counters(ae::EventLoop& loop) const;  ///< the base's own, of this type on `loop`
  /// Counters by name, the base's first; INFO prints them. Those of times and of reasons why a
  /// connect failed are there once there was one: connect_time_le_25000 (how many took so many
  /// nanoseconds or less), connect_time_sum_ns, connect_time_count, the same of accept_time;
  /// connect_failed_refused and alike.
  virtual Statistics statistics(ae::EventLoop& loop) const;
};

}}  // namespace conn
