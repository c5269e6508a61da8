// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Event loops that run side by side in simulated time, each on a processor (and a thread) of its
// own: they spin, compute and sleep independently, and none sees an effect before it has happened.
// One thread runs at a time: the one whose clock is behind. The same calls give the same run.
// run.

#include <functional>
#include <memory>
#include <semaphore>
#include <thread>
#include <vector>

#include "tests/simulation/world.h"
#include "tests/support/any_loop.h"

namespace simulation {

/// The cost of sleeping is Config::wake_latency and wake_cpu. One instance at a time, in a World
/// that outlives it.
class Processors final : private Pace {
 public:
  Processors(World& world, std::size_t count);
  /// Ends the loops' run() if they have been started.
  ~Processors() override;

  std::size_t size() const noexcept { return all_.size(); }
  ae::EventLoop& loop(std::size_t index) const noexcept { return *all_[index]->loop; }
  /// Before start(), on the calling thread: the loops take turns, and time passes when all are
  /// idle.
  void take_turns_until(const std::function<bool()>& over);
  /// Runs each loop on its thread until `over` returns true; any handler may cause that.
  void run_until(std::function<bool()> over);
  /// Ends all threads; the loops remain and can be used from the calling thread.
  void end();
  /// CPU time of loop `index`: computing, spinning and waking up.
  Nanoseconds cpu(std::size_t index) const noexcept { return all_[index]->cpu; }
  std::uint64_t wakes(std::size_t index) const noexcept { return all_[index]->wakes; }

 private:
  struct Processor {
    std::unique_ptr<ae::EventLoop> loop = testing::make_loop();
    Nanoseconds clock{}, resumed{}, cpu{};
    std::uint64_t wakes = 0;
    bool asleep = false, over = false;
    Nanoseconds until{};  // wakes by itself at this time
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
  Nanoseconds limit_{};  // no other processor is behind this time
  bool choosing_ = false, ending_ = false, started_ = false;
  std::binary_semaphore main_{0};
  static thread_local Processor* here_;
};

}  // namespace simulation
