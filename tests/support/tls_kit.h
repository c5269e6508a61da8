// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Common parts of the TLS tests: a loop with a type for servers and one for clients, peers on plain
// OpenSSL, and a relay that modifies the bytes passing through.
#if AECONN_TLS

#include <openssl/ssl.h>

#include <atomic>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "conn/tcp/tcp_type.h"
#include "conn/tls/type.h"
#include "tests/support/any_loop.h"
#include "tests/support/certificates.h"
#include "tests/support/raw_socket.h"
#include "tests/support/testing.h"

namespace testing {

// --- connections of this library -----------------------------------------------------------------

/// A certificate for localhost, and tls over tcp on one loop: one type for servers with the
/// certificate, and one for clients that trust its CA.
struct TlsSite {
  explicit TlsSite(const conn::Options& server_options = {},
                   const conn::Options& client_options = {});

  /// Listens on a free port; `options` are added to its URL.
  conn::ListenerPtr listen(const conn::Options& options = {});
  /// Starts a connect; `options` are added to the URL.
  conn::ConnectionPtr start(const conn::Endpoint& to, const conn::Options& options = {},
                            conn::Connection::Handler done = {});
  /// Connects and waits for the connect handler. The test has to check for success.
  conn::ConnectionPtr connect(const conn::Endpoint& to, const conn::Options& options = {});
  conn::ConnectionPtr connect(const conn::Listener& to, const conn::Options& options = {}) {
    return connect(address_of(to), options);
  }
  /// The options cert and key.
  conn::Options options_of(const Identity& of) const {
    return {{"cert", of.chain}, {"key", of.key}};
  }
  /// Waits for the next connection from a listener's accept handler.
  conn::ConnectionPtr next_accepted();
  /// Waits for the next failed handshake that a listener reports.
  conn::Failure next_refused();
  /// Checks that a connection carries bytes in both directions.
  void require_echo(conn::Connection& a, conn::Connection& b);

  TempFolder folder;
  Authority ca{folder};
  Identity identity =
      ca.issue({.common_name = "server", .names = {"DNS:localhost", "IP:127.0.0.1"}});
  conn::tcp::TcpType tcp;
  conn::tls::TlsType server{tcp}, client{tcp};
  testing::AnyLoop loop;
  std::vector<conn::ConnectionPtr> accepted;
  std::vector<conn::Failure> refused;
};

/// Two ends of a TLS connection.
struct TlsPair : TlsSite {
  explicit TlsPair(const conn::Options& server_options = {},
                   const conn::Options& client_options = {});
  conn::ListenerPtr listener;
  conn::ConnectionPtr a, b;  ///< a: the client's end, b: the server's
};

/// The value of info() for `key`; "(none)" if there is none.
std::string info_of(const conn::Connection& connection, std::string_view key);
/// Runs the loop until the connection is readable; returns bytes, "(end)", or "(error: ...)".
std::string read_event(ae::EventLoop& loop, conn::Connection& connection);

/// Remembers the number of connections and descriptors for a later comparison.
struct Held {
  explicit Held(TlsSite& site);
  /// Runs the loop until the numbers are the same again.
  void require_same();
  TlsSite& site;
  std::size_t servers, clients, below, descriptors = 0;
};

// --- work on another thread ----------------------------------------------------------------------

/// Runs `work` on a thread while the loop runs, until it has returned. Catch2's macros must not be
/// used on that thread; an exception is rethrown here.
void run_aside(ae::EventLoop& loop, const std::function<void()>& work);
template <class Work>
auto aside(ae::EventLoop& loop, Work work) {
  using Result = decltype(work());
  if constexpr (std::is_void_v<Result>) {
    run_aside(loop, work);
  } else {
    std::optional<Result> result;
    run_aside(loop, [&] { result.emplace(work()); });
    return std::move(*result);
  }
}

/// As RUN_UNTIL, but polls: for conditions that change without an event of this loop.
void look_until(ae::EventLoop& loop, const std::function<bool()>& condition, std::string_view what);
#define LOOK_UNTIL(loop, ...) \
  ::testing::look_until(      \
      loop, [&] { return (__VA_ARGS__); }, #__VA_ARGS__)

// --- peers on plain OpenSSL ----------------------------------------------------------------------

/// An SSL_CTX with security level 0 and all versions from 1.2 on, so that tests can use weak
/// parameters.
class RawContext {
 public:
  static RawContext server(const Identity& identity);
  /// Without a CA the client does not verify certificates.
  static RawContext client(const std::string& ca = {});
  SSL_CTX* get() const noexcept { return context_.get(); }

  void set_versions(int min, int max);
  void use(const Identity& identity);
  /// Keeps the sessions that it receives, the newest last.
  std::shared_ptr<std::vector<std::shared_ptr<SSL_SESSION>>> keep_sessions();

 private:
  explicit RawContext(const SSL_METHOD* method);
  std::shared_ptr<SSL_CTX> context_;
};

/// OpenSSL in memory, transferred over a blocking socket. Throws if the socket fails.
class RawTls {
 public:
  RawTls(const RawContext& context, RawSocket socket);
  RawTls(RawTls&&) noexcept;
  RawTls& operator=(RawTls&&) = delete;
  ~RawTls();

  /// Handshake; true when complete, false if it failed or after this many own flights. `with_last`
  /// is data that is sent together with the last flight.
  bool handshake(int flights = 1000, std::string_view with_last = {});
  /// Sends everything; false if TLS failed.
  bool send(std::string_view bytes);
  /// Receives `size` bytes, or fewer at the end; then ended_cleanly() and failed() say why.
  std::string receive(std::size_t size);
  /// Processes messages without data: tickets, KeyUpdates. Reads at least once from the socket.
  void take_messages();
  void close_notify();

  SSL* ssl() const noexcept { return ssl_; }
  RawSocket& socket() noexcept { return socket_; }
  bool ended_cleanly() const noexcept { return clean_; }  ///< close_notify was received
  bool cut() const noexcept { return cut_; }              ///< the socket ended
  bool failed() const noexcept { return failed_; }
  const std::string& alert() const noexcept { return alert_; }  ///< the last one received
  bool resumed() const noexcept { return SSL_session_reused(ssl_) == 1; }
  /// Returns the bytes that would be sent next, without sending them.
  std::string take_outgoing();
  void flush();

 private:
  bool fill();
  bool goes_on(int result);
  static void on_info(const SSL* ssl, int where, int value);

  RawSocket socket_;
  SSL* ssl_;
  bool clean_ = false, cut_ = false, failed_ = false;
  std::string alert_;
};

// --- relay ---------------------------------------------------------------------------------------

/// Forwards bytes between its client and `to`, on a thread of its own.
class Relay {
 public:
  explicit Relay(const conn::Endpoint& to);
  ~Relay();
  Relay(const Relay&) = delete;
  Relay& operator=(const Relay&) = delete;

  conn::Endpoint endpoint() const { return listening_.endpoint(); }
  /// Flips one bit of the last byte that the client (or the server) sends next.
  void flip_from_client() noexcept { flip_client_ = true; }
  void flip_from_server() noexcept { flip_server_ = true; }
  /// Closes both sockets in order, but without close_notify.
  void cut() noexcept { cut_ = true; }
  std::string seen_from_client() const;

 private:
  void run(conn::Endpoint to);
  RawSocket listening_;
  std::atomic<bool> flip_client_{false}, flip_server_{false}, cut_{false}, over_{false};
  mutable std::mutex mutex_;
  std::string seen_;
  std::thread thread_;
};

}  // namespace testing

#endif  // AECONN_TLS
