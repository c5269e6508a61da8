// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Several event loops in one simulated world. A seed chooses the loop that makes the next
// iteration, as if each had a thread of its own; time passes only when all loops are idle. The same
// seed gives the same interleaving.

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <thread>
#include <vector>

#include "ae/loops.h"
#include "tests/simulation/world.h"
#include "tests/support/any_loop.h"

namespace simulation {

/// A process may have one instance at a time; it must be created after its World.
class SteppedLoops final : public ae::Loops {
 public:
  /// Loops 0 to count-1 serve; the `guests` loops after them are not part of the group.
  SteppedLoops(World& world, std::size_t count, std::size_t guests, Choices& choices);
  ~SteppedLoops() override;

  std::size_t size() const noexcept override { return count_; }
  ae::Poster poster(std::size_t index) const override { return posters_[index]; }
  /// Null once the loop has ended.
  ae::EventLoop* loop(std::size_t index) const noexcept override { return loops_[index].get(); }
  std::thread::id thread(std::size_t) const override { return std::this_thread::get_id(); }
  void on_each(const std::function<void(ae::EventLoop&, std::size_t)>& fn) override;
  void set_near(const void* whose, const std::vector<int>& processors) override;
  /// The processors that were announced as near and not taken back.
  const std::map<const void*, std::vector<int>>& near() const noexcept { return near_; }

  bool alive(std::size_t index) const noexcept { return loops_[index] != nullptr; }
  /// Destroys the loop with everything on it.
  void end(std::size_t index);
  /// The loop whose iteration is running.
  std::optional<std::size_t> stepping() const noexcept { return stepping_; }
  /// Something was changed outside of all loops: each loop gets an iteration to notice it.
  void wake() noexcept { idle_.clear(); }
  /// One iteration of one loop, or time passes, but not beyond `limit`.
  void step(Nanoseconds limit);
  /// As if each loop had a processor of its own: runs one iteration of the loop whose clock is
  /// behind; the other loops do not wait for the time that it takes. Must not be mixed with step().
  void step_beside();

 private:
  World& world_;
  Choices& choices_;
  const std::size_t count_;
  std::vector<std::unique_ptr<ae::EventLoop>> loops_;
  std::vector<ae::Poster> posters_;
  std::set<std::size_t> idle_;
  std::map<const void*, std::vector<int>> near_;
  Nanoseconds next_timer_ = World::kNever;
  struct Clock {
    Nanoseconds now;
    std::optional<Nanoseconds> slept;  // since when it has slept
  };
  std::vector<Clock> clocks_;  // of step_beside()
  std::optional<std::size_t> stepping_;
};

}  // namespace simulation
