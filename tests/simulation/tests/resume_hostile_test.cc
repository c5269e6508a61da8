// SPDX-License-Identifier: BSD-3-Clause
// resume=yes: peers that ask for a new path without the right to it, or say what is not so. The
// session that they mean is untouched, or ends with an error; nothing is left behind.

#include <array>
#include <cstring>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "tests/simulation/memory.h"
#include "tests/simulation/stepped_loops.h"
#include "tests/simulation/stranger.h"

using namespace simulation;
using conn::rdma::Hello;
using conn::rdma::ResumeMessage;
using testing::Contains;

TEST_CASE("resume: a request with a wrong MAC or session touches nothing",
          "[simulation][resume][hostile]") {
  if (chosen_profile().iwarp) return;  // nothing resumes there
  Stranger stranger;
  testing::RawPeer& peer = stranger.begin();
  stranger.echo(peer, "before");
  CHECK_THAT(stranger.refusal(stranger.ask(stranger.message(1, 6), true)),
             Contains("unknown session"));
  ResumeMessage other = stranger.message(1, 6);
  other.session ^= 1;
  CHECK_THAT(stranger.refusal(stranger.ask(other)), Contains("unknown session"));
  CHECK(stranger.counted("resumes_refused") == 2);
  stranger.echo(peer, "after");
  CHECK(stranger.counted("paths_lost") == 0);
  CHECK(stranger.counted("resumes") == 0);
}

TEST_CASE("resume: ten thousand requests with a wrong MAC leave the session as it is",
          "[simulation][resume][hostile]") {
  if (chosen_profile().iwarp) return;  // nothing resumes there
  Stranger stranger;
  testing::RawPeer& peer = stranger.begin();
  stranger.echo(peer, "before");
  const auto objects = stranger.room.world.objects();
  for (int batch = 0; batch < 100; ++batch) {
    for (int i = 0; i < 100; ++i) (void)stranger.ask(stranger.message(1, 6), true, false);
    RUN_UNTIL(stranger.room.loop, [&] {
      return std::all_of(stranger.peers.begin() + 1, stranger.peers.end(),
                         [](const auto& each) { return each->failed; });
    }());
    stranger.peers.resize(1);
    stranger.echo(peer, "between");
  }
  CHECK(stranger.counted("resumes_refused") == 10000);
  stranger.room.run_for(1s);
  CHECK(stranger.room.world.objects() == objects);
}

TEST_CASE("resume: who has the key gets the path, and no request counts twice",
          "[simulation][resume][hostile]") {
  if (chosen_profile().iwarp) return;  // nothing resumes there
  Stranger stranger;
  testing::RawPeer& first = stranger.begin();
  stranger.echo(first, "one");
  testing::RawPeer& second = stranger.ask(stranger.message(5, 3));
  RUN_UNTIL(stranger.room.loop, second.established && !second.offers.empty());
  stranger.echo(second, "two");
  CHECK(stranger.counted("resumes") == 1);
  SECTION("the same bytes from another address") {
    testing::RawOptions options;
    options.private_data = stranger.last;
    CHECK_THAT(stranger.refusal(stranger.connect(options)), Contains("unknown session"));
  }
  SECTION("the same generation again, or an older one") {
    for (const std::uint32_t generation : {5u, 4u, 0u})
      CHECK_THAT(stranger.refusal(stranger.ask(stranger.message(generation, 6))),
                 Contains("unknown session"));
  }
  SECTION("two requests at the same time: the later generation gets it") {
    testing::RawPeer& older = stranger.ask(stranger.message(6, 6));
    testing::RawPeer& newer = stranger.ask(stranger.message(7, 6));
    RUN_UNTIL(stranger.room.loop, newer.established && !newer.offers.empty());
    stranger.echo(newer, "three");
    // If the older one was accepted first, rdma_cm may not know that path yet, and cannot end it.
    if (older.established && !older.over()) older.immediate(1);
    stranger.echo(newer, "four");
    CHECK(older.received == "");
    return;
  }
  stranger.echo(second, "three");
  CHECK(stranger.counted("resumes") == 1);
  CHECK(stranger.counted("paths_lost") == 0);
}

TEST_CASE("resume: a peer that counted what cannot be ends the connection",
          "[simulation][resume][hostile]") {
  if (chosen_profile().iwarp) return;  // nothing resumes there
  const bool more = GENERATE(true, false);
  Stranger stranger;
  testing::RawPeer& first = stranger.begin();
  stranger.echo(first, "12345");
  stranger.room.run_for(4s);  // until our bytes are confirmed
  const std::uint64_t count = more ? 6 : 4;
  CHECK_THAT(stranger.refusal(stranger.ask(stranger.message(1, count))),
             Contains("bytes are missing"));
  CHECK_THAT(stranger.ending(), Contains("bytes that the peer misses"));
  CHECK(stranger.counted("paths_lost") == 0);
  // The session is over for the right count, too.
  CHECK_THAT(stranger.refusal(stranger.ask(stranger.message(2, 5))), Contains("unknown session"));
}

TEST_CASE("resume: a listener without the option knows no session",
          "[simulation][resume][hostile]") {
  if (chosen_profile().iwarp) return;  // nothing resumes there
  Stranger stranger("keepalive=3s");
  stranger.grant.session = 7;
  CHECK_THAT(stranger.refusal(stranger.ask(stranger.message(1, 0))), Contains("unknown session"));
  CHECK(stranger.room.log.clients.empty());
}

TEST_CASE("resume: the end of the stream must be where the bytes end",
          "[simulation][resume][hostile]") {
  if (chosen_profile().iwarp) return;  // nothing resumes there
  Stranger stranger;
  testing::RawPeer& peer = stranger.begin();
  stranger.room.log.clients.front()->set_read_handler(nullptr);
  conn::Connection& server = *stranger.room.log.clients.front();
  std::string received, ending;
  server.set_read_handler([&](conn::Connection& here) {
    char bytes[100];
    const ssize_t n = here.read(bytes, sizeof bytes);
    if (n > 0) received.append(bytes, static_cast<std::size_t>(n));
    if (n > 0 || (n < 0 && errno == EAGAIN)) return;
    ending = n == 0 ? "end of stream" : here.last_error();
    here.set_read_handler(nullptr);
  });
  const std::uint16_t how = GENERATE(conn::rdma::kFinished, conn::rdma::kShutDown);
  CAPTURE(how);
  const auto finish = [&](std::uint64_t total) { peer.send(testing::raw_feature(1, how, total)); };
  peer.stream("1234567");
  RUN_UNTIL(stranger.room.loop, received.size() == 7);
  SECTION("fewer or more bytes than arrived") {
    finish(GENERATE(0u, 6u, 8u));
    RUN_UNTIL(stranger.room.loop, !ending.empty());
    CHECK_THAT(ending, Contains("ended its stream at another byte"));
  }
  SECTION("bytes behind the end") {
    finish(7);
    peer.stream("8");
    RUN_UNTIL(stranger.room.loop, !ending.empty());
    stranger.room.run_for(10ms);
    CHECK(received == "1234567");
    CHECK(server.state() != conn::State::kConnected);
    CHECK_THAT(server.last_error(), Contains("after the end of its stream"));
  }
  SECTION("the end twice") {
    finish(7);
    finish(7);
    RUN_UNTIL(stranger.room.loop, !ending.empty());
    stranger.room.run_for(10ms);
    CHECK(ending == "end of stream");
    CHECK(server.state() == conn::State::kConnected);
    REQUIRE(server.write("x", 1) == 1);  // its own direction goes on
    RUN_UNTIL(stranger.room.loop, peer.received == "x");
  }
  SECTION("the end ten thousand times") {
    RUN_UNTIL(stranger.room.loop, [&] {
      for (int i = 0; i < 100 && peer.can_post(); ++i) finish(7);
      return peer.over() || server.state() != conn::State::kConnected;
    }());
    CHECK_THAT(server.last_error(), Contains("floods"));
  }
}

TEST_CASE("resume: a server that does not know the session is not believed",
          "[simulation][resume][hostile]") {
  if (chosen_profile().iwarp) return;  // nothing resumes there
  const bool forged = GENERATE(false, true);
  CAPTURE(forged);
  Room room({.strangers = true});
  setenv("AECONN_RDMA_ADDRESS", "10.77.0.1", 1);
  std::string ending;
  {
    testing::RawNet net(room.loop);
    Hello hello{.flags = Hello::kFinishes | Hello::kResumes, .resume_ms = 1000};
    hello.grant.session = 77;
    hello.grant.key[0] = std::byte{9};
    const auto bytes = encode(hello, conn::rdma::HelloKind::kAnswer);
    testing::RawOptions options;
    options.private_data = text_of({bytes.data(), bytes.size()});
    const conn::Endpoint to = net.listen(options);
    conn::ConnectionPtr client = room.type.create(room.loop);
    client->connect(
        conn::Endpoint::parse("rdma://10.77.0.1:" + std::to_string(to.port) +
                              "?source=10.77.0.2&resume=yes&resume-time=700ms&keepalive=100ms"),
        [](conn::Connection&) {});
    RUN_UNTIL(room.loop, client->state() == conn::State::kConnected && net.accepted.size() == 1 &&
                             net.accepted.front()->established);
    client->set_read_handler([&](conn::Connection& here) {
      char byte = 0;
      const ssize_t n = here.read(&byte, 1);
      if (n < 0 && errno == EAGAIN) return;
      ending = n > 0 ? "a byte" : n == 0 ? "end of stream" : here.last_error();
      here.set_read_handler(nullptr);
    });
    net.accepted.front()->disconnect();
    if (forged) {
      const ResumeMessage answer{
          .hello = {.flags = Hello::kFinishes}, .generation = 1, .session = 77};
      net.answer_with(text_of(seal_answer(answer, {}, std::array<std::byte, 16>{})));
    }
    const Nanoseconds begin = room.world.now();
    RUN_UNTIL(room.loop, !ending.empty());
    CHECK_THAT(ending, Contains("no new path in"));
    CHECK(room.world.now() - begin < 1s);
    CHECK(net.requests > 2);  // it tried again
    client.reset();
    room.run_for(1s);
  }
}

TEST_CASE("resume: more connections without a path than may be end at once",
          "[simulation][resume][hostile]") {
  if (chosen_profile().iwarp) return;  // nothing resumes there
  constexpr std::size_t kPairs = 600;  // with 1200 ends, of which 1024 may wait
  Room room(
      {}, "?resume=yes&resume-time=10s&keepalive=200ms&window=4096&send-buffer=8192&backlog=1000");
  std::vector<conn::ConnectionPtr> clients;
  for (std::size_t i = 0; i < kPairs; ++i) clients.push_back(room.dial());
  RUN_UNTIL(room.loop, room.log.clients.size() == kPairs);
  const auto counted = [&](const std::string& name) {
    for (const auto& [key, value] : room.type.statistics(room.loop))
      if (key == name) return value;
    return ~std::uint64_t{0};
  };
  room.world.set_link(*room.far, false);
  std::uint64_t most = 0;
  for (int i = 0; i < 50; ++i) {
    room.run_for(100ms);
    most = std::max(most, counted("paths_lost"));
  }
  CHECK(most == 1024);
  room.world.set_link(*room.far, true);
  RUN_UNTIL(room.loop, counted("paths_lost") == 0);
  std::size_t alive = 0;
  for (const conn::ConnectionPtr& each : clients) {
    if (each->state() != conn::State::kConnected) continue;
    char byte = 0;
    if (each->read(&byte, 1) == 0 || errno != EAGAIN) continue;
    ++alive;
    room.echoes(*each, 10);
  }
  CHECK(alive >= 1024 - kPairs);
  CHECK(alive <= kPairs - (2 * kPairs - 1024) / 2);
  clients.clear();
}

TEST_CASE("resume: a listener of another loop hands the request on",
          "[simulation][resume][hostile]") {
  if (chosen_profile().iwarp) return;  // nothing resumes there
  World world({.strangers = true});
  (void)world.add_device("sim0", "10.77.0.1");
  (void)world.add_device("sim1", "10.77.0.2");
  Choices choices(3, {});
  {
    conn::Registry registry = conn::all_transports();
    conn::ConnectionType& type = registry.require("rdma");
    SteppedLoops loops(world, 2, 1, choices);
    std::array<EndLog, 2> logs;
    std::array<conn::ListenerPtr, 2> listeners;
    for (std::size_t i = 0; i < 2; ++i)
      listeners[i] =
          type.listen(*loops.loop(i), conn::Endpoint::parse("rdma://10.77.0.1:0?" + kStrangers),
                      logs[i].handler());
    const auto until = [&](const std::function<bool()>& done) {
      const Nanoseconds limit = world.now() + 20s;
      while (!done() && world.now() < limit) loops.step(limit);
      REQUIRE(done());
    };
    {
      testing::RawNet net(*loops.loop(2));
      testing::RawOptions options;
      options.source = "10.77.0.2";
      options.private_data = first_request();
      auto peer = net.connect(listeners[0]->endpoints().front(), options);
      until([&] { return peer->established && !peer->offers.empty(); });
      const conn::rdma::Grant grant = grant_in(*peer);
      peer->stream("one");
      until([&] { return peer->received == "one"; });
      std::uint32_t generation = 0;
      std::uint64_t received = 3;
      testing::RawOptions again;
      again.source = "10.77.0.2";
      again.at_request = [&](testing::RawPeer& here) {
        return text_of(conn::rdma::seal_request({.hello = {.flags = Hello::kFinishes},
                                                 .generation = ++generation,
                                                 .session = grant.session,
                                                 .received = received},
                                                grant.key, bound_to(here)));
      };
      auto next = net.connect(listeners[1]->endpoints().front(), again);
      until([&] { return next->established && !next->offers.empty(); });
      next->stream("two");
      until([&] { return next->received == "two"; });
      CHECK(logs[0].clients.size() == 1);
      CHECK(logs[1].clients.empty());
      // Where it cannot be handed on just now, the client is asked to come again.
      received = 6;
      std::string refusal;
      for (std::uint64_t call = 1; refusal.empty(); ++call) {
        REQUIRE(call < 20);
        auto third = net.connect(listeners[1]->endpoints().front(), again);
        until([&] { return third->requested; });
        world.fail_call(call);
        until([&] { return third->failed || (third->established && !third->offers.empty()); });
        world.fail_call(0);
        if (world.last_failed() == "rdma_migrate_id") refusal = third->private_data;
      }
      CHECK_THAT(refusal, Contains("try again"));
      // Without memory for a request, at most that connection ends; its loop goes on.
      for (std::uint64_t number = 1; number <= 6; ++number) {
        auto last = net.connect(listeners[1]->endpoints().front(), again);
        until([&] { return last->requested; });
        for (int i = 0; i < 200; ++i) {
          (void)loops.loop(1)->process_events(ae::kAllEvents | ae::kDontWait);
          fail_allocation(Allocator::kNew, number, 1);
          REQUIRE_NOTHROW(loops.loop(0)->process_events(ae::kAllEvents | ae::kDontWait));
          fail_allocation(Allocator::kNew, 0);
          (void)world.advance(world.now() + 50us);
        }
        until([&] { return last->failed || (last->established && !last->offers.empty()); });
      }
      peer.reset();
      next.reset();
      for (Nanoseconds end = world.now() + 100ms; world.now() < end;) loops.step(end);
    }
    for (std::size_t i = 0; i < 2; ++i) {
      logs[i].clients.clear();
      listeners[i].reset();
    }
    for (Nanoseconds end = world.now() + 15s; world.now() < end;) loops.step(end);
  }
  world.advance(world.now() + 110s);
  world.let_orphans_go();
  CHECK(world.objects().empty());
  CHECK(world.violations().empty());
}

TEST_CASE("resume: a client whose session the server has ended learns of it at once",
          "[simulation][resume]") {
  if (chosen_profile().iwarp) return;  // nothing resumes there
  Room room({}, "?resume=yes&resume-time=10s&keepalive=100ms");
  conn::ConnectionPtr client = room.connected("resume=yes&resume-time=10s&keepalive=100ms");
  RUN_UNTIL(room.loop, room.log.clients.size() == 1);
  room.world.set_link(*room.far, false);
  const auto lost = [&] {
    for (const auto& [key, value] : room.type.statistics(room.loop))
      if (key == "paths_lost") return value;
    return ~std::uint64_t{0};
  };
  RUN_UNTIL(room.loop, lost() == 2);
  room.log.clients.front().release()->abort();
  room.log.clients.clear();
  room.world.set_link(*room.far, true);
  CHECK(room.until_failed(*client) < 3s);
  CHECK_THAT(client->last_error(), Contains("the peer has ended it"));
}
