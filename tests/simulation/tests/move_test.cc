// SPDX-License-Identifier: BSD-3-Clause
// conn::move() over rdma with resume=yes: among the loops of a group, under load, what it asks of
// the devices, and without memory.

#include <cerrno>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "ae/loops.h"
#include "conn/listener_group.h"
#include "conn/move.h"
#include "conn/transports/transports.h"
#include "tests/simulation/memory.h"
#include "tests/simulation/room.h"
#include "tests/simulation/stepped_loops.h"
#include "tests/support/catch.h"
#include "tests/support/certificates.h"

using namespace simulation;
using conn::Connection;
using conn::ConnectionPtr;

namespace {

const std::string kResume = "resume=yes&resume-time=10s";

/// Echoes on three loops; a client on a fourth one counts its own bytes.
class Group {
 public:
  Group(World& world, const std::string& scheme, std::uint64_t seed)
      : world_(world), choices_(seed, {}) {
    (void)world.add_device("sim0", "10.77.0.1");
    (void)world.add_device("sim1", "10.77.0.2");
    if (scheme != "rdma")
      registry_.require(scheme).configure(testing::test_tls_options("localhost"));
    loops_ = std::make_unique<SteppedLoops>(world, 3, 1, choices_);
    listener_ = conn::listen(registry_, *loops_, scheme + "://10.77.0.1:0?" + kResume,
                             [this](ae::EventLoop&, std::size_t) -> conn::AcceptHandler {
                               return [this](ConnectionPtr next) { serve(std::move(next)); };
                             });
    conn::Endpoint to = listener_->endpoints().front();
    to.options = to.options.merged_with(conn::Options::parse("source=10.77.0.2&" + kResume));
    client_ = registry_.require(scheme).create(*loops_->loop(3));
    client_->connect(to, [](Connection&) {});
    until([this] { return served_ && client_->state() == conn::State::kConnected; });
    client_->set_read_handler([this](Connection& c) { hear(c); });
    client_->set_write_handler([this](Connection& c) { talk(c); });
  }
  ~Group() {
    client_.reset();
    served_.reset();
    listener_.reset();
    for (const Nanoseconds end = world_.now() + 20s; world_.now() < end;) loops_->step(end);
  }
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;

  void until(const std::function<bool()>& done) {
    const Nanoseconds limit = world_.now() + 60s;
    while (!done() && world_.now() < limit) loops_->step(limit);
    INFO(client_->last_error());
    REQUIRE(done());
  }
  /// Moves the server's end, on its own loop's thread.
  void move(std::size_t to) {
    bool left = false;
    REQUIRE(loops_->poster(at_).post([&] {
      left = conn::move(served_, *loops_, to, [this, to](ConnectionPtr here) {
        on_right_loop_ = loops_->stepping() == to && here->loop() == loops_->loop(to);
        served_ = std::move(here);
        at_ = to;
      });
    }));
    until([&] { return left && served_ != nullptr; });
    REQUIRE(on_right_loop_);
  }
  std::vector<std::uint64_t> open() const {
    std::vector<std::uint64_t> all;
    for (const auto& share : listener_->shares()) all.push_back(share.open);
    return all;
  }
  std::uint64_t heard() const noexcept { return heard_; }
  bool wrong() const noexcept { return wrong_; }

 private:
  void serve(ConnectionPtr next) {
    served_ = std::move(next);
    at_ = *loops_->stepping();
    served_->set_read_handler([this](Connection& c) {
      if (loops_->stepping() != at_) wrong_ = true;
      char bytes[4096];
      const ssize_t n = c.read(bytes, sizeof bytes);
      if (n > 0) waiting_.append(bytes, static_cast<std::size_t>(n));
      reply(c);
    });
  }
  void reply(Connection& c) {
    const ssize_t n = c.write(waiting_.data(), waiting_.size());
    if (n > 0) waiting_.erase(0, static_cast<std::size_t>(n));
    if (waiting_.empty()) return c.set_write_handler(nullptr);
    c.set_write_handler([this](Connection& here) { reply(here); });
  }
  void talk(Connection& c) {
    const std::string_view next = pattern_.at(said_).substr(0, 3000);
    if (said_ - heard_ > 60'000) return c.set_write_handler(nullptr);
    const ssize_t n = c.write(next.data(), next.size());
    if (n > 0) said_ += static_cast<std::uint64_t>(n);
  }
  void hear(Connection& c) {
    char bytes[4096];
    const ssize_t n = c.read(bytes, sizeof bytes);
    if (n <= 0) return;
    const auto size = static_cast<std::size_t>(n);
    if (!pattern_.matches(heard_, {bytes, size})) wrong_ = true;
    heard_ += size;
    c.set_write_handler([this](Connection& here) { talk(here); });
  }

  World& world_;
  Choices choices_;
  conn::Registry registry_ = conn::all_transports();
  std::unique_ptr<SteppedLoops> loops_;
  conn::ListenerGroupPtr listener_;
  ConnectionPtr client_, served_;
  std::size_t at_ = 0;
  std::string waiting_;
  const testing::Pattern pattern_{1};
  std::uint64_t said_ = 0, heard_ = 0;
  bool wrong_ = false, on_right_loop_ = false;
};

}  // namespace

TEST_CASE("move: over rdma with resume, under load, the bytes and the group's counts are right",
          "[simulation][move][resume]") {
  if (chosen_profile().iwarp) return;  // nothing resumes there
  const std::string scheme = GENERATE("rdma", "tls+rdma");
  const std::uint64_t seed = GENERATE(1, 2, 3);
  CAPTURE(scheme, seed);
  World world;
  {
    Group group(world, scheme, seed);
    REQUIRE(group.open() == std::vector<std::uint64_t>{1, 0, 0});
    for (const std::size_t to : {2, 1, 0, 1, 2, 0, 2}) {
      const std::uint64_t before = group.heard();
      group.until([&] { return group.heard() > before + 100'000; });
      group.move(to);
      std::vector<std::uint64_t> there(3, 0);
      there[to] = 1;
      CHECK(group.open() == there);
    }
    const std::uint64_t before = group.heard();
    group.until([&] { return group.heard() > before + 200'000; });
    CHECK_FALSE(group.wrong());
  }
  world.advance(world.now() + 110s);
  world.let_orphans_go();
  CHECK(world.objects().empty());
  CHECK(world.violations().empty());
}

TEST_CASE("move: what a move over rdma asks of the devices", "[simulation][move][resume]") {
  const Profile& profile = profile_named("mlx5");
  const std::string quiet = kResume + "&keepalive=10s";
  Room room({}, "?" + quiet, profile, profile);
  testing::AnyLoop second;
  ae::LoopList loops({&room.loop, &second});
  // Without a listener or a connection a loop closes its devices within a second.
  const conn::ListenerPtr stays =
      room.type.listen(second, conn::Endpoint::parse("rdma://10.77.0.1:0"), [](ConnectionPtr) {});
  const ConnectionPtr client = room.connected(quiet);
  room.echoes(*client, 64);
  const auto settle = [&] {
    for (int turn = 0; turn < 30'000; ++turn) {
      testing::turns(room.loop, 1);
      testing::turns(second, 1);
      room.world.advance(room.world.now() + 10us);
    }
  };
  settle();
  const auto resumes = [&client] {
    std::string count;
    for (const auto& [name, value] : client->info())
      if (name == "resumes") count = value;
    return count;
  };
  // The first move to a loop also makes what all its connections share. docs/threads.md has the
  // numbers.
  for (const std::size_t to : {1, 0, 1, 0}) {
    const Costs near = room.world.costs(*room.near), far = room.world.costs(*room.far);
    bool arrived = false;
    REQUIRE(conn::move(room.log.clients.front(), loops, to, [&](ConnectionPtr here) {
      room.log.clients.front() = std::move(here);
      arrived = true;
    }));
    const Nanoseconds began = room.world.now();
    std::string got;
    client->set_read_handler([&](Connection& c) {
      char bytes[64];
      const ssize_t n = c.read(bytes, sizeof bytes);
      if (n > 0) got.append(bytes, static_cast<std::size_t>(n));
    });
    REQUIRE(client->write("moved", 5) == 5);
    while (got != "moved" && room.world.now() - began < 1s) {
      testing::turns(room.loop, 1);
      testing::turns(second, 1);
      room.world.advance(room.world.now() + 1us);
    }
    REQUIRE(got == "moved");
    // A few messages of rdma_cm, each of which takes up to 2 ms here, and no pause between them.
    CHECK(room.world.now() - began < 10ms);
    settle();
    REQUIRE(arrived);
    if (to == 1) continue;
    Costs server = room.world.costs(*room.near) - near;
    Costs other = room.world.costs(*room.far) - far;
    // Ports are asked at regular times, whoever moves.
    server.slow.erase("ibv_query_port");
    other.slow.erase("ibv_query_port");
    UNSCOPED_INFO("server: " << server.slow_text() << "; client: " << other.slow_text());
    CHECK(server.slow_calls() == 8);
    CHECK(server.rdma_cm_calls() == 8);
    CHECK(other.slow_calls() == 8);
    CHECK(other.rdma_cm_calls() == 13);
  }
  CHECK(resumes() == "4");
}
