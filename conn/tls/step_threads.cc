// SPDX-License-Identifier: BSD-3-Clause
#include "conn/tls/step_threads.h"

#include <pthread.h>

#include <chrono>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <mutex>
#include <new>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "ae/core/signals_off.h"
#include "conn/error.h"

namespace conn { inline namespace AECONN_ABI { namespace tls {

class StepPool : public std::enable_shared_from_this<StepPool> {
 public:
  explicit StepPool(ae::Poster poster) : poster_(std::move(poster)) {}

  std::size_t size() const noexcept { return threads_.size(); }

  void start_thread() {
    threads_.reserve(threads_.size() + 1);
    const ae::SignalsOff off;
    ae::Mutex& stepping = stepping_.emplace_back();
    try {
      threads_.emplace_back([this, &stepping] { work(stepping); });
    } catch (...) {
      stepping_.pop_back();
      throw;
    }
    (void)pthread_setname_np(threads_.back().native_handle(), "aeconn-tls");
  }

  void stop() {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    changed_.notify_all();
    for (std::thread& thread : threads_) thread.join();
  }

  void push(ThreadStep& step) {
    {
      const std::lock_guard lock(mutex_);
      waiting_.push_back(step);
      step.progress_ = Progress::kWaiting;
      step.pool_ = this;
    }
    changed_.notify_one();
  }

  /// Called in a child of fork(): keeps the parent's `pool` and its locks as they are until the
  /// process ends.
  static void abandon(std::shared_ptr<StepPool> pool) noexcept {
    StepPool& it = *pool;
    it.next_abandoned_ = std::exchange(abandoned, &it);
    it.itself_ = std::move(pool);
  }

  void withdraw(ThreadStep& step) {
    std::unique_lock lock(mutex_);
    returned_.wait(lock, [&] { return step.progress_ != Progress::kRunning; });
    if (step.progress_ == Progress::kWaiting) waiting_.remove(step);
    if (step.progress_ == Progress::kOver) over_.remove(step);
    step.progress_ = Progress::kIdle;
  }

 private:
  using Progress = ThreadStep::Progress;

  class List {
   public:
    bool empty() const noexcept { return first_ == nullptr; }
    void push_back(ThreadStep& step) noexcept {
      step.previous_ = last_;
      step.next_ = nullptr;
      (last_ != nullptr ? last_->next_ : first_) = &step;
      last_ = &step;
    }
    void remove(ThreadStep& step) noexcept {
      (step.previous_ != nullptr ? step.previous_->next_ : first_) = step.next_;
      (step.next_ != nullptr ? step.next_->previous_ : last_) = step.previous_;
    }
    ThreadStep& pop_front() noexcept {
      ThreadStep& step = *first_;
      remove(step);
      return step;
    }

   private:
    ThreadStep *first_ = nullptr, *last_ = nullptr;
  };

  void work(ae::Mutex& stepping) {
    std::unique_lock lock(mutex_);
    for (;;) {
      changed_.wait(lock, [this] { return stopping_ || !waiting_.empty(); });
      if (stopping_) return;
      ThreadStep& step = waiting_.pop_front();
      step.progress_ = Progress::kRunning;
      lock.unlock();
      {
        // While this ae::Mutex is locked, fork() waits. So no step of OpenSSL is running during a
        // fork(), and OpenSSL's locks are unlocked in the child.
        const std::lock_guard none_forks(stepping);
        step.run_step();
      }
      lock.lock();
      step.progress_ = Progress::kOver;
      const bool first = over_.empty();
      over_.push_back(step);
      returned_.notify_all();
      if (first) tell(lock);
    }
  }

  /// Posts deliver(), which calls step_over() of the steps that have run, to the loop. If there is
  /// no memory for that, tries again until there is.
  void tell(std::unique_lock<std::mutex>& lock) {
    while (!over_.empty() && !stopping_) {
      try {
        poster_.post([self = shared_from_this()] { self->deliver(); });
        return;
      } catch (const std::bad_alloc&) {
        lock.unlock();
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
        lock.lock();
      }
    }
  }

  void deliver() {
    if (made_.inherited()) return;  // a child of fork() ignores what was posted before fork()
    std::unique_lock lock(mutex_);
    while (!over_.empty()) {
      ThreadStep& step = over_.pop_front();
      step.progress_ = Progress::kIdle;
      lock.unlock();
      step.step_over();
      lock.lock();
    }
  }

  const ae::Poster poster_;
  // Unlike an ae::Mutex, it is not locked by fork(): a child does not use its parent's object.
  std::mutex mutex_;
  std::condition_variable changed_, returned_;
  List waiting_, over_;
  bool stopping_ = false;
  // One mutex for each thread, locked while it runs a step. They are not on the threads' stacks,
  // because a child of fork() may reuse that memory.
  std::deque<ae::Mutex> stepping_;
  std::vector<std::thread> threads_;
  ae::MadeHere made_;
  static inline StepPool* abandoned = nullptr;  // head of the list of all pools passed to abandon()
  StepPool* next_abandoned_ = nullptr;
  std::shared_ptr<StepPool> itself_;
};

StepThreads::~StepThreads() {
  forget_parent();
  if (pool_ != nullptr) pool_->stop();
}

/// In a child of fork(), gives up the parent's pool: its threads do not exist here, and its locks
/// may be locked for ever. No effect otherwise.
void StepThreads::forget_parent() noexcept {
  if (!made_.inherited()) return;
  if (pool_ != nullptr) StepPool::abandon(std::move(pool_));
  made_.renew();
}

void StepThreads::grow(unsigned count) {
  if (count == 0) return;
  forget_parent();
  if (pool_ == nullptr) pool_ = std::make_shared<StepPool>(loop_.poster());
  while (pool_->size() < count) {
    try {
      pool_->start_thread();
    } catch (const std::system_error& error) {
      throw Error(error.code(),
                  "option handshake-threads=" + std::to_string(count) +
                      ": the system starts no more threads (" +
                      std::strerror(error.code().value()) +
                      "); choose fewer, or raise the limit (ulimit -u, or pids.max of the cgroup)");
    }
  }
}

bool StepThreads::push(ThreadStep& step) noexcept {
  if (pool_ == nullptr || made_.inherited() || pool_->size() == 0) return false;
  pool_->push(step);
  return true;
}

void StepThreads::withdraw(ThreadStep& step) noexcept {
  // In a child of fork() there is nothing to withdraw: the step was given to threads of the parent.
  if (pool_ != nullptr && step.pool_ == pool_.get() && !made_.inherited()) pool_->withdraw(step);
}

}}}  // namespace conn::tls
