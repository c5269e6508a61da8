// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Owns tasks that nobody awaits.

#include <cstddef>
#include <new>
#include <utility>

#include "ae/abi.h"
#include "conn/co/running.h"
#include "conn/co/task.h"

namespace conn { inline namespace AECONN_ABI { namespace co {

/// Tasks that run beside each other on one loop. Its end cancels those that have not ended: their
/// frames are destroyed, the newest first, and with them their streams. So declare it after the
/// loop and after what its tasks refer to.
/// A task may end its own Scope: it goes on until it waits the next time, and is destroyed then.
class Scope {
 public:
  Scope() = default;
  Scope(const Scope&) = delete;
  Scope& operator=(const Scope&) = delete;
  ~Scope() {
    closing_ = true;
    end(first_);
  }

  /// Runs the task here until it waits. What it throws, now or later, leaves the call that ran it:
  /// this one, or the loop's run(), as with a handler. Inside a coroutine spawn() does not throw
  /// it: it leaves the loop's run() as well, once that coroutine waits or has ended; of several
  /// the first does. Throws std::bad_alloc for a task that is empty.
  void spawn(Task<> task) {
    if (closing_) return;
    if (task.done()) throw std::bad_alloc();
    const auto frame = std::exchange(task.frame_, nullptr);
    detail::Promise<void>& promise = frame.promise();
    promise.spawned = true;
    promise.link(first_);
    detail::Resumption(&promise).begin(frame);
  }
  /// Cancels all tasks there are.
  void cancel() noexcept {
    detail::Spawned* mine = std::exchange(first_, nullptr);
    if (mine != nullptr) mine->place = &mine;
    end(mine);  // touches nothing of this: a task may own what owns this
  }
  /// How many have not ended.
  std::size_t size() const noexcept {
    std::size_t count = 0;
    for (const detail::Spawned* each = first_; each != nullptr; each = each->next) ++count;
    return count;
  }
  bool empty() const noexcept { return first_ == nullptr; }  ///< whether all have ended

 private:
  static void end(detail::Spawned*& first) noexcept {
    while (first != nullptr) {
      auto& promise = static_cast<detail::Promise<void>&>(*first);
      promise.unlink();
      constexpr auto destroy = &detail::destroy_frame<detail::Promise<void>>;
      if (!detail::Resumption::put_off(promise, destroy)) destroy(promise);
    }
  }

  detail::Spawned* first_ = nullptr;
  bool closing_ = false;
};

}}}  // namespace conn::co
