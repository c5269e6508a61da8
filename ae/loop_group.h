// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Loops on threads of their own, for a program that wants several cores.
//
//   ae::LoopGroup loops({.loops = 4});
//   auto listener = conn::listen(registry, loops, "tcp://*:6379", make_handler);
//   loops.run();
//
// Nothing is shared between the loops. A connection belongs to one of them from its beginning to
// its end, and so do its handlers.

#include <memory>
#include <string>

#include "ae/abi.h"
#include "ae/loops.h"

namespace ae { inline namespace AECONN_ABI {

/// Loops that run on threads of their own from the beginning to stop().
class AECONN_API LoopGroup final : public Loops {
 public:
  /// What a group is made of.
  struct Config {
    /// 0: one for each processor that this process may use (sched_getaffinity(2)).
    std::size_t loops = 0;
    /// The threads are called "NAME-INDEX" (pthread_setname_np(3): 15 characters are seen).
    std::string name = "loop";
    /// Makes loop `index`, on its thread; empty: a LibevLoop. It is destroyed there, too.
    std::function<std::unique_ptr<EventLoop>(std::size_t index)> make = {};
    /// Each thread keeps to one processor of those the process may use: to those that are near the
    /// device, where all that the group listens on is on one device.
    bool pin = false;
  };

  LoopGroup() : LoopGroup(Config{}) {}
  /// Returns once every loop runs. Throws what make() threw, std::system_error where there is no
  /// thread, or LoopError; the loops that ran have ended then. The threads take no signals but
  /// those that a fault of their own raises: the program's other threads get them as before.
  explicit LoopGroup(Config config);
  /// stop(), then waits as run() does; what run() would throw is lost. Not on a loop's thread.
  ~LoopGroup() override;

  std::size_t size() const noexcept override;
  Poster poster(std::size_t index) const override;
  void on_each(const std::function<void(EventLoop& loop, std::size_t index)>& fn) override;
  void set_near(const void* whose, const std::vector<int>& processors) override;

  /// All loops end after their iteration, each with its connections, as if its run() had returned.
  /// One loop's own EventLoop::stop() ends that one and no other. Any thread; not
  /// a signal handler.
  void stop();
  /// Returns when all loops have ended, each by its own stop() or by the group's. A handler's
  /// exception that nobody took ends the group, and is thrown here, once. The loops run from the
  /// beginning, whether or not this is called. Not on a loop's thread (LoopError).
  void run();

 private:
  class Member;
  struct Core;
  std::unique_ptr<Core> core_;
};

}}  // namespace ae
