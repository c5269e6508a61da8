// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Owns tasks that run on their own, without being awaited.

#include <cstddef>
#include <new>
#include <utility>

#include "ae/abi.h"
#include "conn/co/running.h"
#include "conn/co/task.h"

namespace conn { inline namespace AECONN_ABI { namespace co {

/// Owns tasks that run concurrently on one loop. Its destructor cancels tasks that have not ended:
/// their frames are destroyed, newest first, and with them their streams. Declare a Scope after the
/// loop and after everything that its tasks refer to.
///
/// A task may destroy its own Scope: the task continues until it next waits, and is destroyed then.
class Scope {
 public:
  Scope() = default;
  Scope(const Scope&) = delete;
  Scope& operator=(const Scope&) = delete;
  ~Scope() {
    closing_ = true;
    end(first_);
  }

  /// Takes ownership of the task and runs it inside this call until it waits. An exception of the
  /// task leaves the call that ran the task: spawn(), or the loop's run(), as for a handler. If a
  /// coroutine calls spawn(), the exception does not leave spawn(): it leaves the loop's run() once
  /// that coroutine waits or has ended; if there are several exceptions, only the first one does.
  /// Throws std::bad_alloc for an empty task.
  void spawn(Task<> task) {
    if (closing_) return;
    if (task.done()) throw std::bad_alloc();
    const auto frame = std::exchange(task.frame_, nullptr);
    detail::Promise<void>& promise = frame.promise();
    promise.spawned = true;
    promise.link(first_);
    detail::Resumption(&promise).begin(frame);
  }
  /// Cancels all tasks that this Scope owns now.
  void cancel() noexcept {
    detail::Spawned* mine = std::exchange(first_, nullptr);
    if (mine != nullptr) mine->place = &mine;
    // end() does not use *this, because a task that it destroys may own the object that contains
    // this Scope.
    end(mine);
  }
  /// Returns the number of tasks that have not ended.
  std::size_t size() const noexcept {
    std::size_t count = 0;
    for (const detail::Spawned* each = first_; each != nullptr; each = each->next) ++count;
    return count;
  }
  /// Returns whether all tasks of this Scope have ended.
  bool empty() const noexcept { return first_ == nullptr; }

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
