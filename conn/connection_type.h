// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// ConnectionType: a transport as programs see it, which creates connections and listeners of one
// kind. Each transport lives in its own folder and is named only in conn/transports/transports.cc.
// The author of a transport derives from conn::Transport (conn/core/transport.h) instead.

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

/// The operations and properties that a transport supports. Calling an operation that it does not
/// support fails with an error.
struct Capabilities {
  /// Connection::shutdown() works; writing may go on after the peer's end of stream. (Over rdma
  /// only if both ends use this library.)
  bool half_close = false;
  /// Connection::rebind() and leave() work: connections can move to another loop. (rdma: false,
  /// although they work for connections with option resume at both ends.)
  bool rebind = false;
  bool descriptor = false;  ///< Connection::fd() returns a descriptor used by that connection alone
  bool integrity = false;   ///< the transport protects the bytes against modification (TLS)
  /// reserve() returns the transport's own memory, and registered memory (register_memory()) is
  /// sent without copying. For peek(), an option may decide whether it shows the transport's own
  /// memory.
  bool in_place = false;
  /// After abort(), the peer's read() fails with ECONNRESET, even if there was no unread data.
  bool reset = false;
  /// Several loops can listen on one port, and the kernel spreads connections (SO_REUSEPORT).
  bool reuseport = false;
};

/// Names and values of counters, as statistics() returns them.
using Statistics = std::vector<std::pair<std::string, std::uint64_t>>;

/// A transport, as programs see it. Several loops, each on its own thread, may share one. The
/// object must outlive its connections and listeners.
class AECONN_API ConnectionType {
 public:
  ConnectionType(const ConnectionType&) = delete;
  ConnectionType& operator=(const ConnectionType&) = delete;

  /// Name of the transport, used as the scheme of URLs: "tcp".
  std::string_view name() const noexcept;
  /// The operations and properties that this transport supports.
  Capabilities capabilities() const noexcept;

  /// Sets the default options of every endpoint of this type, in place of earlier ones. Throws
  /// Error, and changes nothing, for an unknown key or a bad value. May be called again: new
  /// connections use the new values, and tls reads all files again, also those that endpoints of
  /// listeners name. While loops run on other threads, only types of tls may be configured.
  void configure(const Options& options);
  /// Returns the table of options that configure() and URLs accept; null if the transport has none.
  const OptionTable* option_table() const noexcept;
  /// Returns the option `key` that configure() and URLs accept; null if there is none. The option
  /// may belong to this type, to the type below it (such as tcp below tls), or, for a list of
  /// schemes, to one of its types.
  const OptionRow* find_option(std::string_view key) const noexcept;
  /// Checks `endpoint` for this type as configure() and listen() would. Throws Error if it is not
  /// valid.
  void check(const Endpoint& endpoint) const;

  /// Checks `endpoint` like check(), and reads the files that a listener on it needs, such as keys
  /// of tls: for a program that gives up its privileges before it listens. listen() with the same
  /// options then reads no file, but configure() and reload=auto do. The type keeps what was read
  /// until it is destroyed, as if a listener used it: once these files cannot be read any more,
  /// each configure() of the type throws, even if nothing listens on `endpoint`; and statistic
  /// certificates_end counts the certificates in them. Throws Error like listen(). For types of tls
  /// it may be called on any thread.
  void prepare(const Endpoint& endpoint) const;
  /// Checks `endpoint` like check(), and reads the files that a client's connections to it need;
  /// over tls these are, without option ca, the certificates that the system trusts, whose reading
  /// takes tens of milliseconds. Opens nothing on the network, and needs no device. For a program
  /// that checks its configuration, or whose loop must not wait for files. The type keeps what was
  /// read until it is destroyed. configure() and Registry::reload_tls() read all these files again,
  /// reload=auto those that options name; each of them fails once it cannot read them any more.
  /// Throws Error. For types of tls it may be called on any thread.
  void prepare_client(const Endpoint& endpoint) const;

  /// Listens for connections on `endpoint` until the returned listener is destroyed. Throws Error,
  /// for example if the port is in use.
  [[nodiscard]] ListenerPtr listen(ae::EventLoop& loop, const Endpoint& endpoint,
                                   AcceptHandler accepted) const;
  /// Creates a connection on `loop` in state kNone, which connect() can then connect.
  [[nodiscard]] ConnectionPtr create(ae::EventLoop& loop) const;

  /// Turns a connected socket (accepted elsewhere, inherited, from socketpair(2)) into a
  /// connection, which then owns the socket. The socket becomes non-blocking and close-on-exec and
  /// gets the type's options (nodelay, keepalive, buffers, ...). Throws Error if the type has no
  /// descriptors (Capabilities::descriptor), if a handshake must come first (for tls: adopt the
  /// socket with tcp or unix and pass that connection to TlsType::wrap()), or if `fd` is not a
  /// connected stream socket of the type's family; the caller then still owns `fd`.
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
  /// that programs need no special case. `bytes` remains the caller's: see conn::Memory. Throws
  /// std::bad_alloc. rdma pins all of the memory when a connection first sends from it, if option
  /// memory-limit permits; otherwise the data is copied. Use whole pages that hold nothing else: on
  /// older kernels, registered pages are missing in a child of fork().
  [[nodiscard]] std::unique_ptr<Memory> register_memory(ae::EventLoop& loop,
                                                        std::span<std::byte> bytes) const;

  /// Returns whether there is work on `loop` that no descriptor announces (like Redis's function of
  /// this name). For programs that poll for such work themselves; an ae::EventLoop polls for it
  /// automatically.
  bool has_pending_data(ae::EventLoop& loop) const;
  /// Runs handlers for the data that has_pending_data() announces. Returns how many handlers ran.
  std::size_t process_pending_data(ae::EventLoop& loop) const;
  /// Frees the caches and shared queues that this type keeps for `loop`; connections and listeners
  /// stay. This also happens when the loop ends.
  void cleanup(ae::EventLoop& loop) const;

  /// Returns the limits of the system that apply, and how many connections with the options of
  /// `endpoint` each of them allows. Inspects the process, the machine and, if the address
  /// determines it, the device. Throws Error like check().
  std::vector<Capacity> capacity(const Endpoint& endpoint, std::uint64_t connections) const;

  /// Returns the counters that the library keeps for this type's connections on `loop`.
  LoopCounters& counters(ae::EventLoop& loop) const;
  /// Returns the type's counters on `loop` by name, beginning with those that every transport has;
  /// kv-server prints them for INFO. Time histograms and failure reasons appear once they have a
  /// first value: connect_time_le_25000 (connects that took at most that many nanoseconds),
  /// connect_time_sum_ns, connect_time_count, the same for accept_time; connect_failed_refused and
  /// similar.
  Statistics statistics(ae::EventLoop& loop) const;

 protected:
  ConnectionType() = default;
  ~ConnectionType() = default;
};

}}  // namespace conn
