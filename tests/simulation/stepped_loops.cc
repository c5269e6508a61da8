// SPDX-License-Identifier: BSD-3-Clause
#include "tests/simulation/stepped_loops.h"

#include <algorithm>
#include <utility>

namespace simulation {

SteppedLoops::SteppedLoops(World& world, std::size_t count, std::size_t guests, Choices& choices)
    : world_(world), choices_(choices), count_(count) {
  for (std::size_t i = 0; i < count + guests; ++i) {
    loops_.push_back(testing::make_loop());
    posters_.push_back(loops_.back()->poster());
  }
  world_.stepping = true;
}

SteppedLoops::~SteppedLoops() {
  for (const Clock& each : clocks_)
    if (!each.slept && each.now != World::kNever)
      world_.set_clock(std::max(world_.now(), each.now), World::kNever);
  world_.set_clock(world_.now(), World::kNever);
  for (std::size_t i = loops_.size(); i-- > 0;) end(i);
  world_.stepping = false;
}

void SteppedLoops::on_each(const std::function<void(ae::EventLoop&, std::size_t)>& fn) {
  bool ended = false;
  for (std::size_t i = 0; i < count_; ++i) {
    const auto before = std::exchange(stepping_, i);
    if (alive(i))
      fn(*loops_[i], i);
    else
      ended = true;
    stepping_ = before;
  }
  if (ended) throw ae::LoopError("a loop has ended");
}

void SteppedLoops::set_near(const void* whose, const std::vector<int>& processors) {
  if (processors.empty())
    near_.erase(whose);
  else
    near_[whose] = processors;
}

void SteppedLoops::end(std::size_t index) {
  const auto before = std::exchange(stepping_, index);
  loops_[index].reset();
  stepping_ = before;
  idle_.clear();
}

void SteppedLoops::step(Nanoseconds limit) {
  std::vector<std::size_t> living;
  for (std::size_t i = 0; i < loops_.size(); ++i)
    if (alive(i)) living.push_back(i);
  const std::size_t index = living[choices_() % living.size()];
  world_.wish = World::kNever;
  stepping_ = index;
  const std::size_t ran = loops_[index]->process_events(ae::kFullIteration);
  stepping_.reset();
  if (ran > 0 || world_.wish <= world_.now()) {  // others may have something to do, too
    idle_.clear();
    next_timer_ = World::kNever;
    return;
  }
  next_timer_ = std::min(next_timer_, world_.wish);
  idle_.insert(index);
  if (idle_.size() < living.size()) return;
  (void)world_.advance(std::min(next_timer_, limit));
  idle_.clear();
  next_timer_ = World::kNever;
}

void SteppedLoops::step_beside() {
  constexpr Nanoseconds kTick = 100ns;
  if (clocks_.empty()) clocks_.assign(loops_.size(), {world_.now(), std::nullopt});
  for (std::size_t i = 0; i < loops_.size(); ++i)
    if (!alive(i)) clocks_[i] = {World::kNever, std::nullopt};
  const auto earlier = [](const Clock& one, const Clock& other) { return one.now < other.now; };
  const auto behind = std::min_element(clocks_.begin(), clocks_.end(), earlier);
  const auto index = static_cast<std::size_t>(behind - clocks_.begin());
  const Nanoseconds began = std::exchange(behind->now, World::kNever);
  world_.set_clock(began, std::min_element(clocks_.begin(), clocks_.end(), earlier)->now);
  world_.wish = World::kNever;
  stepping_ = index;
  const std::size_t ran = loops_[index]->process_events(ae::kFullIteration);
  stepping_.reset();
  const bool busy = ran > 0 || world_.wish <= world_.now();
  // Sleeps until a deadline, the network, or another loop wakes it.
  *behind = busy ? Clock{world_.now(), std::nullopt}
                 : Clock{std::max(world_.now() + kTick, world_.wish), world_.now() + kTick};
  const Nanoseconds wakes = std::min(busy ? began : World::kNever, world_.next_happening());
  for (Clock& each : clocks_)
    if (each.slept) each.now = std::max(*each.slept, std::min(each.now, wakes));
}

}  // namespace simulation
