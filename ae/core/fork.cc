// SPDX-License-Identifier: BSD-3-Clause
#include "ae/core/fork.h"

#include <pthread.h>

#include <chrono>
#include <thread>

namespace ae { inline namespace AECONN_ABI {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

// While fork() tries to lock all ae::Mutex objects, a thread that holds none of them waits before
// it locks one, so that fork() gets its turn. This is the longest such wait.
constexpr auto kLetPass = 100ms;
// If fork() cannot lock all ae::Mutex objects within this time, it proceeds. The mutexes that other
// threads hold then stay locked in the child.
constexpr auto kLongestWait = 3s;

std::mutex list_mutex;
Mutex* first_mutex = nullptr;
// The first ae::Mutex in the list of all that fork() has not locked, for lack of time; null: all of
// them are locked.
Mutex* not_taken = nullptr;
std::atomic<bool> fork_waits{false};
thread_local unsigned locks_held = 0;  // number of ae::Mutex objects that this thread has locked

void let_fork_pass() noexcept {
  const auto until = Clock::now() + kLetPass;
  while (fork_waits && Clock::now() < until) std::this_thread::sleep_for(20us);
}

}  // namespace

namespace detail {
std::atomic<unsigned> fork_count{0};
}  // namespace detail

/// The list of all ae::Mutex objects of the library, with the handlers for pthread_atfork(3) that
/// lock them before fork() and unlock them afterwards.
struct MutexList {
  static void add(Mutex& mutex) noexcept {
    const std::lock_guard lock(list_mutex);
    mutex.next_ = first_mutex;
    mutex.link_ = &first_mutex;
    if (first_mutex != nullptr) first_mutex->link_ = &mutex.next_;
    first_mutex = &mutex;
  }
  static void remove(Mutex& mutex) noexcept {
    const std::lock_guard lock(list_mutex);
    *mutex.link_ = mutex.next_;
    if (mutex.next_ != nullptr) mutex.next_->link_ = mutex.link_;
  }

  // Locks all mutexes before fork(). Other threads lock them in any order, so this function holds
  // no mutex while it waits for another: if one is taken, it unlocks all and starts again.
  static void lock_all() {
    const auto until = Clock::now() + kLongestWait;
    fork_waits = true;
    for (;;) {
      list_mutex.lock();
      not_taken = first_mutex;
      while (not_taken != nullptr && not_taken->mutex_.try_lock()) not_taken = not_taken->next_;
      if (not_taken == nullptr || Clock::now() >= until) break;
      unlock_taken();
      list_mutex.unlock();
      std::this_thread::yield();
    }
    fork_waits = false;
  }
  static void unlock_all() {
    unlock_taken();
    list_mutex.unlock();
  }
  static void in_child() {
    ++detail::fork_count;
    unlock_all();
  }

 private:
  static void unlock_taken() {
    for (Mutex* each = first_mutex; each != not_taken; each = each->next_) each->mutex_.unlock();
  }
};

namespace {
[[maybe_unused]] const int registered =
    pthread_atfork(MutexList::lock_all, MutexList::unlock_all, MutexList::in_child);
}  // namespace

Mutex::Mutex() noexcept { MutexList::add(*this); }
Mutex::~Mutex() { MutexList::remove(*this); }

void Mutex::lock() {
  if (fork_waits.load(std::memory_order_relaxed) && locks_held == 0) let_fork_pass();
  mutex_.lock();
  ++locks_held;
}

bool Mutex::try_lock() {
  const bool locked = mutex_.try_lock();
  if (locked) ++locks_held;
  return locked;
}

void Mutex::unlock() {
  --locks_held;
  mutex_.unlock();
}

}}  // namespace ae
