// SPDX-License-Identifier: BSD-3-Clause
// Where TLS connections differ from others: records, unsent ciphertext, threads, reloads.
#if AECONN_TLS

#include <sys/uio.h>

#include <algorithm>
#include <thread>

#include "conn/error.h"
#include "tests/support/catch.h"
#include "tests/support/tls_kit.h"

using conn::Connection;
using conn::ConnectionPtr;
using conn::State;
using testing::RawContext;
using testing::RawSocket;
using testing::RawTls;
using testing::TlsPair;
using testing::TlsSite;
using namespace std::chrono_literals;

TEST_CASE("tls: a gathered write to a peer that wants small records loses nothing", "[tls]") {
  TlsSite site;
  const conn::ListenerPtr listener = site.listen();
  std::string sent;
  for (int i = 0; i < 3000; ++i) sent += std::to_string(i) + " ";
  std::thread client;
  std::string got;
  {
    const conn::Endpoint to = testing::address_of(*listener);
    client = std::thread([&, to] {
      RawTls peer(RawContext::client(), RawSocket::connect(to));
      SSL_set_tlsext_max_fragment_length(peer.ssl(), TLSEXT_max_fragment_length_512);
      if (peer.handshake()) got = peer.receive(sent.size());
    });
  }
  const ConnectionPtr server = site.next_accepted();
  std::size_t at = 0;
  server->set_write_handler([&](Connection& c) {
    // Pieces of all sizes, including empty ones.
    std::vector<iovec> pieces;
    std::size_t from = at;
    for (std::size_t size = 0; from < sent.size(); size = (size * 7 + 13) % 4001) {
      const std::size_t n = std::min(size, sent.size() - from);
      pieces.push_back({sent.data() + from, n});
      from += n;
    }
    const ssize_t n = c.writev(pieces.data(), static_cast<int>(pieces.size()));
    if (n > 0) at += static_cast<std::size_t>(n);
    if (at == sent.size()) c.set_write_handler(nullptr);
  });
  RUN_UNTIL(site.loop, at == sent.size());
  client.join();
  REQUIRE(got == sent);
}

TEST_CASE("tls: accepted here, served on another thread", "[tls]") {
  TlsSite site;
  std::atomic<bool> stop{false};
  std::atomic<int> served{0};
  ae::Poster to_worker;
  std::atomic<testing::AnyLoop*> worker_loop{nullptr};
  std::vector<ConnectionPtr> at_worker;  // used by the worker only
  std::thread worker([&] {
    testing::AnyLoop loop;
    to_worker = loop.poster();
    worker_loop = &loop;
    const ae::TimerId watch = loop.add_time_event(0s, [&] {
      if (stop) loop.stop();
      return ae::Duration(1ms);
    });
    loop.run();
    loop.remove_time_event(watch);
    at_worker.clear();
  });
  while (worker_loop == nullptr) std::this_thread::yield();
  constexpr int kClients = 20;
  bool moved = true;
  const conn::ListenerPtr listener = site.server.listen(
      site.loop, conn::Endpoint::parse("tls://127.0.0.1:0"), [&](ConnectionPtr accepted) {
        accepted->set_read_handler([&](Connection& c) {
          char buffer[100];
          const ssize_t n = c.read(buffer, sizeof buffer);
          if (n > 0) c.write(buffer, static_cast<std::size_t>(n));
          if (n > 0) ++served;
        });
        Connection* const raw = accepted.release();
        moved = raw->rebind(*worker_loop.load()) && moved;
        to_worker.post([&, raw] { at_worker.emplace_back(raw); });
      });
  std::vector<ConnectionPtr> clients;
  int answered = 0;
  for (int i = 0; i < kClients; ++i) {
    clients.push_back(
        site.start(testing::address_of(*listener), {}, [](Connection& c) { c.write("hello", 5); }));
    clients.back()->set_read_handler([&](Connection& c) {
      char buffer[100];
      if (c.read(buffer, sizeof buffer) == 5) ++answered;
    });
  }
  RUN_UNTIL(site.loop, answered == kClients);
  REQUIRE(moved);
  REQUIRE(served == kClients);
  stop = true;
  worker.join();
}

TEST_CASE("tls: sync_read gets the answer to what sync_write took, though it was not sent yet",
          "[tls]") {
  TlsSite site;
  constexpr std::size_t kSize = 12 << 20;
  // The server answers only when it has received everything.
  ConnectionPtr server;
  std::size_t received = 0;
  const auto read_all = [&](Connection& c) {
    static char buffer[20'000];
    const ssize_t n = c.read(buffer, sizeof buffer);
    if (n > 0) received += static_cast<std::size_t>(n);
    if (n > 0 && received == kSize) c.write("done", 4);
  };
  const conn::ListenerPtr listener = site.server.listen(
      site.loop, conn::Endpoint::parse("tls://127.0.0.1:0"), [&](ConnectionPtr accepted) {
        server = std::move(accepted);
        server->set_read_handler(read_all);
      });
  std::string problem = "none";
  testing::run_aside(site.loop, [&] {
    testing::AnyLoop own;
    const ConnectionPtr far = site.client.create(own);
    if (!far->connect_blocking(testing::address_of(*listener), 10s)) {
      problem = "connect: " + far->last_error();
      return;
    }
    const std::string bytes(kSize, 'x');
    for (std::size_t sent = 0; sent < kSize;) {
      const std::size_t n = std::min<std::size_t>(1 << 20, kSize - sent);
      if (far->sync_write(bytes.data(), n, 10s) != static_cast<ssize_t>(n)) {
        problem = "write: " + far->last_error();
        return;
      }
      sent += n;
    }
    char answer[4];
    if (far->sync_read(answer, 4, 10s) != 4) problem = "no answer: " + conn::errno_text(errno);
  });
  REQUIRE(problem == "none");
}

TEST_CASE("tls: options without a certificate do not reach a type that listens", "[tls]") {
  TlsSite site;
  const conn::ListenerPtr listener = site.listen();
  REQUIRE_THROWS_AS(site.server.configure({}), conn::Error);
  const ConnectionPtr client = site.connect(*listener);
  REQUIRE(client->state() == State::kConnected);
}

TEST_CASE("tls: an accept handler that throws does not stop its listener", "[tls]") {
  TlsSite site;
  std::vector<ConnectionPtr> accepted;
  int calls = 0;
  const conn::ListenerPtr listener = site.server.listen(
      site.loop, conn::Endpoint::parse("tls://127.0.0.1:0"), [&](ConnectionPtr connection) {
        if (++calls == 1) throw std::runtime_error("thrown by a handler");
        accepted.push_back(std::move(connection));
      });
  listener->pause();
  std::vector<ConnectionPtr> clients;
  listener->resume();
  for (int i = 0; i < 3; ++i) clients.push_back(site.start(testing::address_of(*listener)));
  for (int i = 0; i < 100'000 && accepted.size() < 2; ++i) {
    try {
      site.loop.process_events(ae::kFullIteration | ae::kDontWait);
    } catch (const std::runtime_error&) {
    }
    if (i == 50) listener->pause();
    if (i == 5000) listener->resume();
  }
  REQUIRE(calls == 3);
  REQUIRE(accepted.size() == 2);
}

TEST_CASE("tls: a slow handshake is not ended while nobody waits for its place", "[tls]") {
  TlsSite site;
  const conn::ListenerPtr listener = site.listen({{"max-handshakes", "1"}});
  const RawSocket slow = RawSocket::connect(testing::address_of(*listener));
  bool over = false;
  site.loop.add_time_event(1500ms, [&] {
    over = true;
    return ae::kNoMore;
  });
  RUN_UNTIL(site.loop, over);
  REQUIRE(site.refused.empty());
  const ConnectionPtr client = site.connect(*listener);  // connected within its second
  REQUIRE(client->state() == State::kConnected);
  REQUIRE(site.refused.size() == 1);
}

TEST_CASE("tls: wrap() refuses options that nobody has", "[tls]") {
  TlsSite site;
  const conn::ListenerPtr listener =
      site.tcp.listen(site.loop, conn::Endpoint::parse("tcp://127.0.0.1:0"), [](ConnectionPtr) {});
  ConnectionPtr below = site.tcp.create(site.loop);
  below->connect(testing::address_of(*listener), nullptr);
  RUN_UNTIL(site.loop, below->state() == State::kConnected);
  REQUIRE_THROWS_AS((void)site.server.wrap(std::move(below), conn::tls::Role::kServer, "", nullptr,
                                           {{"auth-client", "yes"}}),
                    conn::Error);
}

TEST_CASE("tls: a fresh connection moves to another loop as a socket's does", "[tls]") {
  TlsSite site;
  const ConnectionPtr fresh = site.client.create(site.loop);
  testing::AnyLoop other;
  REQUIRE(fresh->rebind(other));
  REQUIRE(fresh->loop() == &other);
}

#endif  // AECONN_TLS
