// SPDX-License-Identifier: BSD-3-Clause
// The straight path of a message (conn/rdma/straight_path.h) against the full one: the same
// sequence of operations, with the straight path switched on and off, must give the same reads, in
// the same order, and the same work for the devices. (That the straight path is taken at all is
// shown by its instructions: bench/messages/simulation --check.)

#include <fmt/format.h>

#include <cstdlib>
#include <deque>
#include <random>
#include <string>

#include "ae/epoll_loop.h"
#include "conn/rdma/straight_path.h"
#include "tests/simulation/choices.h"
#include "tests/simulation/room.h"

using namespace simulation;

namespace {

/// Switches the straight path for the connections that are made while it exists.
class Straight {
 public:
  explicit Straight(bool on) { conn::rdma::StraightPath::on = on; }
  Straight(const Straight&) = delete;
  Straight& operator=(const Straight&) = delete;
  ~Straight() { conn::rdma::StraightPath::on = true; }
};

struct Outcome {
  std::vector<std::string> reads;  // in order: which end read how many bytes
  std::string costs;               // of both devices
  std::uint64_t bytes = 0;
};

std::string work_of(const Costs& costs) {
  return fmt::format("doorbells {}, requests {}, not inline {}, notifications {}, events {}",
                     costs.doorbells, costs.requests, costs.not_inline, costs.notifications,
                     costs.completion_events);
}

/// One end of a connection. It writes a sequence of bytes of its own, and checks that it reads the
/// peer's.
class Talker {
 public:
  Talker(int number, conn::ConnectionPtr connection, Outcome& outcome, Choices& choices)
      : number_(number), connection_(std::move(connection)), outcome_(outcome), choices_(choices) {
    listen();
  }
  void pair_with(Talker& peer) { peer_ = &peer; }

  void step() {
    switch (pick(16)) {
      case 0:
        return connection_->set_read_handler(nullptr);
      case 1:
        return connection_->flush();
      case 2: {
        const std::size_t n = size();
        const std::span<std::byte> room = connection_->reserve(n);
        if (room.empty()) return;
        for (std::size_t i = 0; i < n; ++i) room[i] = std::byte{next(written_)};
        return connection_->commit(n);
      }
      case 3: {
        std::string one = bytes(size()), two = bytes(size(), one.size());
        const iovec both[] = {{one.data(), one.size()}, {two.data(), two.size()}};
        const ssize_t n = connection_->writev(both, 2);
        written_ += n > 0 ? static_cast<std::uint64_t>(n) : 0;
        return;
      }
      case 4:
        return connection_->set_write_handler(
            [this](conn::Connection& here) {
              here.set_write_handler(nullptr);
              write();
            },
            pick(2) == 0 ? conn::Barrier::kYes : conn::Barrier::kNo);
      case 5:
      case 6:
      case 7:
        return listen();
      default:
        return write();
    }
  }
  void listen() {
    connection_->set_read_handler([this](conn::Connection&) { read(); });
  }
  std::uint64_t written() const noexcept { return written_; }
  std::uint64_t seen() const noexcept { return seen_; }

 private:
  std::uint64_t pick(std::uint64_t below) { return choices_() % below; }
  /// Mostly what an inline request holds; sometimes more than one, or a whole window.
  std::size_t size() {
    switch (pick(12)) {
      case 0:
        return 1 + pick(100'000);
      case 1:
      case 2:
        return 1 + pick(4000);
      default:
        return 1 + pick(160);
    }
  }
  unsigned char next(std::uint64_t& at) const noexcept {
    const std::uint64_t value = at++ * 0x9e3779b97f4a7c15u + static_cast<std::uint64_t>(number_);
    return static_cast<unsigned char>(value >> 32);
  }
  std::string bytes(std::size_t count, std::size_t skipped = 0) const {
    std::string text(count, '\0');
    std::uint64_t at = written_ + skipped;
    for (char& each : text) each = static_cast<char>(next(at));
    return text;
  }
  void write() {
    const std::string text = bytes(size());
    const ssize_t n = connection_->write(text.data(), text.size());
    written_ += n > 0 ? static_cast<std::uint64_t>(n) : 0;
  }
  void read() {
    std::array<char, 3000> room;
    const ssize_t n = connection_->read(room.data(), pick(4) == 0 ? 1 + pick(50) : room.size());
    if (n <= 0) return;
    for (ssize_t i = 0; i < n; ++i)
      if (static_cast<char>(peer_->next(seen_)) != room[static_cast<std::size_t>(i)])
        FAIL("byte " << seen_ - 1 << " of end " << number_ << " is another");
    outcome_.reads.push_back(fmt::format("{}: {}", number_, n));
    outcome_.bytes += static_cast<std::uint64_t>(n);
    if (pick(3) == 0) write();  // as a server answers
  }

  const int number_;
  conn::ConnectionPtr connection_;
  Outcome& outcome_;
  Choices& choices_;
  Talker* peer_ = nullptr;
  std::uint64_t written_ = 0, seen_ = 0;
};

Outcome talk(std::uint64_t seed, bool straight) {
  const Straight path(straight);
  Choices choices(seed);
  Outcome outcome;
  const auto pick = [&choices](std::uint64_t below) { return choices() % below; };
  Config config;
  config.seed = seed;
  const std::string options = fmt::format(
      "keepalive={}ms&send-queue={}&window={}&send-buffer={}", pick(2) == 0 ? 0 : 3000,
      pick(2) == 0 ? 8 : 64, pick(2) == 0 ? "4k" : "64k", pick(3) == 0 ? "16k" : "256k");
  Room room(config, "?" + options);
  std::deque<Talker> talkers;
  const std::uint64_t connections = 1 + pick(4);
  for (std::uint64_t i = 0; i < connections; ++i) {
    conn::ConnectionPtr client = room.connected(options);
    talkers.emplace_back(static_cast<int>(2 * i), std::move(client), outcome, choices);
    talkers.emplace_back(static_cast<int>(2 * i + 1), std::move(room.log.clients.back()), outcome,
                         choices);
    room.log.clients.pop_back();
    talkers[2 * i].pair_with(talkers[2 * i + 1]);
    talkers[2 * i + 1].pair_with(talkers[2 * i]);
  }
  const Costs near = room.world.costs(*room.near), far = room.world.costs(*room.far);
  for (int i = 0; i < 400; ++i) {
    // In a handler, so that the time stands still: the simulated clock goes on when it is read.
    room.loop.post([&] {
      for (std::uint64_t steps = pick(6); steps != 0; --steps) talkers[pick(talkers.size())].step();
    });
    if (pick(40) == 0)
      room.run_for(std::chrono::milliseconds(pick(5000)));
    else
      (void)room.loop.process_events(pick(2) == 0 ? ae::kFullIteration : ae::kDontWait);
  }
  for (Talker& each : talkers) each.listen();
  for (std::size_t i = 0; i < talkers.size(); ++i)
    RUN_UNTIL(room.loop, talkers[i].seen() == talkers[i ^ 1].written());
  room.run_for(7s);
  outcome.costs = work_of(room.world.costs(*room.near) - near) + "; " +
                  work_of(room.world.costs(*room.far) - far);
  return outcome;
}

}  // namespace

TEST_CASE("rdma straight path: it gives the same bytes, messages and costs as the full one",
          "[simulation][rdma][straight]") {
  std::uint64_t bytes = 0;
  for (std::uint64_t seed = 1; seed <= 40; ++seed) {
    CAPTURE(seed);
    const Outcome full = talk(seed, false), straight = talk(seed, true);
    bytes += full.bytes;
    REQUIRE(straight.costs == full.costs);
    REQUIRE(straight.reads == full.reads);
  }
  CHECK(bytes > 10'000'000);
}

TEST_CASE("rdma straight path: a write handler that a read handler sets runs in the same iteration",
          "[simulation][rdma][straight]") {
  const Straight path(GENERATE(false, true));
  Room room;
  const conn::ConnectionPtr client = room.connected();
  int reads = 0, writes = 0;
  room.log.clients.back()->set_read_handler([&](conn::Connection& here) {
    char byte = 0;
    if (here.read(&byte, 1) != 1) return;
    ++reads;
    here.set_write_handler([&](conn::Connection& same) {
      ++writes;
      same.set_write_handler(nullptr);
    });
  });
  REQUIRE(client->write("x", 1) == 1);
  for (int i = 0; reads == 0 && i < 10000; ++i) (void)room.loop.process_events(ae::kFullIteration);
  CHECK(reads == 1);
  CHECK(writes == 1);
}

TEST_CASE("rdma straight path: a handler that serves the loop itself serves it at the present time",
          "[simulation][rdma][straight]") {
  // Only an EpollLoop can be served by a handler.
  const char* const chosen = std::getenv("AECONN_LOOP");
  const std::string before = chosen != nullptr ? chosen : "libev";
  setenv("AECONN_LOOP", "epoll", 1);
  Room room({}, "?keepalive=100ms");
  setenv("AECONN_LOOP", before.c_str(), 1);
  auto& loop = dynamic_cast<ae::EpollLoop&>(room.loop);
  const conn::ConnectionPtr client = room.connected("keepalive=0ms");
  std::uint64_t requests = 0;
  room.log.clients.back()->set_read_handler([&](conn::Connection& here) {
    char byte = 0;
    if (here.read(&byte, 1) != 1) return;
    REQUIRE(here.write(&byte, 1) == 1);  // looks at the time
    const Nanoseconds until = room.world.now() + 1s;
    while (room.world.advance(until)) {
    }
    const Costs so_far = room.world.costs(*room.near);
    (void)loop.dispatch();
    requests = (room.world.costs(*room.near) - so_far).requests;
  });
  REQUIRE(client->write("x", 1) == 1);
  RUN_UNTIL(room.loop, requests != 0);
  CHECK(requests == 2);  // the answer, and the keepalive that is due
}

TEST_CASE("rdma straight path: a close waits no longer for its last bytes than for the peer",
          "[simulation][rdma][straight]") {
  const Straight path(GENERATE(false, true));
  Room room({}, "?window=4k&max-window=4k&keepalive=0ms");
  conn::ConnectionPtr client = room.connected("keepalive=0ms");
  conn::Connection& server = *room.log.clients.back();
  server.set_read_handler(nullptr);
  const std::string bytes(100, 'c');
  std::size_t written = 0;
  const auto unsent = [&client] {
    for (const auto& [key, value] : client->info())
      if (key == "unsent") return value;
    return std::string();
  };
  while (unsent() == "0") {  // until the peer has no window any more
    REQUIRE(client->write(bytes.data(), bytes.size()) == static_cast<ssize_t>(bytes.size()));
    written += bytes.size();
    room.run_for(1ms);
  }
  client.reset();
  room.run_for(50ms);
  std::size_t read = 0;
  bool ended = false;
  server.set_read_handler([&](conn::Connection& here) {
    std::array<char, 3000> room_to_read;
    const ssize_t n = here.read(room_to_read.data(), room_to_read.size());
    if (n > 0) read += static_cast<std::size_t>(n);
    if (n == 0) ended = true;
    if (ended) here.set_read_handler(nullptr);
  });
  const Nanoseconds begin = room.world.now();
  RUN_UNTIL(room.loop, ended);
  CHECK(read == written);
  CHECK(room.world.now() - begin < 400ms);
}

TEST_CASE("simulation: what a driver has taken and not named as refused arrives once at most",
          "[simulation][rdma][straight]") {
  const bool on = GENERATE(false, true);
  const std::size_t size = GENERATE(5, 2000);  // copied into the request, and not
  CAPTURE(on, size);
  for (const Profile* profile : serving_profiles()) {
    CAPTURE(profile->name);
    const Straight straight(on);
    Room room({}, {}, *profile, *profile);
    const conn::ConnectionPtr client = room.connected();
    conn::Connection& server = *room.log.clients.front();
    std::size_t arrived = 0;
    server.set_read_handler([&](conn::Connection& here) {
      std::array<char, 8192> bytes;
      for (ssize_t n; (n = here.read(bytes.data(), bytes.size())) > 0;)
        arrived += static_cast<std::size_t>(n);
      if (here.state() != conn::State::kConnected) here.set_read_handler(nullptr);
    });
    for (auto& [number, qp] : room.world.queue_pairs)
      qp->fails_after_taking = &qp->device_of() == room.far;
    const std::string bytes(size, 'o');
    REQUIRE(client->write(bytes.data(), size) == static_cast<ssize_t>(size));
    (void)room.until_failed(*client);
    CHECK(client->state() == conn::State::kError);
    room.run_for(1s);
    CHECK(arrived <= size);
  }
}
