// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Common parts of the connection tests: the list of transports, a loop with a place to listen, a
// connected pair, peers on other threads and in other processes, and waiting for conditions.
//
//   AECONN_TRANSPORTS=tcp,memory   narrows the transports
//   AECONN_RDMA_ADDRESS=10.0.0.1   adds rdma, on the device with this address
//   AECONN_RDMA_OPTIONS=in-place=yes   configures the type rdma
//   AECONN_TLS_OPTIONS=ktls=yes    configures all TLS types
//   AECONN_LOOPS=3                 number of loops, on one thread, that listeners serve

#include <sys/types.h>

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <unordered_map>
#include <vector>

#include "conn/registry.h"
#include "tests/support/any_loop.h"
#include "tests/support/shared_loops.h"

namespace testing {

using namespace std::chrono_literals;

// --- transports ----------------------------------------------------------------------------------

/// A transport to test, and what tests have to know of it besides its capabilities.
struct Transport {
  std::string name;  ///< as in URLs; test_registry() has a type with this name
  /// The peer may be on another thread, and it may be in another process. False if either is
  /// impossible.
  bool reaches_far = true;
  std::size_t crowd = 1000;  ///< number of connections for tests with many
  bool threads = true;       ///< loops on several threads may use one type at the same time
  bool one_loop = false;     ///< both ends of a connection must be on one loop
  bool groups = true;        ///< several loops may serve one port (conn::listen with ae::Loops)
  /// Written bytes may still be on this side when close() returns, so that the transport has the
  /// option end-linger.
  bool lingers = true;
  bool in_library = true;  ///< all_transports() has it, so that the C interface has it, too
  bool list = false;       ///< a list of schemes: accepted connections have the last one's type
};
std::ostream& operator<<(std::ostream& out, const Transport& transport);

/// The transports to test in this run.
std::vector<Transport> transports();
/// Whether the kernel connects this machine with itself over vsock, context ID 1: transports() then
/// has vsock.
bool has_vsock_loopback();
/// In a test case: runs the following block for each transport.
#define FOR_EVERY_TRANSPORT(transport)                                \
  const auto transport = GENERATE(from_range(testing::transports())); \
  DYNAMIC_SECTION(transport.name)
/// All transports of the library, plus memory, local, pipe and absent. `used`: a type, or a list of
/// them as in a URL: then of the tls types only these are configured, because OpenSSL takes
/// milliseconds to read a key, most of the time of a short test; empty: all are.
conn::Registry test_registry(std::string_view used = {});

/// A temporary folder, removed with its contents.
class TempFolder {
 public:
  TempFolder();
  TempFolder(const TempFolder&) = delete;
  TempFolder& operator=(const TempFolder&) = delete;
  ~TempFolder();
  const std::string& path() const noexcept { return path_; }

 private:
  std::string path_;
};

// --- loops ---------------------------------------------------------------------------------------

/// AECONN_SLOWER: factor for time limits (under sanitizers, on emulators).
unsigned slower();
/// AECONN_LOOPS: number of loops that a Site's listeners serve.
std::size_t listening_loops();
/// Whether the devices are simulated, on one thread: tests/simulation.
bool simulated();
/// Time limit for a condition: generous, since a successful test never waits for it.
ae::Duration patience();

/// Runs the loop until the condition holds. Fails the test, naming `what`, if it does not in time,
/// or only by an event that came too late.
void run_until(ae::EventLoop& loop, const std::function<bool()>& condition, std::string_view what,
               ae::Duration deadline = patience());
#define RUN_UNTIL(loop, ...) \
  ::testing::run_until(      \
      loop, [&] { return (__VA_ARGS__); }, #__VA_ARGS__)

/// Runs `count` iterations that do not sleep.
void turns(ae::EventLoop& loop, int count);

/// Counts the iterations of a loop.
class IterationCounter {
 public:
  explicit IterationCounter(ae::EventLoop& loop);
  ~IterationCounter() { loop_.remove_hook(hook_); }
  IterationCounter(const IterationCounter&) = delete;
  IterationCounter& operator=(const IterationCounter&) = delete;
  /// Number of iterations that the undisturbed loop makes in `span`, without the one that ends the
  /// span.
  int during(ae::Duration span);

 private:
  ae::EventLoop& loop_;
  int count_ = 0;
  ae::HookId hook_;
};

// --- connections ---------------------------------------------------------------------------------

/// One loop with all transports, and an address to listen at for one of them.
struct Site {
  explicit Site(const Transport& transport);

  /// A new address: port 0, a new path, or a new name.
  conn::Endpoint fresh();
  /// Listens on the loop, or on listening_loops() loops; then the first connection is assigned to
  /// another loop than this one.
  conn::ListenerPtr listen(conn::AcceptHandler accepted);
  conn::ConnectionPtr connect(const conn::Endpoint& to, conn::Connection::Handler done = {});
  /// An address without a listener.
  conn::Endpoint deserted();

  const Transport transport;
  TempFolder folder;
  conn::Registry registry;
  conn::ConnectionType& type;
  conn::ConnectionType& carrier;  ///< of a list, the type that it delegates to; else `type`
  testing::AnyLoop loop;
  std::unique_ptr<SharedLoops> loops;  ///< null with one loop
  int names = 0;
};

inline conn::Endpoint address_of(const conn::Listener& listener) {
  return listener.endpoints().front();
}

/// Two ends of a connection on one loop.
struct Pair : Site {
  explicit Pair(const Transport& transport);

  conn::ListenerPtr listener;
  conn::ConnectionPtr client, server;
};

/// Sends everything, running the loop while the send buffer is full. Takes over the write handler.
void send(ae::EventLoop& loop, conn::Connection& connection, std::string_view bytes);
/// Reads exactly `size` bytes, running the loop. Takes over the read handler.
std::string receive(ae::EventLoop& loop, conn::Connection& connection, std::size_t size);

/// Runs the loop until the connection is readable, without reading. Takes over the read handler.
void await_readable(ae::EventLoop& loop, conn::Connection& connection);
/// One read of at most `size` bytes; empty if there are none.
std::string read_some(conn::Connection& connection, std::size_t size);

/// Reads everything with a read handler, which is removed at the end of the stream.
class Collector {
 public:
  /// Reads `chunk` bytes per call of the handler.
  explicit Collector(conn::Connection& connection, std::size_t chunk = 64 << 10);
  Collector(const Collector&) = delete;
  Collector& operator=(const Collector&) = delete;

  std::string bytes;
  bool ended = false;
  int error = 0;  ///< errno of a failed read()
  int calls = 0;  ///< number of calls of the handler
  bool over() const noexcept { return ended || error != 0; }

 private:
  std::vector<char> buffer_;
};

// --- large amounts of data -----------------------------------------------------------------------

/// An endless sequence of bytes whose period is a prime, so that shifted bytes are detected.
class Pattern {
 public:
  explicit Pattern(std::uint64_t seed) : shift_(seed * 7919) {}
  /// Bytes from offset `at` on: at least one, at most as many as are contiguous.
  std::string_view at(std::uint64_t at) const noexcept;
  bool matches(std::uint64_t at, std::string_view bytes) const noexcept;

 private:
  std::uint64_t shift_;
};

/// Writes `total` bytes of a pattern with a write handler, which is removed at the end.
class Sender {
 public:
  Sender(conn::Connection& connection, std::uint64_t seed, std::uint64_t total,
         std::size_t chunk = 256 << 10);
  Sender(const Sender&) = delete;
  Sender& operator=(const Sender&) = delete;
  bool done() const noexcept { return sent == total_; }

  std::uint64_t sent = 0;
  int error = 0;

 private:
  const Pattern pattern_;
  const std::uint64_t total_;
};

/// Reads bytes and compares them with the pattern.
class Receiver {
 public:
  Receiver(conn::Connection& connection, std::uint64_t seed, std::size_t chunk = 256 << 10);
  Receiver(const Receiver&) = delete;
  Receiver& operator=(const Receiver&) = delete;

  std::uint64_t received = 0;
  bool intact = true;
  bool ended = false;
  int error = 0;

 private:
  const Pattern pattern_;
  std::vector<char> buffer_;
};

// --- peers ---------------------------------------------------------------------------------------

/// Echoes until the end of the stream. It never stops reading, so clients may send any amount
/// before they read.
class EchoServer {
 public:
  conn::AcceptHandler handler();
  std::size_t open() const noexcept { return clients_.size(); }

 private:
  struct Client {
    conn::ConnectionPtr connection;
    std::string backlog;
  };
  void on_readable(conn::Connection& connection);
  void on_writable(conn::Connection& connection);
  std::unordered_map<conn::Connection*, Client> clients_;
};

/// An echo server on a thread and a loop of its own.
class EchoThread {
 public:
  explicit EchoThread(const Transport& transport);
  ~EchoThread();
  const conn::Endpoint& address() const noexcept { return address_; }

 private:
  conn::Endpoint address_;
  ae::Poster poster_;
  testing::AnyLoop* loop_ = nullptr;
  std::thread thread_;
};

/// A process that connects, sends "hello" and then only waits for its end. The constructor forks at
/// once, and the child makes its own loop; construct it before any other object of the test.
class ClientProcess {
 public:
  explicit ClientProcess(const Transport& transport);
  ~ClientProcess();
  ClientProcess(const ClientProcess&) = delete;
  ClientProcess& operator=(const ClientProcess&) = delete;
  void connect(const conn::Endpoint& to);
  void kill();

 private:
  pid_t pid_ = -1;
  int orders_ = -1;
};

}  // namespace testing
