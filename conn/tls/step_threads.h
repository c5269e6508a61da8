// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Threads that run the steps of TLS handshakes for one loop (option handshake-threads): a signature
// takes about a millisecond, for which all other connections of the loop would wait.
//
//   from       to         when
//   kIdle      kWaiting   push()
//   kWaiting   kRunning   a thread takes the step
//   kRunning   kOver      the thread has run it
//   kOver      kIdle      step_over() is called on the loop's thread
//   each       kIdle      withdraw()

#include <memory>

#include "ae/abi.h"
#include "ae/core/fork.h"
#include "ae/event_loop.h"

namespace conn { inline namespace AECONN_ABI { namespace tls {

/// What the loop's thread shares with the threads that run steps.
class StepPool;

/// A step that a thread may run. Its owner must not touch what run_step() uses from push() until
/// step_over() or withdraw().
class ThreadStep {
 public:
  ThreadStep() = default;
  ThreadStep(const ThreadStep&) = delete;
  ThreadStep& operator=(const ThreadStep&) = delete;

 protected:
  virtual ~ThreadStep() = default;

 private:
  friend class StepPool;
  friend class StepThreads;
  enum class Progress { kIdle, kWaiting, kRunning, kOver };
  virtual void run_step() noexcept = 0;   ///< runs the step; called on a thread of StepThreads
  virtual void step_over() noexcept = 0;  ///< called on the loop's thread, after run_step()

  Progress progress_ = Progress::kIdle;
  const StepPool* pool_ = nullptr;  // the pool to which the step was given last
  // Neighbours in the list of steps with the same progress, such as those that wait for a thread.
  ThreadStep *next_ = nullptr, *previous_ = nullptr;
};

/// The threads of one loop. All functions must be called on the loop's thread. In a child of fork()
/// the threads do not exist: an object then behaves as if it were new, and steps that the parent
/// has given to it are not run.
class StepThreads {
 public:
  explicit StepThreads(ae::EventLoop& loop) noexcept : loop_(loop) {}
  StepThreads(const StepThreads&) = delete;
  StepThreads& operator=(const StepThreads&) = delete;
  ~StepThreads();  ///< waits for the steps that run; all others must have been withdrawn

  /// Starts threads until there are `count`. Throws Error if the system refuses one.
  void grow(unsigned count);
  /// Gives `step` to the next thread that is free. Returns false if there is no thread.
  bool push(ThreadStep& step) noexcept;
  /// Takes `step` back. If a thread is running it, waits until it has been run; otherwise the step
  /// will not be run. step_over() is not called.
  void withdraw(ThreadStep& step) noexcept;

 private:
  void forget_parent() noexcept;

  ae::EventLoop& loop_;
  std::shared_ptr<StepPool> pool_;  // null: no thread was started
  ae::MadeHere made_;
};

}}}  // namespace conn::tls
