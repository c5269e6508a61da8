// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Several event loops in one simulated world. A seed chooses which of them makes its next
// iteration, as if each had a thread of its own; time goes on only when none has anything to do.
// The same seed gives the same interleaving.

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <vector>

#include "ae/loops.h"
#include "tests/simulation/world.h"
#include "tests/support/any_loop.h"

namespace simulation {

/// What one process has is one of these at a time, made after its World.
class SteppedLoops final : public ae::Loops {
 public:
  /// Loop 0 to count-1 serve; the `guests` beyond are no part of the group.
  SteppedLoops(World& world, std::size_t count, std::size_t guests, Choices& choices);
  ~SteppedLoops() override;

  std::size_t size() const noexcept override { return count_; }
  ae::Poster poster(std::size_t index) const override { return posters_[index]; }
  void on_each(const std::function<void(ae::EventLoop&, std::size_t)>& fn) override;
  void set_near(const void* whose, const std::vector<int>& processors) override;
  /// What was said so, and not taken back.
  const std::map<const void*, std::vector<int>>& near() const noexcept { return near_; }

  ae::EventLoop& loop(std::size_t index) const noexcept { return *loops_[index]; }
  bool alive(std::size_t index) const noexcept { return loops_[index] != nullptr; }
  /// With all that is on it.
  void end(std::size_t index);
  /// Whose iteration this is.
  std::optional<std::size_t> stepping() const noexcept { return stepping_; }
  /// Something was done outside of all loops: each is to have a look.
  void wake() noexcept { idle_.clear(); }
  /// One iteration of one loop, or time goes on, but not beyond `limit`.
  void step(Nanoseconds limit);
  /// As if each had a processor of its own: one iteration of the loop that is behind, on its clock.
  /// What it costs the others do not wait for. Not together with step().
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
    std::optional<Nanoseconds> slept;  // since when
  };
  std::vector<Clock> clocks_;  // of step_beside()
  std::optional<std::size_t> stepping_;
};

}  // namespace simulation
