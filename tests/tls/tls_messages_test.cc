// SPDX-License-Identifier: BSD-3-Clause
// conn/tls: messages after the handshake, manipulated records, and state of OpenSSL that
// connections must not share.
#if AECONN_TLS

#include <dlfcn.h>
#include <linux/tls.h>
#include <netinet/in.h>
#include <openssl/err.h>
#include <sys/socket.h>

#include <algorithm>
#include <atomic>
#include <cerrno>

#include "tests/support/catch.h"
#include "tests/support/tls_kit.h"

using conn::Connection;
using conn::ConnectionPtr;
using conn::Options;
using conn::State;
using conn::tls::Errc;
using testing::RawContext;
using testing::RawSocket;
using testing::RawTls;
using testing::TlsPair;
using testing::TlsSite;
using namespace std::chrono_literals;
using testing::Contains;

namespace {

/// While it lives, the kernel says to the calling thread that it encrypts what is sent (kernel
/// TLS), but sends it as it is.
class KernelThatOnlySaysItEncrypts {
 public:
  KernelThatOnlySaysItEncrypts() { there = true; }
  KernelThatOnlySaysItEncrypts(const KernelThatOnlySaysItEncrypts&) = delete;
  KernelThatOnlySaysItEncrypts& operator=(const KernelThatOnlySaysItEncrypts&) = delete;
  ~KernelThatOnlySaysItEncrypts() { there = false; }
  static thread_local bool there;
};
thread_local bool KernelThatOnlySaysItEncrypts::there = false;

/// An echoing connection in either role, with plain OpenSSL as its peer.
struct EchoHalf : TlsSite {
  EchoHalf(bool we_serve, int version) {
    RawContext context = we_serve ? RawContext::client() : RawContext::server(identity);
    context.set_versions(version, version);
    if (we_serve) {
      listener = listen();
      peer.emplace(testing::aside(loop, [&] {
        RawTls made(context, RawSocket::connect(testing::address_of(*listener)));
        (void)made.handshake();
        return made;
      }));
      ours = next_accepted();
    } else {
      const RawSocket listening = RawSocket::listening();
      ours = start(listening.endpoint());
      peer.emplace(testing::aside(loop, [&] {
        RawTls made(context, listening.accept());
        (void)made.handshake();
        return made;
      }));
      RUN_UNTIL(loop, ours->state() != State::kConnecting);
    }
    REQUIRE(ours->state() == State::kConnected);
    ours->set_read_handler([this](Connection& c) { on_readable(c); });
  }
  void on_readable(Connection& c) {
    char buffer[16 << 10];
    const ssize_t n = c.read(buffer, sizeof buffer);
    if (n < 0 && errno == EAGAIN) return;
    if (n <= 0) {
      over = true;
      c.set_read_handler(nullptr);
      return;
    }
    received.append(buffer, static_cast<std::size_t>(n));
    backlog.append(buffer, static_cast<std::size_t>(n));
    c.set_write_handler([this](Connection& w) {
      const ssize_t sent = w.write(backlog.data(), backlog.size());
      if (sent > 0) backlog.erase(0, static_cast<std::size_t>(sent));
      if (backlog.empty() || (sent < 0 && errno != EAGAIN)) w.set_write_handler(nullptr);
    });
  }
  conn::ListenerPtr listener;
  std::optional<RawTls> peer;
  ConnectionPtr ours;
  std::string received, backlog;
  std::atomic<bool> over{false};  // read by the peer's thread
};

}  // namespace

extern "C" __attribute__((weak)) int setsockopt(int fd, int level, int name, const void* value,
                                                socklen_t size) noexcept {
  constexpr int kTls = 282, kUpperProtocol = 31;  // SOL_TLS; TCP_ULP
  if (KernelThatOnlySaysItEncrypts::there) {
    if (level == IPPROTO_TCP && name == kUpperProtocol) return 0;
    if (level == kTls && name == TLS_TX) return 0;
  }
  using Function = int(int, int, int, const void*, socklen_t);
  static const auto real = reinterpret_cast<Function*>(dlsym(RTLD_NEXT, "setsockopt"));
  return real(fd, level, name, value, size);
}

// --- renegotiation -------------------------------------------------------------------------------

TEST_CASE("tls: nobody renegotiates with us in TLS 1.2", "[tls][messages]") {
  const bool we_serve = GENERATE(true, false);
  CAPTURE(we_serve);
  EchoHalf half(we_serve, TLS1_2_VERSION);
  const auto handshakes = [&] {
    const conn::tls::TlsType& type = we_serve ? half.server : half.client;
    for (const auto& [key, value] : type.statistics(half.loop)) {
      if (key == "handshakes") return value;
    }
    return std::uint64_t{0};
  };
  const std::string before = testing::info_of(*half.ours, "cipher");
  SSL* const ssl = half.peer->ssl();
  std::string echoed;
  bool asked = false;
  testing::aside(half.loop, [&] {
    if (half.peer->send("before")) echoed = half.peer->receive(6);
    asked = SSL_renegotiate(ssl) == 1;
    SSL_do_handshake(ssl);  // sends the request; the reply is read later
    half.peer->flush();
    (void)half.peer->handshake();
  });
  REQUIRE(echoed == "before");
  REQUIRE(asked);
  REQUIRE(SSL_num_renegotiations(ssl) <= 1);  // counts requests in some versions
  REQUIRE(SSL_total_renegotiations(ssl) <= 1);
  REQUIRE(handshakes() == 1);
  // Whether the connection continues is the peer's decision; this end must not be harmed.
  if (half.ours->state() == State::kConnected) {
    REQUIRE(testing::info_of(*half.ours, "cipher") == before);
  }
  REQUIRE(half.received == "before");
}

TEST_CASE("tls: after a refused renegotiation a connection still takes data", "[tls][messages]") {
  EchoHalf half(false, TLS1_2_VERSION);
  SSL* const ssl = half.peer->ssl();
  SSL_renegotiate(ssl);
  SSL_do_handshake(ssl);  // sends a HelloRequest
  half.peer->flush();
  // OpenSSL would fail on reading no_renegotiation, so the alert is read here instead.
  char answer[100];
  const ssize_t n = testing::aside(
      half.loop, [&] { return ::recv(half.peer->socket().fd(), answer, sizeof answer, 0); });
  REQUIRE(n > 5);
  REQUIRE(answer[0] == SSL3_RT_ALERT);
  SSL_write(ssl, "still here", 10);
  half.peer->flush();
  RUN_UNTIL(half.loop, half.received == "still here");
  REQUIRE(half.ours->state() == State::kConnected);
}

// --- KeyUpdate -----------------------------------------------------------------------------------

TEST_CASE("tls: bytes that the kernel encrypts count beside a peer's new keys", "[tls][messages]") {
  const KernelThatOnlySaysItEncrypts kernel;
  TlsSite site({{"ktls", "yes"}, {"resumption", "no"}});
  const conn::ListenerPtr listener = site.listen();
  RawContext context = RawContext::client();
  context.set_versions(TLS1_3_VERSION, TLS1_3_VERSION);
  RawTls peer = testing::aside(site.loop, [&] {
    RawTls made(context, RawSocket::connect(testing::address_of(*listener)));
    (void)made.handshake();
    return made;
  });
  const ConnectionPtr ours = site.next_accepted();
  REQUIRE(testing::info_of(*ours, "ktls") == "send");
  const bool gathered = GENERATE(false, true);
  const std::string bytes(16 << 10, 'x');
  constexpr std::size_t kSize = 1 << 20;  // MessageLimit::kPer
  for (int round = 0; round < 3; ++round) {
    CAPTURE(round, gathered);
    for (int i = 0; i < 50; ++i) {
      REQUIRE(SSL_key_update(peer.ssl(), SSL_KEY_UPDATE_NOT_REQUESTED) == 1);
      REQUIRE(peer.send("x"));
    }
    REQUIRE(testing::receive(site.loop, *ours, 50) == std::string(50, 'x'));
    std::size_t sent = 0;
    ours->set_write_handler([&](Connection& c) {
      const std::size_t size = std::min(bytes.size(), kSize - sent);
      const iovec halves[] = {{const_cast<char*>(bytes.data()), size / 2},
                              {const_cast<char*>(bytes.data()), size - size / 2}};
      const ssize_t n = gathered ? c.writev(halves, 2) : c.write(bytes.data(), size);
      if (n > 0) sent += static_cast<std::size_t>(n);
      if (sent == kSize || (n < 0 && errno != EAGAIN)) c.set_write_handler(nullptr);
    });
    REQUIRE(testing::aside(site.loop, [&] { return peer.socket().receive(kSize).size(); }) ==
            kSize);
  }
  REQUIRE(ours->state() == State::kConnected);
  // Without data between them there are still too many.
  for (int i = 0; i < 70; ++i) {
    REQUIRE(SSL_key_update(peer.ssl(), SSL_KEY_UPDATE_NOT_REQUESTED) == 1);
    REQUIRE(peer.send("x"));
  }
  // What arrives together with the message that is one too many can still be read.
  std::string got = "x";
  while (got.front() == 'x') {
    REQUIRE(peer.send("x"));
    got = testing::read_event(site.loop, *ours);
  }
  REQUIRE(ours->error_code() == Errc::kTooManyMessages);
}

TEST_CASE("tls: keys may change at any time in TLS 1.3", "[tls][messages]") {
  const bool we_serve = GENERATE(true, false);
  const int kind = GENERATE(SSL_KEY_UPDATE_NOT_REQUESTED, SSL_KEY_UPDATE_REQUESTED);
  CAPTURE(we_serve, kind);
  EchoHalf half(we_serve, TLS1_3_VERSION);
  std::string sent, back;
  testing::aside(half.loop, [&] {
    for (int i = 0; i < 20; ++i) {
      if (SSL_key_update(half.peer->ssl(), kind) != 1) return;
      const std::string piece(1000, static_cast<char>('a' + i));
      if (!half.peer->send(piece)) return;
      sent += piece;
      back += half.peer->receive(piece.size());
    }
  });
  REQUIRE(sent.size() == 20'000);
  REQUIRE(back == sent);
  REQUIRE(half.ours->state() == State::kConnected);
}

TEST_CASE("tls: keys that change in the middle of much data lose nothing", "[tls][messages]") {
  EchoHalf half(true, TLS1_3_VERSION);
  constexpr int kPieces = 30;
  const std::string piece(50'000, 'p');
  std::size_t back = 0;
  testing::aside(half.loop, [&] {
    for (int i = 0; i < kPieces; ++i) {
      (void)SSL_key_update(half.peer->ssl(), SSL_KEY_UPDATE_REQUESTED);
      if (!half.peer->send(piece)) return;
      back += half.peer->receive(piece.size()).size();
    }
  });
  REQUIRE(back == kPieces * piece.size());
  REQUIRE(half.received.size() == kPieces * piece.size());
}

TEST_CASE("tls: KeyUpdates without end are an error, and answers do not pile up",
          "[tls][messages]") {
  const bool we_serve = GENERATE(true, false);
  const int kind = GENERATE(SSL_KEY_UPDATE_NOT_REQUESTED, SSL_KEY_UPDATE_REQUESTED);
  CAPTURE(we_serve, kind);
  EchoHalf half(we_serve, TLS1_3_VERSION);
  testing::aside(half.loop, [&] {
    try {
      for (int i = 0; i < 20'000; ++i) {
        if (SSL_key_update(half.peer->ssl(), kind) != 1) return;
        if (SSL_do_handshake(half.peer->ssl()) != 1) return;
        half.peer->flush();
        if (half.over) return;
      }
    } catch (const std::system_error&) {  // this end has closed
    }
  });
  RUN_UNTIL(half.loop, half.over.load());
  CAPTURE(half.ours->last_error());
  REQUIRE(half.ours->state() == State::kError);
  REQUIRE(half.ours->error_code() == Errc::kTooManyMessages);
  REQUIRE_THAT(half.ours->last_error(), Contains("KeyUpdate"));
  REQUIRE(half.received.empty());
  const auto statistics = half.ours->type().statistics(half.loop);
  REQUIRE(std::count(statistics.begin(), statistics.end(),
                     std::pair<std::string, std::uint64_t>{"message_floods", 1}) == 1);
}

TEST_CASE("tls: 64 messages without data are not without end, and one more is", "[tls][messages]") {
  EchoHalf half(true, TLS1_3_VERSION);
  const auto update_keys = [&](int times) {
    testing::aside(half.loop, [&] {
      for (int i = 0; i < times; ++i) {
        (void)SSL_key_update(half.peer->ssl(), SSL_KEY_UPDATE_NOT_REQUESTED);
        (void)SSL_do_handshake(half.peer->ssl());
        half.peer->flush();
      }
    });
  };
  update_keys(64);
  testing::aside(half.loop, [&] { (void)half.peer->send("data"); });
  RUN_UNTIL(half.loop, half.received == "data" || half.over);
  CAPTURE(half.ours->last_error());
  REQUIRE_FALSE(half.over);
  update_keys(1);
  RUN_UNTIL(half.loop, half.over.load());
  REQUIRE(half.ours->error_code() == Errc::kTooManyMessages);
}

// --- early data ----------------------------------------------------------------------------------

TEST_CASE("tls: data in a client's first flight is ignored, and the handshake goes on",
          "[tls][messages]") {
  TlsSite site;
  const conn::ListenerPtr listener = site.listen();
  RawContext context = RawContext::client();
  const auto sessions = context.keep_sessions();
  const auto visit = [&](bool early) {
    std::optional<RawTls> peer;
    const bool connected = testing::aside(site.loop, [&] {
      peer.emplace(context, RawSocket::connect(testing::address_of(*listener)));
      if (early) {
        // The server did not offer it; a hostile client sends it anyway.
        SSL_SESSION* const session = sessions->back().get();
        SSL_SESSION_set_max_early_data(session, 16384);
        SSL_set_session(peer->ssl(), session);
        std::size_t written = 0;
        SSL_write_early_data(peer->ssl(), "too early", 9, &written);
        peer->flush();
      }
      return peer->handshake() && peer->send("in time");
    });
    REQUIRE(connected);
    const ConnectionPtr server = site.next_accepted();
    REQUIRE(testing::receive(site.loop, *server, 7) == "in time");
    server->write("x", 1);
    REQUIRE(testing::aside(site.loop, [&] { return peer->receive(1); }) == "x");
    char byte;
    REQUIRE(server->read(&byte, 1) == -1);
    REQUIRE(errno == EAGAIN);
    REQUIRE(server->bytes_read() == 7);
    return SSL_get_early_data_status(peer->ssl());
  };
  REQUIRE(visit(false) == SSL_EARLY_DATA_NOT_SENT);
  REQUIRE(sessions->size() == 1);
  REQUIRE(SSL_SESSION_get_max_early_data(sessions->back().get()) == 0);
  REQUIRE(visit(true) == SSL_EARLY_DATA_REJECTED);
}

// --- tampering -----------------------------------------------------------------------------------

TEST_CASE("tls: a bit that changes on the way ends the connection before any of it is read",
          "[tls][messages]") {
  const std::string version = GENERATE(as<std::string>{}, "1.2", "1.3");
  const bool from_client = GENERATE(true, false);
  CAPTURE(version, from_client);
  TlsSite site({{"max-version", version}});
  const conn::ListenerPtr listener = site.listen();
  testing::Relay relay(testing::address_of(*listener));
  const ConnectionPtr a = site.connect(relay.endpoint());
  REQUIRE(a->state() == State::kConnected);
  const ConnectionPtr b = site.next_accepted();
  site.require_echo(*a, *b);
  REQUIRE_THAT(relay.seen_from_client(), !Contains("ping"));
  Connection& sender = from_client ? *a : *b;
  Connection& receiver = from_client ? *b : *a;
  if (from_client) {
    relay.flip_from_client();
  } else {
    relay.flip_from_server();
  }
  testing::Collector at_receiver(receiver), at_sender(sender);
  REQUIRE(sender.write("a secret", 8) == 8);
  RUN_UNTIL(site.loop, at_receiver.over());
  CAPTURE(receiver.last_error());
  REQUIRE(receiver.error_code() == Errc::kProtocol);
  REQUIRE(at_receiver.bytes.empty());
  REQUIRE(receiver.bytes_read() == 4);  // of the echo
  // The other side learns the reason.
  RUN_UNTIL(site.loop, at_sender.over());
  CAPTURE(sender.last_error());
  REQUIRE(sender.error_code() == Errc::kProtocol);
  REQUIRE_THAT(sender.last_error(), Contains("alert \"bad record mac\""));
}

TEST_CASE("tls: records that may not be there end the connection", "[tls][messages]") {
  const int version = GENERATE(TLS1_2_VERSION, TLS1_3_VERSION);
  const std::string record = GENERATE(
      std::string("\x17\x03\x03\x41\x01", 5) + std::string(0x4101, 'x'),  // longer than allowed
      std::string("\x63\x03\x03\x00\x05hello", 10),                       // invalid type
      std::string("\x17\x05\x00\x00\x05hello", 10),                       // invalid version
      std::string("\x16\x03\x03\x00\x04\x00\x00\x00\x00", 9),             // plain, after the keys
      std::string("\x17\x03\x03\x00\x05hello", 10));                      // plain data
  CAPTURE(version, record.substr(0, 5));
  EchoHalf half(true, version);
  half.peer->socket().send(record);
  RUN_UNTIL(half.loop, half.over.load());
  CAPTURE(half.ours->last_error());
  REQUIRE(half.ours->error_code() == Errc::kProtocol);
  REQUIRE(half.received.empty());
}

// --- OpenSSL's error queue -----------------------------------------------------------------------

TEST_CASE("tls: errors that others left in OpenSSL's queue are not taken for ours",
          "[tls][messages]") {
  TlsSite site;
  const conn::ListenerPtr listener = site.listen();
  const auto soil = [] { ERR_raise(ERR_LIB_SSL, SSL_R_BAD_LENGTH); };
  // Runs before and after everything that the loop does.
  const ae::HookId before = site.loop.add_before_sleep(soil);
  const ae::HookId after = site.loop.add_after_sleep(soil);
  const ConnectionPtr a = site.connect(*listener);
  INFO(a->last_error());
  REQUIRE(a->state() == State::kConnected);
  const ConnectionPtr b = site.next_accepted();
  site.require_echo(*a, *b);
  char buffer[100];
  soil();
  REQUIRE(a->read(buffer, sizeof buffer) == -1);
  REQUIRE(errno == EAGAIN);
  REQUIRE(a->state() == State::kConnected);
  soil();
  REQUIRE(a->write("x", 1) == 1);
  const std::string much(1 << 20, 'm');
  ssize_t n = 0;
  do {
    soil();
    n = b->write(much.data(), much.size());
  } while (n > 0);
  REQUIRE(errno == EAGAIN);
  REQUIRE(b->state() == State::kConnected);
  soil();
  REQUIRE(b->read(buffer, sizeof buffer) <= 1);
  soil();
  REQUIRE(a->shutdown() == 0);
  REQUIRE(testing::read_event(site.loop, *b).substr(0, 1) != "(error");
  // And a failure is reported correctly.
  const RawSocket bad = RawSocket::connect(testing::address_of(*listener));
  bad.send("PING\r\n");
  REQUIRE_THAT(site.next_refused().text, !Contains("bad length"));
  site.loop.remove_hook(before);
  site.loop.remove_hook(after);
  ERR_clear_error();
}

TEST_CASE("tls: a connection that fails leaves nothing in OpenSSL's queue", "[tls][messages]") {
  TlsSite site;
  ERR_clear_error();
  const conn::ListenerPtr listener = site.listen();
  {
    const RawSocket bad = RawSocket::connect(testing::address_of(*listener));
    bad.send("PING\r\n");
    (void)site.next_refused();
  }
  REQUIRE(ERR_peek_error() == 0);
  {
    const ConnectionPtr wrong = site.connect(*listener, {{"server-name", "other.example"}});
    REQUIRE(wrong->error_code() == Errc::kVerification);
  }
  (void)site.next_refused();
  REQUIRE(ERR_peek_error() == 0);
  REQUIRE_THROWS(site.listen({{"cert", "/nowhere"}}));
  REQUIRE_THROWS(site.listen({{"ciphers", "NONSENSE"}}));
  REQUIRE(ERR_peek_error() == 0);
}

TEST_CASE("tls: a connection that dies in its peer's handler leaves the others alone",
          "[tls][messages]") {
  TlsPair pair;
  const ConnectionPtr c = pair.connect(*pair.listener);
  const ConnectionPtr d = pair.next_accepted();
  // In one iteration: a record that cannot be decrypted on one connection, data on the other.
  testing::Collector at_b(*pair.b), at_d(*d);
  const int fd = pair.a->fd();
  REQUIRE(fd >= 0);
  REQUIRE(::send(fd, "\x17\x03\x03\x00\x14xxxxxxxxxxxxxxxxxxxx", 25, MSG_NOSIGNAL) == 25);
  REQUIRE(c->write("fine", 4) == 4);
  RUN_UNTIL(pair.loop, at_b.over() && at_d.bytes == "fine");
  REQUIRE(pair.b->error_code() == Errc::kProtocol);
  REQUIRE(d->state() == State::kConnected);
  REQUIRE_FALSE(at_d.over());
}

#endif  // AECONN_TLS
