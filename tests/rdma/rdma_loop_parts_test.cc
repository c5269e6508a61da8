// SPDX-License-Identifier: BSD-3-Clause
// Parts of a loop's RDMA state, without devices: the lists of connections, the owners of queue
// pairs, the share of an iteration, the timer of the wheel, listeners.
#if AECONN_RDMA

#include <array>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <span>
#include <thread>
#include <vector>

#include "conn/rdma/loop/due_connections.h"
#include "conn/rdma/loop/iteration_budget.h"
#include "conn/rdma/loop/listeners.h"
#include "conn/rdma/loop/queue_pair_users.h"
#include "conn/rdma/loop/tick_dispatch.h"
#include "tests/support/any_loop.h"
#include "tests/support/catch.h"

namespace conn { inline namespace AECONN_ABI { namespace rdma { namespace {

using namespace std::chrono_literals;

struct User final : LoopConnection {
  void post_due() noexcept override {
    ++posts;
    if (on_post) on_post();
  }
  void on_tick(ae::TimePoint now, ae::Duration late) noexcept override {
    CHECK(late >= ae::Duration::zero());
    ticked = now;
  }
  ae::TimePoint next_tick() const noexcept override { return ae::TimePoint::max(); }
  void on_memory() noexcept override {
    ++woken;
    if (on_wake) on_wake();
  }
  void reap() override { ++reaped; }
  std::optional<ae::TimePoint> pace_at() const noexcept override { return pace; }

  int posts = 0, woken = 0, reaped = 0;
  std::function<void()> on_post, on_wake;
  std::optional<ae::TimePoint> pace;
  ae::TimePoint ticked{};
};

ae::TimePoint at(ae::Duration time) { return ae::TimePoint(1000s) + time; }

TEST_CASE("rdma loop: a connection is at most once in the list to post", "[rdma][loop]") {
  DueConnections lists;
  User one, other;
  lists.make_room(2);
  CHECK_FALSE(lists.post_due());
  CHECK(lists.add_to_flush(one));
  CHECK_FALSE(lists.add_to_flush(one));
  CHECK(lists.add_to_flush(other));
  CHECK(lists.has_to_flush());
  SECTION("each posts once") {
    CHECK(lists.post_due());
    CHECK(one.posts == 1);
    CHECK(other.posts == 1);
    CHECK_FALSE(lists.post_due());
  }
  SECTION("one that is added while it posts waits for the next call") {
    one.on_post = [&] { CHECK(lists.add_to_flush(one)); };
    CHECK(lists.post_due());
    CHECK(one.posts == 1);
    CHECK(lists.has_to_flush());
  }
  SECTION("one that is removed while another posts does not post") {
    one.on_post = [&] { lists.remove(other); };
    CHECK(lists.post_due());
    CHECK(other.posts == 0);
    CHECK(lists.add_to_flush(other));
  }
}

TEST_CASE("rdma loop: connections are reaped in the order they asked", "[rdma][loop]") {
  DueConnections lists;
  User first, second, third;
  lists.make_room(3);
  CHECK(lists.add_to_reap(first));
  CHECK(lists.add_to_reap(second));
  CHECK(lists.add_to_reap(third));
  CHECK_FALSE(lists.add_to_reap(second));
  CHECK(second.waits_for_reap());
  lists.remove(second);  // it still is to be torn down
  CHECK(second.waits_for_reap());
  CHECK(&lists.take_to_reap() == &first);
  CHECK_FALSE(first.waits_for_reap());
  lists.forget(second);
  CHECK_FALSE(second.waits_for_reap());
  CHECK(&lists.take_to_reap() == &third);
  CHECK_FALSE(lists.has_to_reap());
}

TEST_CASE("rdma loop: those that wait for memory are woken once each, a few at a time",
          "[rdma][loop]") {
  DueConnections lists;
  std::vector<std::unique_ptr<User>> users;
  for (int i = 0; i < 40; ++i) users.push_back(std::make_unique<User>());
  lists.make_room(users.size());
  CHECK_FALSE(lists.memory_came_back());
  CHECK_FALSE(lists.has_to_wake());
  for (const auto& user : users) {
    lists.wait_for_memory(*user);
    lists.wait_for_memory(*user);
    user->on_wake = [&lists, user = user.get()] { lists.wait_for_memory(*user); };  // in vain
  }
  CHECK(lists.memory_came_back());
  int steps = 0;
  for (; lists.has_to_wake(); ++steps) {
    REQUIRE(steps < 40);
    lists.wake_some();
  }
  CHECK(steps > 1);
  for (const auto& user : users) CHECK(user->woken == 1);
  CHECK(lists.memory_came_back());  // all wait again
}

TEST_CASE("rdma loop: one that is forgotten is in no list", "[rdma][loop]") {
  DueConnections lists;
  User user;
  lists.make_room(1);
  user.pace = at(1s);
  lists.attach(user);
  lists.attach(user);
  CHECK(lists.attached() == 1);
  (void)lists.add_to_flush(user);
  (void)lists.add_to_reap(user);
  lists.wait_for_memory(user);
  lists.keep_pace_of(user);
  lists.forget(user);
  lists.forget(user);
  CHECK(lists.attached() == 0);
  CHECK_FALSE(lists.has_to_flush());
  CHECK_FALSE(lists.has_to_reap());
  CHECK_FALSE(lists.memory_came_back());
  CHECK(lists.next_pace() == ae::TimePoint::max());
}

TEST_CASE("rdma loop: the pace of a connection is kept", "[rdma][loop]") {
  DueConnections lists;
  User one, other, without;
  lists.make_room(3);
  one.pace = at(2s);
  other.pace = at(1s);
  for (User* user : {&one, &other, &without}) lists.keep_pace_of(*user);
  CHECK(lists.next_pace() == at(1s));
  CHECK_FALSE(lists.flush_paced(at(999ms)));
  CHECK(lists.flush_paced(at(1s)));
  CHECK_FALSE(lists.flush_paced(at(1s)));
  CHECK(lists.post_due());
  CHECK(other.posts == 1);
  CHECK(one.posts + without.posts == 0);
}

struct Owner final : QueuePairUser {
  explicit Owner(ReceiveQueue* its_receives) : own(its_receives) {}
  void on_sends_done(std::uint32_t) override {}
  void on_immediate(std::uint32_t) override {}
  void on_message(std::span<const std::byte>) override {}
  void on_work_failed(ibv_wc_status, bool, std::uint32_t) override {}
  void on_event(const QueuePairEvent&) override { ++events; }
  void on_no_memory() noexcept override {}
  ReceiveQueue* receives() noexcept override { return own; }

  ReceiveQueue* own;
  int events = 0;
};

// Goal: each queue pair has the owner that was added last, whatever was added and removed before.
// Method: random numbers of few values, near and far from each other, against a std::map.
TEST_CASE("rdma loop: each queue pair's owner is found by its number", "[rdma][loop][random]") {
  const auto seed = GENERATE(range(1u, 21u));
  CAPTURE(seed);
  std::mt19937 random(seed);
  const std::uint32_t distance = std::array<std::uint32_t, 4>{1, 8, 1024, 0x1000000}[seed % 4];
  char places[2];
  std::deque<Owner> owners;
  for (std::size_t i = 0; i < 100; ++i)
    owners.emplace_back(i % 3 == 0 ? nullptr : reinterpret_cast<ReceiveQueue*>(&places[i % 2]));
  QueuePairUsers users;
  std::map<std::uint32_t, Owner*> model;
  for (int step = 0; step < 2000; ++step) {
    const std::uint32_t number = static_cast<std::uint32_t>(random() % 120) * distance;
    if (random() % 2 == 0) {
      Owner& owner = owners[random() % owners.size()];
      users.add(number, &owner);
      model[number] = &owner;
    } else {
      users.remove(number);
      model.erase(number);
    }
    REQUIRE(users.size() == model.size());
    for (std::uint32_t i = 0; i < 120; ++i) {
      const auto found = model.find(i * distance);
      Owner* const expected = found == model.end() ? nullptr : found->second;
      REQUIRE(users.find(i * distance) == expected);
      REQUIRE(users.find_owner(i * distance).receives ==
              (expected == nullptr ? nullptr : expected->own));
    }
  }
  users.tell_all([](QueuePairUser& user) { user.on_event({QueuePairEvent::Kind::kFailed}); });
  std::size_t told = 0;
  for (const Owner& each : owners) told += static_cast<std::size_t>(each.events);
  CHECK(told == model.size());
}

TEST_CASE("rdma loop: the share of an iteration ends, and each list makes a step nevertheless",
          "[rdma][loop]") {
  using Most = IterationBudget::Most;
  IterationBudget iteration;
  iteration.begin();
  const auto number = iteration.number();
  CHECK(iteration.has_share_left());
  {
    const IterationBudget::Spending spending(iteration);
    const IterationBudget::Spending nested(iteration);
    std::this_thread::sleep_for(2ms);
    CHECK_FALSE(iteration.has_share_left());  // what is being spent counts
  }
  CHECK_FALSE(iteration.has_share_left());
  CHECK(iteration.allows(Most::kShare, true));
  CHECK_FALSE(iteration.allows(Most::kShare, false));
  CHECK(iteration.allows(Most::kAll, false));
  CHECK(iteration.may_expire());
  CHECK_FALSE(iteration.may_expire());
  iteration.extend();
  CHECK(iteration.has_share_left());
  CHECK(iteration.number() == number);
  iteration.begin();
  CHECK(iteration.has_share_left());
  CHECK(iteration.number() != number);
  CHECK(iteration.may_expire());
  CHECK(iteration.may_expire());  // time is left
}

TEST_CASE("rdma loop: a scheduled connection wakes the loop in time", "[rdma][loop]") {
  const auto loop = testing::make_loop();
  TickDispatch wheel(*loop);
  User user;
  CHECK(wheel.empty());
  CHECK_FALSE(wheel.must_not_sleep());
  const ae::TimePoint due = std::chrono::steady_clock::now() + 60ms;
  wheel.look_at(user, due + 1h);
  wheel.look_at(user, due);
  CHECK_FALSE(wheel.empty());
  CHECK_FALSE(wheel.must_not_sleep());  // the timer is set
  CHECK(wheel.next(std::chrono::steady_clock::now()) >= due);
  while (user.ticked == ae::TimePoint{}) {
    loop->process_events(ae::kAllEvents);
    wheel.run_due(std::chrono::steady_clock::now());
    REQUIRE(std::chrono::steady_clock::now() < due + 5s);
  }
  CHECK(user.ticked >= due);
  CHECK(wheel.empty());
  wheel.look_at(user, due);
  wheel.stop();
  CHECK(wheel.must_not_sleep());  // scheduled, without a timer
  wheel.remove(user);
  CHECK_FALSE(wheel.must_not_sleep());
}

TEST_CASE("rdma loop: listeners are asked once, and stop with the loop", "[rdma][loop]") {
  struct Listener final : LoopListener {
    const Settings& settings() const noexcept override { return some; }
    bool wishes_prepared() const noexcept override { return false; }
    bool is_on(const std::string&) const override { return false; }
    void retry_if_down() noexcept override { ++retries; }
    ae::TimePoint retry_if_due(ae::TimePoint) noexcept override { return due; }
    void follow_addresses() noexcept override { ++moves; }
    void drop_request(const rdma_cm_id*) noexcept override { ++drops; }
    void loop_gone() noexcept override {
      listeners->remove(*this);
      gone = true;
    }
    Settings some;
    LoopListeners* listeners = nullptr;
    ae::TimePoint due = ae::TimePoint::max();
    int retries = 0, drops = 0, moves = 0;
    bool gone = false;
  };
  const auto loop = testing::make_loop();
  LoopListeners listeners(*loop);
  Listener one, other;
  for (Listener* listener : {&one, &other}) {
    listener->listeners = &listeners;
    listeners.add(*listener);
  }
  listeners.retry_if_asked();
  CHECK(one.retries == 0);
  listeners.ask_again();
  listeners.retry_if_asked();
  listeners.retry_if_asked();
  CHECK(one.retries == 1);
  CHECK(other.retries == 1);
  CHECK(listeners.retry_if_due({}) == ae::TimePoint::max());
  one.due = ae::TimePoint(2s);
  other.due = ae::TimePoint(1s);
  CHECK(listeners.retry_if_due({}) == ae::TimePoint(1s));
  listeners.addresses_changed();
  CHECK(one.moves == 1);
  CHECK(other.moves == 1);
  listeners.drop_request(nullptr);
  CHECK(one.drops == 1);
  listeners.loop_gone();
  CHECK(one.gone);
  CHECK(other.gone);
  CHECK(listeners.empty());
}

}  // namespace
}}}  // namespace conn::rdma

#endif  // AECONN_RDMA
