// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// LoopGroup: a set of event loops, each on a thread of its own, for programs that use several
// cores.
//
//   ae::LoopGroup loops({.loops = 4});
//   auto listener = conn::listen(registry, loops, "tcp://*:6379", make_handler);
//   loops.run();
//
// The loops share nothing. A connection and its handlers belong to one loop at a time;
// conn::move() (conn/move.h) moves them to another one.

#include <memory>
#include <string>

#include "ae/abi.h"
#include "ae/loops.h"

namespace ae { inline namespace AECONN_ABI {

/// Event loops that run on threads of their own, from construction until stop().
class AECONN_API LoopGroup final : public Loops {
 public:
  /// The parameters from which a LoopGroup is created.
  struct Config {
    /// How many loops the group has. 0: one for each processor that the process may use
    /// (sched_getaffinity(2)).
    std::size_t loops = 0;
    /// The threads are named "NAME-INDEX". NAME is cut to fit the kernel's limit of 15 characters
    /// (pthread_setname_np(3)).
    std::string name = "loop";
    /// Creates loop `index`. Called on the thread that will run the loop and later destroy it.
    /// Empty: each loop is a LibevLoop.
    std::function<std::unique_ptr<EventLoop>(std::size_t index)> make = {};
    /// Pins each thread to one of the processors the process may use. If all listeners of the group
    /// are on one device, only processors near that device are used, provided the process may use
    /// any of them.
    bool pin = false;
  };

  LoopGroup() : LoopGroup(Config{}) {}
  /// Starts the loops, and returns once every one of them runs. Throws the exception of make(),
  /// std::system_error if a thread cannot be created, or LoopError; loops already started are
  /// stopped first. The threads block all signals except those raised by their own faults (such as
  /// SIGSEGV); the program's other threads still receive signals.
  explicit LoopGroup(Config config);
  /// Calls stop() and waits until all loops have ended, like run(). An exception that run() would
  /// throw is discarded. Must not be called on a loop's thread.
  ~LoopGroup() override;

  std::size_t size() const noexcept override;
  Poster poster(std::size_t index) const override;
  EventLoop* loop(std::size_t index) const noexcept override;
  void on_each(const std::function<void(EventLoop& loop, std::size_t index)>& fn) override;
  std::thread::id thread(std::size_t index) const override;
  void set_near(const void* whose, const std::vector<int>& processors) override;

  /// Ends every loop after its current iteration, together with its connections, as if its run()
  /// had returned. (EventLoop::stop() of one loop ends only that loop.) May be called from any
  /// thread, but not from a signal handler.
  void stop();
  /// Waits until all loops have ended, each by its own stop() or the group's. An uncaught exception
  /// of a handler ends the group; run() rethrows it once. The loops run from construction, whether
  /// or not this is called. Throws LoopError on a loop's thread.
  void run();

 private:
  class Member;
  struct Core;
  std::unique_ptr<Core> core_;
};

}}  // namespace ae
