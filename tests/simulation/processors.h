// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Event loops that run beside each other in simulated time, each on a processor of its own: they
// spin, compute and sleep as long as they like, and none sees what another has not done yet. Each
// has a thread, of which one at a time runs: the one that is behind. The same calls give the same
// run.

#include <functional>
#include <memory>
#include <semaphore>
#include <thread>
#include <vector>

#include "tests/simulation/world.h"
#include "tests/support/any_loop.h"

namespace simulation {

/// Config::wake_latency and wake_cpu say what it is to sleep here. One of these at a time, in a
/// World that lives longer.
class Processors final : private Pace {
 public:
  Processors(World& world, std::size_t count);
  /// Ends the loops' run(), if there was one.
  ~Processors() override;

  std::size_t size() const noexcept { return all_.size(); }
  ae::EventLoop& loop(std::size_t index) const noexcept { return *all_[index]->loop; }
  /// Before start(), on this thread: they take turns, and time passes when none has anything to do.
  void take_turns_until(const std::function<bool()>& over);
  /// Each runs on its thread until `over`, which any of their handlers makes true.
  void run_until(std::function<bool()> over);
  /// Ends them all; the loops stand, to be used from here.
  void end();
  /// What loop `index` has computed and spun, and what it paid to wake up.
  Nanoseconds cpu(std::size_t index) const noexcept { return all_[index]->cpu; }
  std::uint64_t wakes(std::size_t index) const noexcept { return all_[index]->wakes; }

 private:
  struct Processor {
    std::unique_ptr<ae::EventLoop> loop = testing::make_loop();
    Nanoseconds clock{}, resumed{}, cpu{};
    std::uint64_t wakes = 0;
    bool asleep = false, over = false;
    Nanoseconds until{};  // it wakes by itself
    int epoll = -1;
    std::binary_semaphore turn{0};
    std::thread thread;
  };
  void passing() noexcept override;
  void sleep(int epoll, Nanoseconds until) noexcept override;
  void give_way(Processor& from) noexcept;
  Processor* next(Nanoseconds moment) noexcept;
  void wake(Processor& sleeper, Nanoseconds at) const noexcept;
  void resume(Processor& here) noexcept;

  World& world_;
  std::vector<std::unique_ptr<Processor>> all_;
  std::function<bool()> over_;
  Nanoseconds limit_{};  // nobody else is before it
  bool choosing_ = false, ending_ = false, started_ = false;
  std::binary_semaphore main_{0};
  static thread_local Processor* here_;
};

}  // namespace simulation
