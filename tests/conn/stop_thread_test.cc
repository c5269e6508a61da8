// SPDX-License-Identifier: BSD-3-Clause
// A Stop of one loop, and the threads that make it, run its loop and destroy it.

#include <atomic>
#include <memory>
#include <optional>
#include <thread>

#include "conn/stop.h"
#include "conn/stopping.h"
#include "tests/support/any_loop.h"
#include "tests/support/await.h"
#include "tests/support/catch.h"
#include "tests/support/testing.h"

using conn::Stop;
using conn::Stopping;

namespace {

Stop::Settings settings() {
  return {.limit = ae::Duration::max(), .signals = {}, .ends = [] {}};
}

/// Remembers the thread that destroys the last copy.
struct Witness {
  explicit Witness(std::thread::id& at) : at_(at) {}
  Witness(const Witness&) = delete;
  Witness& operator=(const Witness&) = delete;
  ~Witness() { at_ = std::this_thread::get_id(); }

 private:
  std::thread::id& at_;
};

}  // namespace

TEST_CASE("stop: destroyed on the thread that runs the loop, but did not make the stop", "[stop]") {
  testing::AnyLoop loop;
  auto stop = std::make_unique<Stop>(loop, settings());
  const bool has_begun = GENERATE(false, true);
  bool left = true;
  const auto destroy = [&] {
    stop.reset();
    left = Stopping::of(loop).begun();
    loop.stop();
  };
  std::thread([&] {
    std::optional<conn::StopHook> hook;
    if (has_begun) {
      hook.emplace(loop, destroy);
      stop->request();
    } else {
      loop.add_time_event(ae::Duration::zero(), [&] { return destroy(), ae::kNoMore; });
    }
    loop.run();
  }).join();
  CHECK(stop == nullptr);
  CHECK_FALSE(left);
  stop = std::make_unique<Stop>(loop, settings());  // another may follow
}

TEST_CASE("stop: destroyed where it was made, after another thread has run the loop", "[stop]") {
  testing::AnyLoop loop;
  auto stop = std::make_unique<Stop>(loop, settings());
  std::thread([&] {
    loop.post([&] { loop.stop(); });
    loop.run();
  }).join();
  stop.reset();  // waits for nobody
  loop.post([&] { loop.stop(); });
  loop.run();
}

TEST_CASE("stop: destroyed elsewhere, what it owns ends on the thread of its loop", "[stop]") {
  testing::Site site({.name = "tcp"});
  testing::AnyLoop loop;
  std::unique_ptr<Stop> stop;
  std::thread::id kept_at, listener_at;
  std::atomic<bool> made{false};
  std::thread runs([&] {
    stop = std::make_unique<Stop>(loop, settings());
    stop->add(site.registry.listen(
        loop, site.fresh(),
        [handler = stop->keep([kept = std::make_shared<Witness>(kept_at)](conn::ConnectionPtr) {}),
         listens = std::make_shared<Witness>(listener_at)](conn::ConnectionPtr arrival) {
          handler(std::move(arrival));
        }));
    made = true;
    loop.run();
  });
  const std::thread::id there = runs.get_id();
  testing::await([&] { return made.load(); });
  stop.reset();
  CHECK(listener_at == there);
  CHECK(kept_at == there);
  loop.post([&] { loop.stop(); });
  runs.join();
}
