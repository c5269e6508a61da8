// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Support for fork(): tells whether an object was created in this process or inherited, and
// provides mutexes that are not left locked by another thread in the child.

#include <atomic>
#include <mutex>

#include "ae/abi.h"

namespace ae { inline namespace AECONN_ABI {
namespace detail {
extern AECONN_API std::atomic<unsigned> fork_count;  ///< forks of this process and its ancestors
}  // namespace detail

/// Records the process that created an object. In a child of fork() the object is a copy: the
/// descriptors, devices and threads that it refers to are the parent's.
class MadeHere {
 public:
  bool inherited() const noexcept { return made_ != count(); }
  /// Marks the object as created in this process, once its resources have been replaced.
  void renew() noexcept { made_ = count(); }

 private:
  static unsigned count() noexcept { return detail::fork_count.load(std::memory_order_relaxed); }
  unsigned made_ = count();
};

/// A std::mutex that is locked before fork(): in the child it is unlocked and the data it guards is
/// consistent. fork() waits for it for at most three seconds, so user code must not run for long
/// while it is held.
class AECONN_API Mutex {
 public:
  Mutex() noexcept;
  Mutex(const Mutex&) = delete;
  Mutex& operator=(const Mutex&) = delete;
  ~Mutex();
  void lock();
  bool try_lock();
  void unlock();

 private:
  friend struct MutexList;
  std::mutex mutex_;
  Mutex* next_;
  Mutex** link_;
};

}}  // namespace ae
