// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// fork(): which process made an object, and mutexes that no other thread holds in a child.

#include <atomic>
#include <mutex>

#include "ae/abi.h"

namespace ae { inline namespace AECONN_ABI {
namespace detail {
extern AECONN_API std::atomic<unsigned> fork_count;  ///< of this process and its ancestors
}  // namespace detail

/// Marks the process that made an object. In a child of fork() the object is a copy: descriptors,
/// devices and threads that it stands for are the parent's.
class MadeHere {
 public:
  bool inherited() const noexcept { return made_ != count(); }
  /// The object has what it needs of its own in this process.
  void renew() noexcept { made_ = count(); }

 private:
  static unsigned count() noexcept { return detail::fork_count.load(std::memory_order_relaxed); }
  unsigned made_ = count();
};

/// A std::mutex that fork() takes first: in the child it is free, and what it guards is complete.
/// fork() waits three seconds for it at most, so no code of a user may run for long while it is
/// held.
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
