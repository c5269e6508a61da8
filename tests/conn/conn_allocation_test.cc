// SPDX-License-Identifier: BSD-3-Clause
// Allocations of a request at both ends of a connection: none. Includes those of the libraries
// below this one.

#include <cstdlib>

#include "tests/support/allocations.h"

#if AECONN_COUNTS_ALLOCATIONS
#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <span>
#include <string>
#include <utility>
#include <vector>

#if AECONN_TLS
#include <openssl/opensslv.h>
#endif

#include "tests/support/catch.h"
#include "tests/support/loop_thread.h"
#include "tests/support/testing.h"

using testing::Allocations;
using testing::LoopThread;

namespace {

/// How the server reads a message and sends it back.
enum class Way {
  kCopy,       ///< by read() and write()
  kInPlace,    ///< by peek(), and by reserve() and commit()
  kReference,  ///< by read(), and by send() from the same buffer
};

void echo_in_place(conn::Connection& connection) {
  const conn::View view = connection.peek();
  if (view.size == 0) {
    if (errno == 0) connection.set_read_handler(nullptr);
    return;
  }
  const std::span<std::byte> room = connection.reserve(view.pieces[0].iov_len);
  if (room.size() < view.pieces[0].iov_len) return;
  std::memcpy(room.data(), view.pieces[0].iov_base, view.pieces[0].iov_len);
  connection.commit(view.pieces[0].iov_len);
  connection.consume(view.pieces[0].iov_len);
}

/// Echoes messages shorter than its buffer.
void serve_echoes(const testing::Transport& transport, const testing::LoopThread::Run& run,
                  Way way) {
  testing::Site site(transport);
  conn::ConnectionPtr client;
  std::vector<char> buffer(64 << 10);
  bool lent = false;
  const auto echo = [&](conn::Connection& connection) {
    if (way == Way::kInPlace) return echo_in_place(connection);
    if (lent) return;
    const ssize_t n = connection.read(buffer.data(), buffer.size());
    if (n > 0 && way == Way::kReference) {
      lent = true;
      const auto release = [](void* flag, std::error_code) noexcept {
        *static_cast<bool*>(flag) = false;
      };
      (void)connection.send({std::as_bytes(std::span(buffer.data(), static_cast<std::size_t>(n))),
                             release, &lent, nullptr});
    } else if (n > 0) {
      connection.write(buffer.data(), static_cast<std::size_t>(n));
    }
    if (n == 0) connection.set_read_handler(nullptr);
  };
  const conn::ListenerPtr listener = site.listen([&](conn::ConnectionPtr accepted) {
    client = std::move(accepted);
    client->set_read_handler(echo);
  });
  run(site.loop, testing::address_of(*listener));
}

/// A client that sends a message and runs its loop until the echo has arrived.
class Client {
 public:
  Client(const testing::Transport& transport, const conn::Endpoint& to)
      : site_(transport), buffer_(64 << 10) {
    testing::let_libev_grow(site_.loop);
    connection_ = site_.connect(to);
    RUN_UNTIL(site_.loop, connection_->state() != conn::State::kConnecting);
    INFO(connection_->last_error());
    REQUIRE(connection_->state() == conn::State::kConnected);
    connection_->set_read_handler([this](conn::Connection& connection) {
      const ssize_t n = connection.read(buffer_.data(), buffer_.size());
      if (n > 0) received_ += static_cast<std::size_t>(n);
      failed_ = failed_ || n == 0 || (n < 0 && errno != EAGAIN);
    });
  }
  bool echo(std::size_t size, int times) {
    for (int i = 0; i < times && !failed_; ++i) {
      received_ = 0;
      if (connection_->write(buffer_.data(), size) != static_cast<ssize_t>(size)) return false;
      while (received_ < size && !failed_) site_.loop.process_events(ae::kFullIteration);
    }
    return !failed_;
  }

 private:
  testing::Site site_;
  std::vector<char> buffer_;
  conn::ConnectionPtr connection_;
  std::size_t received_ = 0;
  bool failed_ = false;
};

constexpr int kEchoes = 500;

struct Echoes {
  Allocations client, server;
};

Allocations operator-(const Allocations& a, const Allocations& b) {
  return {a.by_others - b.by_others, a.by_openssl - b.by_openssl};
}

/// The allocations of kEchoes messages of `size` bytes at each end. Of several rounds the first
/// counts in which neither end makes more than `allowed` allocations: allocations per message occur
/// in all rounds, those of a growing window or a timer only in some.
Echoes count_echoes(const testing::Transport& transport, std::size_t size, Way way = Way::kCopy,
                    int rounds = 1, std::size_t allowed = 0) {
  const LoopThread server([&](const LoopThread::Run& run) { serve_echoes(transport, run, way); });
  Client client(transport, server.address);
  // Long enough that on rdma each end has offered and emptied both of its windows.
  REQUIRE(client.echo(size, 1200));
  Echoes echoes;
  for (int round = 0; round < rounds; ++round) {
    const Allocations server_before = server.watch(true);
    const Allocations client_before = testing::watch_allocations(true);
    const bool echoed = client.echo(size, kEchoes);
    const Allocations client_after = testing::watch_allocations(false);
    const Allocations server_after = server.watch(false);
    REQUIRE(echoed);
    echoes = {client_after - client_before, server_after - server_before};
    if (echoes.client.by_others <= allowed && echoes.server.by_others <= allowed) break;
  }
  return echoes;
}

/// Two ends of a connection, on one loop.
struct Pair {
  conn::ConnectionPtr client, server;
};

std::vector<Pair> join_pairs(testing::Site& site, std::size_t count) {
  std::vector<Pair> pairs;
  conn::ConnectionPtr accepted;
  const conn::ListenerPtr listener =
      site.listen([&](conn::ConnectionPtr one) { accepted = std::move(one); });
  const conn::Endpoint to = testing::address_of(*listener);
  while (pairs.size() < count) {
    conn::ConnectionPtr client = site.connect(to);
    RUN_UNTIL(site.loop, accepted && client->state() != conn::State::kConnecting);
    REQUIRE(client->state() == conn::State::kConnected);
    pairs.push_back({std::move(client), std::move(accepted)});
  }
  return pairs;
}

/// The server peeks at a message and answers with reserve() and commit().
bool exchange_in_place(ae::EventLoop& loop, const Pair& pair) {
  std::array<char, 64> message{};
  if (pair.client->write(message.data(), message.size()) != 64) return false;
  const auto soon = [&loop](auto comes) {
    for (int turns = 0; turns < 100'000; ++turns) {
      if (comes()) return true;
      loop.process_events(ae::kFullIteration | ae::kDontWait);
    }
    return false;
  };
  if (!soon([&] { return pair.server->peek(message.size()).size == message.size(); })) return false;
  pair.server->consume(message.size());
  const std::span<std::byte> room = pair.server->reserve(message.size());
  if (room.size() < message.size()) return false;
  std::memset(room.data(), 'a', message.size());
  pair.server->commit(message.size());
  return soon([&] { return pair.client->read(message.data(), message.size()) == 64; });
}

}  // namespace

TEST_CASE("connections: one that is idle holds no chunk", "[conn][allocation]") {
  const std::string name = GENERATE("tcp", "unix", "shm");
  CAPTURE(name);
  testing::Site site({.name = name});
  testing::let_libev_grow(site.loop);
  const std::vector<Pair> pairs = join_pairs(site, 200);
  const auto all = std::span(pairs);
  const auto exchange = [&](std::span<const Pair> some) {
    return std::ranges::all_of(
        some, [&](const Pair& pair) { return exchange_in_place(site.loop, pair); });
  };
  REQUIRE(exchange(all.first(4)));  // memory that these return is used by the others
  const Allocations before = testing::watch_allocations(true);
  const bool exchanged = exchange(all.subspan(4));
  const Allocations after = testing::watch_allocations(false);
  REQUIRE(exchanged);
  CHECK((after - before).by_others == 0);
}

TEST_CASE("connections: an echo allocates nothing at either end", "[conn][allocation]") {
  const std::string name = GENERATE("tcp", "unix", "shm");
  const std::size_t size = GENERATE(64, 4096);
  CAPTURE(name, size);
  const Echoes echoes = count_echoes({.name = name}, size, Way::kCopy, 3);
  CHECK(echoes.client.by_others == 0);
  CHECK(echoes.server.by_others == 0);
}

TEST_CASE("connections: an echo in place allocates nothing at either end", "[conn][allocation]") {
  const std::string name = GENERATE("tcp", "unix", "shm");
  const Way way = GENERATE(Way::kInPlace, Way::kReference);
  const std::size_t size = GENERATE(64, 16384);
  CAPTURE(name, size, way == Way::kInPlace);
  const Echoes echoes = count_echoes({.name = name}, size, way, 3);
  CHECK(echoes.client.by_others == 0);
  CHECK(echoes.server.by_others == 0);
}

#if AECONN_TLS
TEST_CASE("connections: an echo in place over TLS allocates nothing outside of OpenSSL",
          "[conn][tls][allocation]") {
  const Way way = GENERATE(Way::kInPlace, Way::kReference);
  const std::size_t size = GENERATE(64, 16384);
  CAPTURE(size, way == Way::kInPlace);
  const Echoes echoes = count_echoes({.name = "tls"}, size, way);
  CHECK(echoes.client.by_others == 0);
  CHECK(echoes.server.by_others == 0);
}

TEST_CASE("connections: an echo over TLS allocates nothing outside of OpenSSL",
          "[conn][tls][allocation]") {
  const std::size_t size = GENERATE(64, 4096);
  CAPTURE(size);
  const Echoes echoes = count_echoes({.name = "tls"}, size);
  CHECK(echoes.client.by_others == 0);
  CHECK(echoes.server.by_others == 0);
  // OpenSSL 3.0 itself allocates 40 bytes (a WPACKET_SUB), three times per written record and once
  // per read record, and frees them before the call returns.
  if (OPENSSL_VERSION_NUMBER >> 20 == 0x300) {
    CHECK(echoes.client.by_openssl == 4 * kEchoes);
    CHECK(echoes.server.by_openssl == 4 * kEchoes);
  }
}
#endif

#if AECONN_RDMA
TEST_CASE("connections: an echo over RDMA allocates nothing at either end",
          "[rdma-device][allocation]") {
  const std::string name = GENERATE("rdma", "tls+rdma");
  if (!AECONN_TLS && name != "rdma") return;
  const std::size_t size = GENERATE(64, 4096);
  CAPTURE(name, size);
  const Way way = GENERATE(Way::kCopy, Way::kInPlace, Way::kReference);
  // Occasionally a loop sets a timer or a window grows, independently of the number of messages.
  const std::size_t now_and_then = kEchoes / 20;
  const Echoes echoes = count_echoes({.name = name}, size, way, 5, now_and_then);
  CHECK(echoes.client.by_others <= now_and_then);
  CHECK(echoes.server.by_others <= now_and_then);
}
#endif
#endif  // AECONN_COUNTS_ALLOCATIONS
