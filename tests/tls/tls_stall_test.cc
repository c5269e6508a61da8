// SPDX-License-Identifier: BSD-3-Clause
// conn/tls: peers that stop in the middle of a handshake and stay connected, after each single
// byte; and other things that a peer could make grow. Over the memory transport, thousands at once.
#if AECONN_TLS

#include <memory>
#include <string>
#include <vector>

#include "conn/tls/type.h"
#include "tests/support/catch.h"
#include "tests/support/engine_pair.h"
#include "tests/support/memory_transport.h"
#include "tests/support/tls_kit.h"

using conn::Connection;
using conn::ConnectionPtr;
using conn::Endpoint;
using conn::Failure;
using conn::State;
using conn::tls::Errc;
using conn::tls::TlsType;
using testing::Engine;
using testing::Engines;
using testing::Pipe;
using testing::PipeWire;
using testing::Role;
using testing::TlsSite;

namespace {

constexpr std::size_t kSignatures = 8;

/// A peer that stops its handshake after sending `budget` bytes, and stays connected.
class Miser {
 public:
  Miser(std::shared_ptr<const conn::tls::Context> context, Role role, std::size_t budget)
      : context_(std::move(context)),
        engine_(role == Role::kServer ? context_->server() : context_->client(), role, wire_),
        budget_(budget) {
    if (role == Role::kClient) context_->prepare_client(engine_, "localhost", "memory");
  }
  void begin(ConnectionPtr raw) {
    raw_ = std::move(raw);
    start(*raw_);
  }
  void connect(conn::ConnectionType& type, ae::EventLoop& loop, const Endpoint& to) {
    raw_ = type.create(loop);
    raw_->connect(to, [this](Connection& c) {
      if (c.state() == State::kConnected) start(c);
    });
  }
  std::size_t sent() const noexcept { return sent_; }

 private:
  void start(Connection& raw) {
    raw.set_read_handler([this](Connection& c) {
      char buffer[4096];
      const ssize_t n = c.read(buffer, sizeof buffer);
      if (n < 0 && errno == EAGAIN) return;
      if (n <= 0) return c.set_read_handler(nullptr);
      in_.bytes.insert(in_.bytes.end(), buffer, buffer + n);
      go_on(c);
    });
    go_on(raw);
  }
  void go_on(Connection& raw) {
    (void)engine_.handshake();
    const std::size_t size = std::min(out_.bytes.size(), budget_ - sent_);
    const std::string bytes(out_.bytes.begin(),
                            out_.bytes.begin() + static_cast<std::ptrdiff_t>(size));
    out_.bytes.clear();
    const ssize_t n = raw.write(bytes.data(), bytes.size());
    if (n > 0) sent_ += static_cast<std::size_t>(n);
  }

  const std::shared_ptr<const conn::tls::Context> context_;
  Pipe in_, out_;
  PipeWire wire_{in_, out_};
  Engine engine_;
  const std::size_t budget_;
  std::size_t sent_ = 0;
  ConnectionPtr raw_;
};

/// tls over memory with one version and no resumption: all handshakes have the same messages.
struct Crowd {
  explicit Crowd(const std::string& its_version) : version(its_version) {
    const conn::Options options{{"min-version", version},
                                {"max-version", version},
                                {"resumption", "no"},
                                {"handshake-timeout", "2s"},
                                {"max-handshakes", "100000"}};
    tls.configure(testing::test_tls_options("localhost").merged_with(options));
    context = Engines::context_of(options);
  }
  std::uint64_t statistic(ae::EventLoop& loop, std::string_view wanted) const {
    for (const auto& [name, value] : tls.statistics(loop)) {
      if (name == wanted) return value;
    }
    FAIL("there is no counter " << wanted);
    return 0;
  }

  const std::string version;
  conn::memory::MemoryType memory{{.backlog = 100'000}};
  TlsType tls{memory};
  std::shared_ptr<const conn::tls::Context> context;
  conn::ListenerPtr listener;
  std::vector<ConnectionPtr> accepted;
  std::vector<Failure> told;
  std::vector<std::unique_ptr<Miser>> misers;
};

}  // namespace

TEST_CASE("tls stall: a client may stop after any byte; a server waits for it only so long",
          "[tls][damage][hostile]") {
  Crowd crowds[] = {Crowd("1.2"), Crowd("1.3")};
  testing::AnyLoop loop;
  for (Crowd& crowd : crowds) {
    CAPTURE(crowd.version);
    crowd.listener =
        crowd.tls.listen(loop, Endpoint::parse("tls+memory://x"),
                         [&crowd](ConnectionPtr one) { crowd.accepted.push_back(std::move(one)); });
    crowd.listener->on_refused([&crowd](const Failure& why) { crowd.told.push_back(why); });
    const Endpoint to = Endpoint::parse("memory://x");
    const auto join = [&](std::size_t budget) {
      crowd.misers.push_back(std::make_unique<Miser>(crowd.context, Role::kClient, budget));
      crowd.misers.back()->connect(crowd.memory, loop, to);
    };
    join(SIZE_MAX);
    RUN_UNTIL(loop, crowd.accepted.size() == 1);
    const std::size_t all = crowd.misers.front()->sent();
    REQUIRE(all > 200);
    for (std::size_t budget = 0; budget < all; ++budget) join(budget);
  }
  for (Crowd& crowd : crowds) {
    CAPTURE(crowd.version);
    const std::size_t stalled = crowd.misers.size() - 1;
    RUN_UNTIL(loop, crowd.told.size() == stalled);
    for (const Failure& why : crowd.told) REQUIRE(why.code == Errc::kTimeout);
    REQUIRE(crowd.accepted.size() == 1);
    REQUIRE(crowd.statistic(loop, "handshake_timeouts") == stalled);
    REQUIRE(crowd.statistic(loop, "handshaking") == 0);
    RUN_UNTIL(loop, crowd.statistic(loop, "open") == 1);
  }
}

TEST_CASE("tls stall: a server may stop after any byte; a client waits for it only so long",
          "[tls][damage][hostile]") {
  Crowd crowds[] = {Crowd("1.2"), Crowd("1.3")};
  testing::AnyLoop loop;
  for (Crowd& crowd : crowds) {
    CAPTURE(crowd.version);
    std::vector<ConnectionPtr> clients;
    std::size_t over = 0;
    crowd.listener =
        crowd.memory.listen(loop, Endpoint::parse("memory://x"), [&](ConnectionPtr raw) {
          // The first one completes; each other one stops one byte later than the one before it.
          const std::size_t budget = crowd.misers.empty() ? SIZE_MAX : crowd.misers.size() - 1;
          crowd.misers.push_back(std::make_unique<Miser>(crowd.context, Role::kServer, budget));
          crowd.misers.back()->begin(std::move(raw));
        });
    const auto join = [&] {
      clients.push_back(crowd.tls.create(loop));
      clients.back()->connect(Endpoint::parse("tls+memory://x"), [&](Connection&) { ++over; });
    };
    join();
    RUN_UNTIL(loop, over == 1);
    INFO(clients.front()->last_error());
    REQUIRE(clients.front()->state() == State::kConnected);
    const std::size_t all = crowd.misers.front()->sent();
    REQUIRE(all > 500);
    while (clients.size() <= all) join();
    RUN_UNTIL(loop, over == all + 1);
    for (std::size_t i = 1; i < clients.size(); ++i) {
      CAPTURE(i, clients[i]->last_error());
      // Signatures vary in length by a few bytes: the last ones may have sent everything.
      if (i + kSignatures > clients.size() && clients[i]->state() == State::kConnected) continue;
      REQUIRE(clients[i]->state() == State::kError);
      REQUIRE(clients[i]->error_code() == Errc::kTimeout);
    }
    REQUIRE(crowd.statistic(loop, "handshake_timeouts") + kSignatures > all);
    REQUIRE(crowd.statistic(loop, "handshaking") == 0);
    clients.clear();
    crowd.misers.clear();
    RUN_UNTIL(loop, crowd.statistic(loop, "open") == 0);
  }
}

// --- resources that a peer could make grow -------------------------------------------------------

TEST_CASE("tls limits: a server keeps session-cache sessions and counts those it drops",
          "[tls][hostile][limits]") {
  const std::string version = GENERATE(as<std::string>{}, "1.2", "1.3");
  CAPTURE(version);
  TlsSite site({{"resumption", "cache"}, {"session-cache", "3"}, {"max-version", version}},
               {{"resumption", "no"}});
  const conn::ListenerPtr listener = site.listen();
  for (int i = 0; i < 10; ++i) {
    const ConnectionPtr client = site.connect(*listener);
    REQUIRE(client->state() == State::kConnected);
    const ConnectionPtr server = site.next_accepted();
    site.require_echo(*client, *server);
  }
  std::uint64_t kept = 0, dropped = 0;
  for (const auto& [name, value] : site.server.statistics(site.loop)) {
    if (name == "sessions") kept = value;
    if (name == "sessions_dropped") dropped = value;
  }
  REQUIRE((kept == 2 || kept == 3));  // OpenSSL removes sessions early
  REQUIRE(kept + dropped == 10);
  // Counters never decrease: neither at a reload nor when the listener with the cache is gone.
  const auto dropped_now = [&] {
    const conn::Statistics all = site.server.statistics(site.loop);
    return std::find_if(all.begin(), all.end(),
                        [](const auto& each) { return each.first == "sessions_dropped"; })
        ->second;
  };
  site.server.configure(
      site.options_of(site.identity)
          .merged_with(
              {{"resumption", "cache"}, {"session-cache", "3"}, {"max-version", version}}));
  REQUIRE(dropped_now() == dropped);
}

TEST_CASE("tls limits: a ClientHello that announces more than 128 KiB is refused at once",
          "[tls][hostile][limits]") {
  Engines both;
  const auto feed = [&](const std::string& bytes) {
    both.up.bytes.insert(both.up.bytes.end(), bytes.begin(), bytes.end());
  };
  const bool too_long = GENERATE(false, true);
  CAPTURE(too_long);
  // A record with the beginning of a message of 0x20300 (or 0x1f000) bytes.
  feed(std::string("\x16\x03\x01\x40\x00\x01", 6) +
       (too_long ? std::string("\x02\x03\x00", 3) : std::string("\x01\xf0\x00", 3)) +
       std::string(16384 - 4, 'x'));
  REQUIRE(both.server.handshake() == (too_long ? Engine::Step::kFailed : Engine::Step::kWantRead));
  if (too_long) REQUIRE(both.server.failure().code == Errc::kHandshake);
}

#endif  // AECONN_TLS
