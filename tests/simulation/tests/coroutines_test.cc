// SPDX-License-Identifier: BSD-3-Clause
// Coroutines while memory runs out: each allocation of a session fails once, in turn. The failure
// must be an error of that session or an exception that leaves the loop; it must leave nothing
// behind, and the next session must work.

#include <fmt/format.h>

#include <cstdint>
#include <memory>
#include <new>
#include <string>
#include <utility>

#include "conn/rdma/device/memory.h"
#include "conn/transports/transports.h"
#include "tests/simulation/child.h"
#include "tests/simulation/memory.h"
#include "tests/simulation/world.h"
#include "tests/support/catch.h"
#include "tests/support/certificates.h"
#include "tests/support/co_session.h"
#include "tests/support/testing.h"

using namespace simulation;
namespace co = conn::co;

namespace {

struct Outcome {
  std::uint64_t failed = 0;    // sessions whose Nth allocation failed
  std::uint64_t survived = 0;  // of these, sessions that completed
};

class Trial {
 public:
  explicit Trial(std::string transport) : transport_(std::move(transport)) {
    world_.add_device("sim0", "10.77.0.1", all_profiles().front());
    for (const auto& each : registry_.types())
      if (each->name().starts_with("tls"))
        each->configure(testing::test_tls_options(each->name() == "tls+rdma" ? "localhost" : ""));
  }

  std::string run(std::uint64_t number, Outcome& outcome) {
    loop_ = testing::make_loop();
    if (!session(0)) return "no session to begin with: " + error_;
    outcome.survived = session(number) ? 1 : 0;
    outcome.failed = failed_ ? 1 : 0;
    if (!ended_) return "a session never came to an end";
    if (!session(0)) return "no session afterwards: " + error_;
    const Nanoseconds end = world_.now() + 200s;
    while (world_.now() < end) turn();
    loop_.reset();
    world_.advance(world_.now() + 1s);
    world_.let_orphans_go();
    for (const auto& [kind, count] : world_.objects())
      if (count != 0) return fmt::format("left behind: {} {}", count, kind);
    for (const std::string& each : world_.violations()) return each;
    return conn::rdma::registered_bytes() != 0 ? "registered bytes are counted wrong" : "";
  }

 private:
  conn::Endpoint fresh() {
    std::string url = transport_ + "://";
    if (transport_.ends_with("rdma"))
      url += "10.77.0.1:0";
    else if (transport_.ends_with("unix") || transport_.ends_with("shm"))
      url += fmt::format("{}/{}", folder_.path(), ++names_);
    else
      url += "127.0.0.1:0";
    return conn::Endpoint::parse(url);
  }

  /// Returns whether everything was echoed. The session ends in any case.
  bool session(std::uint64_t number) {
    conn::co::Scope scope;
    testing::CoSession session(registry_, *loop_, scope);
    const conn::Endpoint at = fresh();
    session.patience = 20s;
    const Nanoseconds limit = world_.now() + 120s;
    fail_allocation(Allocator::kNew, number);
    try {
      session.start(at);
    } catch (const std::bad_alloc&) {
    } catch (const conn::Error&) {
    }
    while (!scope.empty() && !session.finished && world_.now() < limit) turn();
    failed_ = allocation_failed();
    fail_allocation(Allocator::kNew, 0);
    ended_ = world_.now() < limit;
    error_ = session.error;
    return session.finished;
  }

  // An exception from a task leaves the loop; the loop remains usable.
  void turn() {
    try {
      const ae::TimerId tick = loop_->add_time_event(1s, [] { return ae::kNoMore; });
      (void)loop_->process_events(ae::kFullIteration);
      loop_->remove_time_event(tick);
    } catch (const std::bad_alloc&) {
    }
  }

  std::string transport_;
  World world_;
  conn::Registry registry_ = conn::all_transports();
  testing::TempFolder folder_;
  int names_ = 0;
  std::unique_ptr<ae::EventLoop> loop_;
  std::string error_;
  bool failed_ = false, ended_ = true;
};

/// Counts the living instances.
struct Held {
  explicit Held(int& its_count) noexcept : count(&its_count) { ++*count; }
  Held(const Held& other) noexcept : Held(*other.count) {}
  Held& operator=(const Held&) = delete;
  ~Held() { --*count; }
  int* count;
};

co::Task<> hold(Held, int& began) {
  ++began;
  co_return;
}

co::Task<int> value(Held) { co_return 1; }

}  // namespace

TEST_CASE("coroutine: one whose frame finds no memory is empty, and says so where it is used",
          "[simulation][co]") {
  int held = 0, began = 0;
  const auto starved = [](auto make) {
    fail_allocation(Allocator::kNew, 1);
    auto task = make();
    REQUIRE(allocation_failed());
    fail_allocation(Allocator::kNew, 0);
    return task;
  };
  co::Scope scope;
  co::Task<> task = starved([&] { return hold(Held(held), began); });
  CHECK(held == 0);
  CHECK(task.done());
  CHECK_THROWS_AS(scope.spawn(std::move(task)), std::bad_alloc);
  CHECK(scope.empty());
  const auto awaits = [](auto starve, int& count, int& begun, int& thrown) -> co::Task<> {
    try {
      co_await starve([&] { return hold(Held(count), begun); });
    } catch (const std::bad_alloc&) {
      ++thrown;
    }
    try {
      [[maybe_unused]] const int one = co_await starve([&] { return value(Held(count)); });
    } catch (const std::bad_alloc&) {
      ++thrown;
    }
    try {
      co::Task<int> none = starve([&] { return value(Held(count)); });
      [[maybe_unused]] const auto which =
          co_await co::first(hold(Held(count), begun), std::move(none));
    } catch (const std::bad_alloc&) {
      ++thrown;
    }
  };
  int thrown = 0;
  scope.spawn(awaits(starved, held, began, thrown));
  CHECK(scope.empty());
  CHECK(thrown == 3);
  CHECK(held == 0);
  CHECK(began == 0);
}

TEST_CASE("torture: each allocation may fail where coroutines serve and ask",
          "[simulation][torture][co]") {
  const std::string transport = GENERATE("rdma", "tcp", "unix", "shm", "tls+rdma", "tls");
  testing::test_identity();
  std::uint64_t tried = 0, survived = 0;
  const Stride which;
  for (std::uint64_t number = which.first;; number += which.each) {
    const ChildRun<Outcome> run = run_in_child<Outcome>(
        [&](Outcome& outcome) { return Trial(transport).run(number, outcome); });
    CAPTURE(transport, number, run.complaint);
    REQUIRE(run.complaint.empty());
    if (run.sums.failed == 0) break;
    ++tried;
    survived += run.sums.survived;
  }
  fmt::print("{}: {} allocations failed in turn, {} went unnoticed\n", transport, tried, survived);
  CHECK(which.first + tried * which.each > 21);  // the first that did not fail
}
