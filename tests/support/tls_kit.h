// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// What the tests of TLS share: a loop with a server's and a client's type, peers on bare OpenSSL,
// and a relay that changes what passes through.
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

// --- our own ends --------------------------------------------------------------------------------

/// A certificate for localhost, and tls over tcp on one loop: one type for servers, which have the
/// certificate, one for clients, which trust its CA.
struct TlsSite {
  explicit TlsSite(const conn::Options& server_options = {},
                   const conn::Options& client_options = {});

  /// On a free port; `options` go into its URL.
  conn::ListenerPtr listen(const conn::Options& options = {});
  /// Starts; `options` go into the URL.
  conn::ConnectionPtr start(const conn::Endpoint& to, const conn::Options& options = {},
                            conn::Connection::Handler done = {});
  /// Waits for the connect handler. Whether it succeeded is for the test to say.
  conn::ConnectionPtr connect(const conn::Endpoint& to, const conn::Options& options = {});
  conn::ConnectionPtr connect(const conn::Listener& to, const conn::Options& options = {}) {
    return connect(address_of(to), options);
  }
  /// cert and key.
  conn::Options options_of(const Identity& of) const {
    return {{"cert", of.chain}, {"key", of.key}};
  }
  /// Waits for the next connection that a listener gives away.
  conn::ConnectionPtr next_accepted();
  /// Waits for the next handshake that a listener tells of as failed.
  conn::Failure next_refused();
  /// A connection from `client` to `server` carries bytes both ways.
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

/// Two ends of one TLS connection.
struct TlsPair : TlsSite {
  explicit TlsPair(const conn::Options& server_options = {},
                   const conn::Options& client_options = {});
  conn::ListenerPtr listener;
  conn::ConnectionPtr a, b;  ///< the client's end, the server's
};

/// The value that info() has under `key`; "(none)" if it has none.
std::string info_of(const conn::Connection& connection, std::string_view key);
/// What a read handler would find: bytes, "(end)", or "(error: ...)"; runs the loop until then.
std::string read_event(ae::EventLoop& loop, conn::Connection& connection);

/// Connections and descriptors that exist now, to be compared with later.
struct Held {
  explicit Held(TlsSite& site);
  /// Runs the loop until there are as many again.
  void require_same();
  TlsSite& site;
  std::size_t servers, clients, below, descriptors;
};

// --- work beside the loop ------------------------------------------------------------------------

/// Runs `work` on a thread while the loop runs, until it has returned. Catch's macros are not for
/// that thread; what it throws is thrown here.
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

/// As RUN_UNTIL, for conditions of which no event of this loop tells.
void look_until(ae::EventLoop& loop, const std::function<bool()>& condition, std::string_view what);
#define LOOK_UNTIL(loop, ...) \
  ::testing::look_until(      \
      loop, [&] { return (__VA_ARGS__); }, #__VA_ARGS__)

// --- peers on bare OpenSSL -----------------------------------------------------------------------

/// Security level 0 and all versions from 1.2 on: what is weak or wrong is up to the test.
class RawContext {
 public:
  static RawContext server(const Identity& identity);
  /// Without a CA it trusts everybody.
  static RawContext client(const std::string& ca = {});
  SSL_CTX* get() const noexcept { return context_.get(); }

  void set_versions(int min, int max);
  void use(const Identity& identity);
  /// Keeps the sessions it is given; the newest last.
  std::shared_ptr<std::vector<std::shared_ptr<SSL_SESSION>>> keep_sessions();

 private:
  explicit RawContext(const SSL_METHOD* method);
  std::shared_ptr<SSL_CTX> context_;
};

/// OpenSSL on memory, carried over a blocking socket. Throws where the socket fails.
class RawTls {
 public:
  RawTls(const RawContext& context, RawSocket socket);
  RawTls(RawTls&&) noexcept;
  RawTls& operator=(RawTls&&) = delete;
  ~RawTls();

  /// True once it is done; false if it failed, or after this many flights of ours. `with_last` is
  /// data that goes out together with the last one.
  bool handshake(int flights = 1000, std::string_view with_last = {});
  /// All of it; false if TLS failed.
  bool send(std::string_view bytes);
  /// Exactly `size` bytes, or fewer at the end; then ended_cleanly() and failed() say which.
  std::string receive(std::size_t size);
  /// Takes what has come without data: tickets, KeyUpdates. At least one piece from the socket.
  void take_messages();
  void close_notify();

  SSL* ssl() const noexcept { return ssl_; }
  RawSocket& socket() noexcept { return socket_; }
  bool ended_cleanly() const noexcept { return clean_; }  ///< close_notify has come
  bool cut() const noexcept { return cut_; }              ///< the socket ended
  bool failed() const noexcept { return failed_; }
  const std::string& alert() const noexcept { return alert_; }  ///< the last one it was sent
  bool resumed() const noexcept { return SSL_session_reused(ssl_) == 1; }
  /// What it would send next, taken away.
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

// --- in between ----------------------------------------------------------------------------------

/// Carries bytes between whoever connects to it and `to`, on a thread of its own.
class Relay {
 public:
  explicit Relay(const conn::Endpoint& to);
  ~Relay();
  Relay(const Relay&) = delete;
  Relay& operator=(const Relay&) = delete;

  conn::Endpoint endpoint() const { return listening_.endpoint(); }
  /// Changes one bit of the last byte of what the client (or the server) sends next.
  void flip_from_client() noexcept { flip_client_ = true; }
  void flip_from_server() noexcept { flip_server_ = true; }
  /// Ends both sides, in order but without TLS's consent.
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
