// SPDX-License-Identifier: BSD-3-Clause
// resume=yes: requests to forget a session by peers without the right to it, or who say what is not
// so.

#include <algorithm>
#include <array>
#include <functional>
#include <string>

#include "tests/simulation/stepped_loops.h"
#include "tests/simulation/stranger.h"

using namespace simulation;
using conn::rdma::Hello;
using conn::rdma::ResumeMessage;
using testing::Contains;

namespace {

ResumeMessage forget(const Stranger& stranger, std::uint32_t generation, std::uint64_t received,
                     std::uint64_t total) {
  ResumeMessage message = stranger.message(generation, received);
  message.reason = conn::rdma::ResumeReason::kForget;
  message.total = total;
  return message;
}

}  // namespace

TEST_CASE("resume: who has no right to a session cannot have it forgotten",
          "[simulation][resume][forget][hostile]") {
  if (chosen_profile().iwarp) return;  // nothing resumes there
  Stranger stranger;
  testing::RawPeer& first = stranger.begin();
  stranger.echo(first, "one");
  testing::RawPeer& peer = stranger.ask(stranger.message(5, 3));
  RUN_UNTIL(stranger.room.loop, peer.established && !peer.offers.empty());
  stranger.echo(peer, "two");
  SECTION("a wrong MAC") {
    CHECK_THAT(stranger.refusal(stranger.ask(forget(stranger, 6, 6, 6), true)),
               Contains("unknown session"));
  }
  SECTION("another session") {
    ResumeMessage other = forget(stranger, 6, 6, 6);
    other.session ^= 1;
    CHECK_THAT(stranger.refusal(stranger.ask(other)), Contains("unknown session"));
  }
  SECTION("the same generation again") {
    CHECK_THAT(stranger.refusal(stranger.ask(forget(stranger, 5, 6, 6))),
               Contains("unknown session"));
  }
  SECTION("an older generation") {
    CHECK_THAT(stranger.refusal(stranger.ask(forget(stranger, 4, 6, 6))),
               Contains("unknown session"));
  }
  SECTION("bytes that were captured, from elsewhere") {
    // The request as its owner would send it from another port, never delivered.
    const ResumeMessage message = forget(stranger, 6, 6, 6);
    testing::RawOptions options;
    conn::rdma::BoundAddress other = bound_to(*stranger.peers.front());
    other.back() ^= std::byte{1};
    options.private_data = text_of(seal_request(message, stranger.grant.key, other));
    CHECK_THAT(stranger.refusal(stranger.connect(options)), Contains("unknown session"));
  }
  SECTION("an answer, sent as a request") {
    testing::RawOptions options;
    options.private_data = text_of(
        seal_answer(forget(stranger, 6, 6, 6), stranger.grant.key, std::array<std::byte, 16>{}));
    CHECK_THAT(stranger.refusal(stranger.connect(options)), Contains("unknown session"));
  }
  CHECK(stranger.counted("resumes_refused") == 1);
  CHECK(stranger.counted("sessions_forgotten") == 0);
  stranger.echo(peer, "three");
  CHECK(stranger.counted("paths_lost") == 0);
}

TEST_CASE("resume: a session is forgotten once, and a copy of the request is of no use",
          "[simulation][resume][forget][hostile]") {
  if (chosen_profile().iwarp) return;  // nothing resumes there
  Stranger stranger;
  stranger.echo(stranger.begin(), "one");
  // From a path that works: whoever has the key may close the connection.
  CHECK_THAT(stranger.refusal(stranger.ask(forget(stranger, 1, 3, 3))),
             Contains("the stream is over"));
  CHECK(stranger.ending() == "end of stream");
  CHECK(stranger.counted("sessions_forgotten") == 1);
  testing::RawOptions options;
  options.private_data = stranger.last;
  CHECK_THAT(stranger.refusal(stranger.connect(options)), Contains("unknown session"));
  for (const std::uint32_t generation : {1u, 2u})
    CHECK_THAT(stranger.refusal(stranger.ask(forget(stranger, generation, 3, 3))),
               Contains("unknown session"));
  CHECK_THAT(stranger.refusal(stranger.ask(stranger.message(3, 3))), Contains("unknown session"));
  CHECK(stranger.counted("sessions_forgotten") == 1);
  CHECK(stranger.counted("resumes_refused") == 4);
  CHECK(stranger.counted("paths_lost") == 0);
  CHECK(stranger.room.log.endings.size() == 1);
}

TEST_CASE("resume: where a forgotten stream ends must be where its bytes end",
          "[simulation][resume][forget][hostile]") {
  if (chosen_profile().iwarp) return;  // nothing resumes there
  struct Case {
    std::uint64_t total, received;
    const char *refusal, *ending;
  };
  const Case each = GENERATE(Case{6, 5, "bytes are missing", "the last 1 bytes of its stream"},
                             Case{~std::uint64_t{0}, 5, "bytes are missing", "did not arrive"},
                             Case{5 + (std::uint64_t{1} << 32), 5, "bytes are missing", "the last"},
                             Case{4, 5, "bytes are missing", "at another byte"},
                             Case{0, 5, "bytes are missing", "at another byte"},
                             Case{5, 5, "the stream is over", "end of stream"},
                             // What the server wrote is confirmed: less or more cannot be.
                             Case{5, 4, "the stream is over", "end of stream"},
                             Case{5, 6, "the stream is over", "end of stream"},
                             Case{5, ~std::uint64_t{0}, "the stream is over", "end of stream"});
  CAPTURE(each.total, each.received);
  Stranger stranger;
  stranger.echo(stranger.begin(), "12345");
  stranger.room.run_for(4s);  // until the server's bytes are confirmed
  CHECK_THAT(stranger.refusal(stranger.ask(forget(stranger, 1, each.received, each.total))),
             Contains(each.refusal));
  CHECK_THAT(stranger.ending(), Contains(each.ending));
  CHECK(stranger.counted("sessions_forgotten") == 1);
  CHECK(stranger.counted("paths_lost") == 0);
}

TEST_CASE("resume: requests for a path and to forget at the same time: the later one counts",
          "[simulation][resume][forget][hostile]") {
  if (chosen_profile().iwarp) return;  // nothing resumes there
  const bool forgets_last = GENERATE(true, false);
  CAPTURE(forgets_last);
  Stranger stranger;
  stranger.echo(stranger.begin(), "one");
  const ResumeMessage path = stranger.message(forgets_last ? 1 : 2, 3);
  const ResumeMessage end = forget(stranger, forgets_last ? 2 : 1, 3, 3);
  testing::RawPeer& older = stranger.ask(forgets_last ? path : end);
  testing::RawPeer& newer = stranger.ask(forgets_last ? end : path);
  RUN_UNTIL(stranger.room.loop, newer.over() || newer.established);
  RUN_UNTIL(stranger.room.loop, older.over() || older.established);
  stranger.room.run_for(1s);
  CHECK(stranger.counted("paths_lost") == 0);
  if (forgets_last) {
    CHECK(stranger.ending() == "end of stream");
    CHECK(stranger.counted("sessions_forgotten") == 1);
  } else if (stranger.counted("sessions_forgotten") == 0) {
    stranger.echo(newer, "two");
  } else {  // the first was carried out before the second came
    CHECK_THAT(newer.private_data, Contains("unknown session"));
  }
}

TEST_CASE("resume: ten thousand forged requests to forget leave the session as it is",
          "[simulation][resume][forget][hostile]") {
  if (chosen_profile().iwarp) return;  // nothing resumes there
  Stranger stranger;
  testing::RawPeer& peer = stranger.begin();
  stranger.echo(peer, "before");
  const auto objects = stranger.room.world.objects();
  for (int batch = 0; batch < 100; ++batch) {
    for (int i = 0; i < 100; ++i) (void)stranger.ask(forget(stranger, 1, 6, 6), true, false);
    RUN_UNTIL(stranger.room.loop, [&] {
      return std::all_of(stranger.peers.begin() + 1, stranger.peers.end(),
                         [](const auto& each) { return each->failed; });
    }());
    stranger.peers.resize(1);
    stranger.echo(peer, "between");
  }
  CHECK(stranger.counted("resumes_refused") == 10000);
  CHECK(stranger.counted("sessions_forgotten") == 0);
  stranger.room.run_for(1s);
  CHECK(stranger.room.world.objects() == objects);
}

TEST_CASE("resume: a listener of another loop passes a request to forget on",
          "[simulation][resume][forget][hostile]") {
  if (chosen_profile().iwarp) return;  // nothing resumes there
  const bool forged = GENERATE(false, true);
  CAPTURE(forged);
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
    const auto counted = [&](std::size_t loop, const std::string& name) {
      for (const auto& [key, value] : type.statistics(*loops.loop(loop)))
        if (key == name) return value;
      return ~std::uint64_t{0};
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
      testing::RawOptions again;
      again.source = "10.77.0.2";
      again.at_request = [&](testing::RawPeer& here) {
        conn::rdma::SipKey key = grant.key;
        if (forged) key[7] ^= std::byte{1};
        return text_of(conn::rdma::seal_request({.hello = {.flags = Hello::kFinishes},
                                                 .generation = 1,
                                                 .session = grant.session,
                                                 .received = 3,
                                                 .total = 3,
                                                 .reason = conn::rdma::ResumeReason::kForget},
                                                key, bound_to(here)));
      };
      auto next = net.connect(listeners[1]->endpoints().front(), again);
      until([&] { return next->failed; });
      CHECK_THAT(next->private_data, Contains(forged ? "unknown session" : "the stream is over"));
      if (!forged) until([&] { return !logs[0].endings.empty(); });
      CHECK(logs[0].endings.size() == (forged ? 0 : 1));
      CHECK(counted(0, "sessions_forgotten") == (forged ? 0 : 1));
      CHECK(counted(1, "sessions_forgotten") == 0);
      CHECK(counted(1, "resumes_refused") == (forged ? 1 : 0));
      CHECK(logs[1].clients.empty());
      if (forged) {
        peer->stream("two");
        until([&] { return peer->received == "onetwo"; });
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
