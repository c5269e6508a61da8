// SPDX-License-Identifier: BSD-3-Clause
// Setup by itself (conn/rdma/setup.h): its time-outs, exceptions of the connection, and what an
// abandoned set-up leaves behind.

#include <cerrno>
#include <map>
#include <new>
#include <string>
#include <thread>
#include <utility>

#include "conn/rdma/device/verbs.h"
#include "tests/simulation/refuse_timers.h"
#include "tests/simulation/setup_bed.h"
#include "tests/support/names.h"

using namespace simulation;
using Catch::Matchers::StartsWith;
using conn::rdma::CmEvent;
using conn::rdma::Deadline;
using conn::rdma::Phase;
using conn::rdma::Setup;
using conn::rdma::VerbsError;
using testing::Contains;

// --- time-outs -----------------------------------------------------------------------------------

TEST_CASE("rdma set-up: each step has a time-out", "[simulation][set-up]") {
  // The event after which there is no answer; ADDR_ERROR: there is none from the beginning.
  const auto after =
      GENERATE(RDMA_CM_EVENT_ADDR_ERROR, RDMA_CM_EVENT_ADDR_RESOLVED, RDMA_CM_EVENT_ROUTE_RESOLVED);
  const bool last = GENERATE(true, false);
  CAPTURE(after, last);
  SetupBed one;
  one.listen(kPeer);
  one.listen(kOther);
  bool stalled = after == RDMA_CM_EVENT_ADDR_ERROR;
  one.stall(stalled);
  one.before_event = [&](const CmEvent& event) {
    if (event.type == after && !std::exchange(stalled, true)) one.stall(true);
    return true;
  };
  ae::Duration took{};
  one.on_expiry = [&] {
    took = one.now() - one.began;
    one.stall(false);
  };
  Setup& setup = last ? one.make({kPeer}, 6s) : one.make({kPeer, kOther}, 6s);
  setup.look_up_all(ae::TimePoint::max());
  const ae::Duration share = setup.address_deadline() - one.began;
  CHECK(share > (last ? 5990ms : 2990ms));
  CHECK(share < (last ? 6001ms : 3001ms));
  one.finish();
  CHECK(took >= share - 1ms);
  CHECK(took < share + 10ms);
  CHECK(one.bed.expired == std::vector{Deadline::Of::kAddress});
  if (last) {
    CHECK(one.failure().code == std::errc::timed_out);
    CHECK(one.failure().text ==
          "connect to rdma://10.77.0.2:7: 10.77.0.2:7 did not answer in time");
  } else {
    CHECK(one.set_up == 1);
    CHECK(setup.address() == 1);
    CHECK(setup.address_deadline() - one.began > 5900ms);  // the last address may use all time left
  }
  one.run_for(8s);
  CHECK(one.bed.expired.size() == 1);
}

TEST_CASE("rdma set-up: the look-up of a name has a time-out", "[simulation][set-up]") {
  testing::Names names;
  names.hold("silent.test");
  const bool after_others = GENERATE(false, true);
  const bool blocks = GENERATE(false, true);
  CAPTURE(after_others, blocks);
  SetupBed one;
  one.listen(kPeer);
  Setup& setup =
      after_others ? one.make({kPeer, "silent.test"}, 5s) : one.make({"silent.test"}, 5s);
  if (blocks) {
    // The time that the caller allows, but no longer than the whole set-up may take.
    const bool early = after_others || GENERATE(true, false);
    setup.look_up_all(one.began + (early ? 2s : 9s));
    if (after_others) {
      // The addresses that are known are tried.
      one.finish();
      CHECK(one.set_up == 1);
      return;
    }
    CHECK(one.now() - one.began >= (early ? 2s : 5s));
    CHECK(one.now() - one.began < (early ? 3s : 6s));
    CHECK_THAT(one.failure().text, Contains("silent.test"));
  } else {
    const ae::Duration took = one.run();
    CHECK(took >= 5s);
    CHECK(took < 5010ms);
    CHECK_THAT(one.failure().text, StartsWith("connect to rdma://") &&
                                       Contains(":7: the name service did not answer in time"));
  }
  CHECK(one.failure().code == std::errc::timed_out);
  CHECK(one.calls("rdma_resolve_addr") == 0);  // there is no time left for a known address
}

TEST_CASE("rdma set-up: once its time is over no further address is tried",
          "[simulation][set-up]") {
  SetupBed one;
  one.listen(kPeer);
  one.listen(kOther);
  one.stall(true);
  Setup& setup = one.make({kPeer, kOther}, 1s);
  setup.look_up_all(ae::TimePoint::max());
  one.bed.world.spend(2s);
  setup.on_deadline();
  CHECK_THAT(one.failure().text, Contains("10.77.0.2:7 did not answer in time"));
  CHECK(setup.time_left() <= 0s);
  CHECK(one.calls("rdma_resolve_addr") == 1);
}

TEST_CASE("rdma set-up: without memory for its timer an address is not tried",
          "[simulation][set-up][memory]") {
  const bool blocks = GENERATE(false, true);
  SetupBed one;
  one.listen(kPeer);
  Setup& setup = one.make({kPeer});
  if (!blocks) setup.look_up_next();
  refuse_timers(one.bed.loop);
  bool threw = false;
  try {
    if (blocks)
      setup.look_up_all(ae::TimePoint::max());
    else
      testing::turns(one.bed.loop, 3);
  } catch (const std::bad_alloc&) {
    threw = true;
  }
  fail_allocation(Allocator::kNew, 0);
  // The caller of a function that blocks gets the exception.
  CHECK(threw == blocks);
  CHECK(one.failures.size() == (blocks ? 0 : 1));
  if (!blocks) CHECK(one.failure().code == std::errc::not_enough_memory);
  CHECK(one.calls("rdma_resolve_addr") == 0);
  CHECK_FALSE(one.bed.link.id());
}

TEST_CASE("rdma set-up: without memory an address fails or the caller gets the exception",
          "[simulation][set-up][memory]") {
  int reported = 0, thrown = 0;
  for (std::uint64_t number = 1;; ++number) {
    INFO(number);
    SetupBed one;
    one.listen(kPeer);
    Setup& setup = one.make({kPeer});
    refuse_timers(one.bed.loop);
    fail_allocation(Allocator::kNew, number);
    bool threw = false;
    try {
      setup.look_up_all(ae::TimePoint::max());
    } catch (const std::bad_alloc&) {
      threw = true;
    }
    const bool failed = allocation_failed();
    fail_allocation(Allocator::kNew, 0);
    CHECK(threw + one.failures.size() == failed);
    thrown += threw;
    if (threw || !failed) CHECK(one.failures.empty());
    if (!one.failures.empty()) {
      ++reported;
      CHECK(one.failure().code == std::errc::not_enough_memory);
      CHECK(one.failure().text == "connect to rdma://10.77.0.2:7: out of memory");
    }
    if (!failed) break;
    REQUIRE(number < 100);
  }
  CHECK(thrown > 0);
  CHECK(reported > 0);  // at least where there is no memory for the timer
}

// --- exceptions of the connection ----------------------------------------------------------------

TEST_CASE("rdma set-up: an exception of the connection fails the address", "[simulation][set-up]") {
  const bool next = GENERATE(false, true);
  const int where = GENERATE(0, 1, 2, 3);
  CAPTURE(next, where);
  SetupBed one;
  one.listen(kPeer);
  one.listen(kOther);
  Hellos hellos(one);
  bool thrown = false;
  const auto throws = [&] {
    if (std::exchange(thrown, true)) return;
    if (where == 2) throw std::bad_alloc();
    throw VerbsError("the hellos do not fit", EPROTO);
  };
  if (where == 0) hellos.at_request = throws;
  if (where == 1 || where == 2) hellos.at_answer = throws;
  if (where == 3) one.throws = 1;
  Setup& setup =
      next ? one.make({kPeer, kOther}, 10s, 0, &hellos) : one.make({kPeer}, 10s, 0, &hellos);
  one.run();
  CHECK(hellos.renewed == 1);
  CHECK(one.escaped == 0);
  if (next) {
    CHECK(one.set_up == 1);
    CHECK(setup.address() == 1);
    return;
  }
  CHECK_FALSE(one.bed.link.id());
  if (where < 2) {
    CHECK(one.failure().code == std::errc::protocol_error);
    CHECK_THAT(one.failure().text, Contains("the hellos do not fit"));
  } else {
    CHECK(one.failure().code == std::errc::not_enough_memory);
  }
}

TEST_CASE("rdma set-up: a stream that cannot be renewed ends the set-up", "[simulation][set-up]") {
  SetupBed one;
  Hellos hellos(one);
  hellos.at_renewal = [] { throw std::bad_alloc(); };
  one.listen(kOther);
  SECTION("in the loop: the failure is reported") {
    one.make({kPeer, kOther}, 10s, 0, &hellos);
    one.bed.world.fail_call(1);  // while the result of the look-up is handled
    one.run();
    CHECK(one.failure().code == std::errc::not_enough_memory);
  }
  SECTION("in an event: the connection gets the exception") {
    one.make({kPeer, kOther}, 10s, 0, &hellos);
    one.start();
    RUN_UNTIL(one.bed.loop, one.escaped == 1);
    CHECK_FALSE(one.over());
  }
  CHECK(one.calls("rdma_connect") <= 1);
  CHECK_FALSE(one.bed.link.id());
}

TEST_CASE("rdma set-up: a connection that ends while an address fails is not called again",
          "[simulation][set-up]") {
  const bool next = GENERATE(false, true);
  SetupBed one;
  one.listen(kOther);
  Hellos hellos(one);
  hellos.at_renewal = [&] { one.bed.link.stage.move(Phase::kDead); };
  if (next)
    one.make({kPeer, kOther}, 10s, 0, &hellos);
  else
    one.make({kPeer}, 10s, 0, &hellos);
  one.start();
  RUN_UNTIL(one.bed.loop, hellos.renewed == 1);
  one.run_for(20s);
  CHECK_FALSE(one.over());
  CHECK(one.calls("rdma_resolve_addr") == 1);
}

// --- abandoning ----------------------------------------------------------------------------------

TEST_CASE("rdma set-up: abandoned, it leaves nothing behind", "[simulation][set-up]") {
  enum { kLookUp, kName, kAddress, kRoute, kConnect, kAnswer };
  const int stage = GENERATE(+kLookUp, +kName, +kAddress, +kRoute, +kConnect, +kAnswer);
  CAPTURE(stage);
  testing::Names names;
  SetupBed one;
  one.listen(kPeer);
  one.listen(kOther);
  bool answered = false;
  one.before_event = [&](const CmEvent& event) {
    answered =
        event.type == RDMA_CM_EVENT_CONNECT_RESPONSE || event.type == RDMA_CM_EVENT_ESTABLISHED;
    if (answered) one.abandon();
    return !answered;
  };
  std::map<std::string, int> left;
  for (int round = 1; round <= 3; ++round) {
    CAPTURE(round);
    names.hold("silent.test");
    answered = false;
    if (round != 1) one.begin_again();
    one.make({stage == kName ? "silent.test" : kPeer, kOther});
    one.start();
    if (stage == kName) {
      for (int i = 0; i < 10'000'000 && names.held() == 0; ++i) std::this_thread::yield();
      REQUIRE(names.held() == 1);
      testing::turns(one.bed.loop, 2);
    }
    const std::int64_t before = one.calls("rdma_resolve_addr");
    if (stage == kAddress) RUN_UNTIL(one.bed.loop, one.calls("rdma_resolve_addr") == before + 1);
    if (stage == kRoute) RUN_UNTIL(one.bed.loop, one.has_handled(RDMA_CM_EVENT_ADDR_RESOLVED));
    if (stage == kConnect) RUN_UNTIL(one.bed.loop, one.has_handled(RDMA_CM_EVENT_ROUTE_RESOLVED));
    if (stage == kAnswer) RUN_UNTIL(one.bed.loop, answered);
    CHECK(one.ids() == (stage >= kAddress && stage <= kConnect ? 1 : 0));
    CHECK((one.bed.link.queue_pair() != nullptr) == (stage == kConnect));
    if (stage != kAnswer) one.abandon();
    CHECK(one.ids() == 0);
    CHECK(one.bed.link.queue_pair() == nullptr);
    // No timer is left, nor a look-up.
    CHECK(one.bed.loop.process_events(ae::kTimeEvents | ae::kDontWait) == 0);
    names.release("silent.test");
    if (stage == kName) {
      while (names.held() != 0) std::this_thread::yield();
      testing::turns(one.bed.loop, 1000);
    }
    one.bed.take();
    const std::int64_t tried = one.calls("rdma_resolve_addr");
    one.run_for(110s);
    CHECK(one.bed.take().empty());  // neither an event nor a deadline
    CHECK_FALSE(one.over());
    CHECK(one.calls("rdma_resolve_addr") == tried);
    // The loop keeps objects of the device for later connections, but no more after each round.
    if (round == 1) left = one.bed.world.objects();
    CHECK(one.bed.world.objects() == left);
  }
}
