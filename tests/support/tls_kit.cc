// SPDX-License-Identifier: BSD-3-Clause
#if AECONN_TLS
#include "tests/support/tls_kit.h"

#include <openssl/err.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <stdexcept>

#include "tests/support/catch.h"
#include "tests/support/loop_kit.h"
#include "tests/support/pass_descriptors.h"

namespace testing {

using conn::Connection;
using conn::ConnectionPtr;
using conn::Endpoint;
using conn::Failure;
using conn::ListenerPtr;
using conn::Options;

// --- connections of this library -----------------------------------------------------------------

TlsSite::TlsSite(const Options& server_options, const Options& client_options) {
  server.configure(options_of(identity).merged_with(server_options));
  client.configure(Options{{"ca", ca.cert()}}.merged_with(client_options));
}

ListenerPtr TlsSite::listen(const Options& options) {
  Endpoint where = Endpoint::parse("tls://127.0.0.1:0");
  where.options = options;
  ListenerPtr listener =
      server.listen(loop, where, [this](ConnectionPtr one) { accepted.push_back(std::move(one)); });
  listener->on_refused([this](const Failure& why) { refused.push_back(why); });
  return listener;
}

ConnectionPtr TlsSite::start(const Endpoint& to, const Options& options, Connection::Handler done) {
  Endpoint where = to;
  where.scheme = "tls";
  where.options = options;
  ConnectionPtr connection = client.create(loop);
  connection->connect(where, std::move(done));
  return connection;
}

ConnectionPtr TlsSite::connect(const Endpoint& to, const Options& options) {
  bool done = false;
  ConnectionPtr connection = start(to, options, [&](Connection&) { done = true; });
  RUN_UNTIL(loop, done);
  return connection;
}

ConnectionPtr TlsSite::next_accepted() {
  RUN_UNTIL(loop, !accepted.empty());
  ConnectionPtr first = std::move(accepted.front());
  accepted.erase(accepted.begin());
  return first;
}

Failure TlsSite::next_refused() {
  RUN_UNTIL(loop, !refused.empty());
  Failure first = std::move(refused.front());
  refused.erase(refused.begin());
  return first;
}

void TlsSite::require_echo(Connection& a, Connection& b) {
  send(loop, a, "ping");
  REQUIRE(receive(loop, b, 4) == "ping");
  send(loop, b, "pong");
  REQUIRE(receive(loop, a, 4) == "pong");
}

TlsPair::TlsPair(const Options& server_options, const Options& client_options)
    : TlsSite(server_options, client_options) {
  listener = listen();
  a = connect(*listener);
  INFO("connect: " << a->last_error());
  REQUIRE(a->state() == conn::State::kConnected);
  b = next_accepted();
}

std::string info_of(const Connection& connection, std::string_view key) {
  for (const auto& [name, value] : connection.info()) {
    if (name == key) return value;
  }
  return "(none)";
}

std::string read_event(ae::EventLoop& loop, Connection& connection) {
  std::string got;
  connection.set_read_handler([&](Connection& c) {
    char buffer[64 << 10];
    const ssize_t n = c.read(buffer, sizeof buffer);
    if (n < 0 && errno == EAGAIN) return;
    got = n > 0    ? std::string(buffer, static_cast<std::size_t>(n))
          : n == 0 ? "(end)"
                   : "(error: " + c.last_error() + ")";
    c.set_read_handler(nullptr);
  });
  RUN_UNTIL(loop, !got.empty());
  return got;
}

namespace {

// An EpollLoop opens a timerfd once it has slept many times before one timer expires. This makes it
// do so now, so that the descriptors that are counted next are all that the loop ever has.
void open_all_descriptors(ae::EventLoop& loop) {
  const ae::TimerId far = loop.add_time_event(std::chrono::hours(1), [] { return ae::kNoMore; });
  const int always = ::eventfd(1, EFD_CLOEXEC | EFD_NONBLOCK);
  REQUIRE(always >= 0);
  loop.add_file_event(always, ae::kReadable, [](int, ae::Mask) {});
  for (int i = 0; i < 100; ++i) loop.process_events(ae::kFullIteration);
  loop.remove_file_event(always, ae::kReadable);
  ::close(always);
  loop.remove_time_event(far);
}

}  // namespace

Held::Held(TlsSite& its_site)
    : site(its_site),
      servers(site.server.counters(site.loop).open),
      clients(site.client.counters(site.loop).open),
      below(site.tcp.counters(site.loop).open) {
  open_all_descriptors(site.loop);
  descriptors = count_descriptors();
}

void Held::require_same() {
  RUN_UNTIL(site.loop, site.server.counters(site.loop).open == servers);
  RUN_UNTIL(site.loop, site.client.counters(site.loop).open == clients);
  RUN_UNTIL(site.loop, site.tcp.counters(site.loop).open == below);
  LOOK_UNTIL(site.loop, count_descriptors() == descriptors);
}

// --- work on another thread ----------------------------------------------------------------------

void run_aside(ae::EventLoop& loop, const std::function<void()>& work) {
  const auto done = std::make_shared<bool>(false);
  std::exception_ptr error;
  std::thread thread([&, poster = loop.poster()] {
    try {
      work();
    } catch (...) {
      error = std::current_exception();
    }
    ERR_clear_error();
    poster.post([done] { *done = true; });
  });
  struct Join {
    std::thread& thread;
    ~Join() { thread.join(); }
  };
  {
    const Join join{thread};
    run_until(
        loop, [&] { return *done; }, "a peer on a thread", patience() + 5s);
  }
  if (error) std::rethrow_exception(error);
}

void look_until(ae::EventLoop& loop, const std::function<bool()>& condition,
                std::string_view what) {
  struct Ticks {
    explicit Ticks(ae::EventLoop& its_loop)
        : loop(its_loop), timer(loop.add_time_event(1ms, [] { return ae::Duration(1ms); })) {}
    ~Ticks() { loop.remove_time_event(timer); }
    ae::EventLoop& loop;
    ae::TimerId timer;
  };
  const Ticks ticks(loop);
  run_until(loop, condition, what);
}

// --- peers on plain OpenSSL ----------------------------------------------------------------------

namespace {

void require(bool good, const char* what) {
  if (good) return;
  const char* reason = ERR_reason_error_string(ERR_peek_error());
  const std::string text = reason != nullptr ? reason : "no reason";
  ERR_clear_error();
  throw std::runtime_error(std::string(what) + ": " + text);
}

}  // namespace

RawContext::RawContext(const SSL_METHOD* method) : context_(SSL_CTX_new(method), SSL_CTX_free) {
  require(context_ != nullptr, "SSL_CTX_new");
  SSL_CTX_set_security_level(get(), 0);
  set_versions(TLS1_2_VERSION, TLS1_3_VERSION);
}

RawContext RawContext::server(const Identity& identity) {
  RawContext made(TLS_server_method());
  made.use(identity);
  return made;
}

RawContext RawContext::client(const std::string& ca) {
  RawContext made(TLS_client_method());
  if (!ca.empty()) {
    require(SSL_CTX_load_verify_file(made.get(), ca.c_str()) == 1, "load the CA");
    SSL_CTX_set_verify(made.get(), SSL_VERIFY_PEER, nullptr);
  }
  return made;
}

void RawContext::set_versions(int min, int max) {
  SSL_CTX_set_min_proto_version(get(), min);
  SSL_CTX_set_max_proto_version(get(), max);
}

void RawContext::use(const Identity& identity) {
  require(SSL_CTX_use_certificate_chain_file(get(), identity.chain.c_str()) == 1, "certificate");
  require(SSL_CTX_use_PrivateKey_file(get(), identity.key.c_str(), SSL_FILETYPE_PEM) == 1, "key");
}

std::shared_ptr<std::vector<std::shared_ptr<SSL_SESSION>>> RawContext::keep_sessions() {
  using Sessions = std::vector<std::shared_ptr<SSL_SESSION>>;
  const auto kept = std::make_shared<Sessions>();
  SSL_CTX_set_app_data(get(), kept.get());
  SSL_CTX_set_session_cache_mode(get(), SSL_SESS_CACHE_CLIENT | SSL_SESS_CACHE_NO_INTERNAL);
  SSL_CTX_sess_set_new_cb(get(), [](SSL* ssl, SSL_SESSION* session) {
    auto& sessions = *static_cast<Sessions*>(SSL_CTX_get_app_data(SSL_get_SSL_CTX(ssl)));
    sessions.emplace_back(session, SSL_SESSION_free);
    return 1;
  });
  return kept;
}

RawTls::RawTls(const RawContext& context, RawSocket socket)
    : socket_(std::move(socket)), ssl_(SSL_new(context.get())) {
  require(ssl_ != nullptr, "SSL_new");
  SSL_set_bio(ssl_, BIO_new(BIO_s_mem()), BIO_new(BIO_s_mem()));
  SSL_set_app_data(ssl_, this);
  SSL_set_info_callback(ssl_, &RawTls::on_info);
  if (SSL_is_server(ssl_) == 1) {
    SSL_set_accept_state(ssl_);
  } else {
    SSL_set_connect_state(ssl_);
  }
}

RawTls::RawTls(RawTls&& other) noexcept
    : socket_(std::move(other.socket_)),
      ssl_(std::exchange(other.ssl_, nullptr)),
      clean_(other.clean_),
      cut_(other.cut_),
      failed_(other.failed_),
      alert_(std::move(other.alert_)) {
  if (ssl_ != nullptr) SSL_set_app_data(ssl_, this);
}

RawTls::~RawTls() {
  if (ssl_ == nullptr) return;
  // Otherwise OpenSSL invalidates the session for everything that still holds it.
  SSL_set_shutdown(ssl_, SSL_SENT_SHUTDOWN | SSL_RECEIVED_SHUTDOWN);
  SSL_free(ssl_);
}

void RawTls::on_info(const SSL* ssl, int where, int value) {
  if ((where & SSL_CB_READ_ALERT) != SSL_CB_READ_ALERT) return;
  static_cast<RawTls*>(SSL_get_app_data(ssl))->alert_ = SSL_alert_desc_string_long(value);
}

std::string RawTls::take_outgoing() {
  std::string bytes(static_cast<std::size_t>(BIO_pending(SSL_get_wbio(ssl_))), '\0');
  if (!bytes.empty()) BIO_read(SSL_get_wbio(ssl_), bytes.data(), static_cast<int>(bytes.size()));
  return bytes;
}

void RawTls::flush() {
  const std::string bytes = take_outgoing();
  if (!bytes.empty()) socket_.send(bytes);
}

/// Reads once from the socket; false at its end.
bool RawTls::fill() {
  std::array<char, 64 << 10> buffer;
  const ssize_t n = ::recv(socket_.fd(), buffer.data(), buffer.size(), 0);
  if (n < 0 && errno != ECONNRESET) {
    throw std::system_error(errno, std::generic_category(), "the raw peer's recv");
  }
  cut_ = n <= 0;
  if (n > 0) BIO_write(SSL_get_rbio(ssl_), buffer.data(), static_cast<int>(n));
  return !cut_;
}

/// After an unsuccessful call: whether it may be repeated.
bool RawTls::goes_on(int result) {
  const int error = SSL_get_error(ssl_, result);
  ERR_clear_error();
  try {
    flush();
  } catch (const std::system_error&) {
    cut_ = true;  // a read may still report why
  }
  switch (error) {
    case SSL_ERROR_WANT_READ:
      return fill();
    case SSL_ERROR_WANT_WRITE:
      return true;
    case SSL_ERROR_ZERO_RETURN:
      clean_ = true;
      return false;
    default:
      failed_ = true;
      return false;
  }
}

bool RawTls::handshake(int flights, std::string_view with_last) {
  for (int sent = 0;;) {
    ERR_clear_error();
    const int result = SSL_do_handshake(ssl_);
    if (BIO_pending(SSL_get_wbio(ssl_)) > 0 && sent++ == flights) return false;
    if (result == 1) {
      if (!with_last.empty()) SSL_write(ssl_, with_last.data(), static_cast<int>(with_last.size()));
      flush();
      return true;
    }
    if (sent == flights && SSL_get_error(ssl_, result) == SSL_ERROR_WANT_READ) {
      flush();
      return false;
    }
    if (!goes_on(result)) return false;
  }
}

bool RawTls::send(std::string_view bytes) {
  while (!bytes.empty()) {
    ERR_clear_error();
    const int n = SSL_write(ssl_, bytes.data(), static_cast<int>(bytes.size()));
    if (n > 0) {
      flush();
      bytes.remove_prefix(static_cast<std::size_t>(n));
    } else if (!goes_on(n)) {
      return false;
    }
  }
  return true;
}

std::string RawTls::receive(std::size_t size) {
  std::string bytes(size, '\0');
  std::size_t got = 0;
  while (got < size) {
    ERR_clear_error();
    const int n = SSL_read(ssl_, bytes.data() + got, static_cast<int>(size - got));
    if (n > 0) {
      got += static_cast<std::size_t>(n);
    } else if (!goes_on(n)) {
      break;
    }
  }
  bytes.resize(got);
  return bytes;
}

void RawTls::take_messages() {
  if (!fill()) return;
  char byte;
  ERR_clear_error();
  (void)SSL_peek(ssl_, &byte, 1);
  ERR_clear_error();
  flush();
}

void RawTls::close_notify() {
  ERR_clear_error();
  (void)SSL_shutdown(ssl_);
  flush();
}

// --- relay ---------------------------------------------------------------------------------------

Relay::Relay(const Endpoint& to) : listening_(RawSocket::listening()) {
  thread_ = std::thread([this, to] {
    try {
      run(to);
    } catch (const std::exception&) {  // an end has closed: the relay ends, too
    }
  });
}

Relay::~Relay() {
  over_ = true;
  thread_.join();
}

std::string Relay::seen_from_client() const {
  const std::lock_guard lock(mutex_);
  return seen_;
}

void Relay::run(Endpoint to) {
  pollfd arrival{listening_.fd(), POLLIN, 0};
  while (::poll(&arrival, 1, 5) == 0) {
    if (over_) return;
  }
  const RawSocket client = listening_.accept();
  const RawSocket server = RawSocket::connect(to);
  std::array<pollfd, 2> ends{{{client.fd(), POLLIN, 0}, {server.fd(), POLLIN, 0}}};
  std::array<char, 64 << 10> buffer;
  while (!over_) {
    if (cut_) {
      client.half_close();
      server.half_close();
      return;
    }
    if (::poll(ends.data(), ends.size(), 5) <= 0) continue;
    for (const bool from_client : {true, false}) {
      pollfd& from = ends[from_client ? 0 : 1];
      if (from.revents == 0) continue;
      const RawSocket& other = from_client ? server : client;
      const ssize_t n = ::recv(from.fd, buffer.data(), buffer.size(), 0);
      if (n <= 0) {
        other.half_close();
        from.fd = -1;
        continue;
      }
      const auto size = static_cast<std::size_t>(n);
      if ((from_client ? flip_client_ : flip_server_).exchange(false)) {
        buffer[size - 1] = static_cast<char>(buffer[size - 1] ^ 1);
      }
      if (from_client) {
        const std::lock_guard lock(mutex_);
        seen_.append(buffer.data(), size);
      }
      other.send({buffer.data(), size});
    }
  }
}

}  // namespace testing

#endif  // AECONN_TLS
