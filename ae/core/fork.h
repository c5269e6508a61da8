// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Support for fork(): MadeHere tells whether an object was created in this process or inherited
// from its parent. fork() waits until other threads have unlocked a Mutex, so that it does not stay
// locked in the child for ever. For the same reason objects that are made when they are first used
// are made by once() (ae/once.h), not as static variables of functions.

#include <atomic>
#include <mutex>

#include "ae/abi.h"

namespace ae { inline namespace AECONN_ABI {
namespace detail {
/// Number of fork() calls between the program's first process and this one; 0 in the first process.
extern AECONN_API std::atomic<unsigned> fork_count;
}  // namespace detail

/// Remembers the process that created an object. In a child of fork() the object is only a copy:
/// its descriptors, devices and threads belong to the parent.
class MadeHere {
 public:
  bool inherited() const noexcept { return made_ != count(); }
  /// Marks this object as created in the current process. To be called in a child of fork(), once
  /// the object's resources have been replaced.
  void renew() noexcept { made_ = count(); }

 private:
  static unsigned count() noexcept { return detail::fork_count.load(std::memory_order_relaxed); }
  unsigned made_ = count();
};

/// A std::mutex that fork() locks before it copies the process, so that in the child the mutex is
/// unlocked and the data that it protects is consistent. fork() waits for the mutex for at most
/// three seconds, so a thread that holds it must not run user code for long.
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
