// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Semaphore: limits how many tasks do something at a time.

#include <cstddef>
#include <memory>
#include <utility>

#include "ae/abi.h"
#include "ae/event_loop.h"
#include "conn/co/result.h"
#include "conn/co/wait.h"

namespace conn { inline namespace AECONN_ABI { namespace co {

namespace detail {

/// A number of permits, and the tasks that wait for one. A permit that is given back goes to the
/// task that has waited longest; that task has it before it resumes, so no other task can take it.
class Permits {
 public:
  Permits(ae::EventLoop& loop, std::size_t free) : waits_(loop), free_(free) {}

  bool try_take() noexcept {
    if (free_ == 0) return false;
    --free_;
    return true;
  }
  void give() noexcept {
    if (waits_.empty())
      ++free_;
    else
      waits_.wake_first();
  }
  std::size_t free() const noexcept { return free_; }
  /// Makes all waiting tasks resume without having received a permit.
  void dismiss_all() noexcept { waits_.dismiss_all(); }

 private:
  friend class PermitWait;
  WaitList waits_;
  std::size_t free_;
};

/// A wait for a permit. Its destructor gives the permit back if it was received and not used.
class PermitWait : public Wait {
 public:
  PermitWait(PermitWait&&) = default;
  PermitWait& operator=(PermitWait&&) = delete;

 protected:
  PermitWait(Permits& permits, ae::Duration limit) noexcept
      : Wait(permits.waits_, limit), permits_(&permits) {}
  ~PermitWait() override {
    if (has_permit()) permits_->give();
  }
  bool try_take() noexcept {
    if (permits_->try_take()) be_woken();
    return woken();
  }
  bool has_permit() const noexcept { return woken() && !used_ && list_is_there(); }
  void use() noexcept { used_ = true; }

 private:
  Permits* permits_;
  bool used_ = false;
};

}  // namespace detail

/// A counting semaphore: up to `count` tasks hold a Permit, others wait for one and get it in the
/// order in which they began to wait. Use it on one loop's thread only. Acquiring and releasing
/// allocate no memory. Permits may outlive the semaphore. An operation that acquire() has returned
/// must be awaited before the semaphore is destroyed. The semaphore must not be used after the
/// loop's end. Tasks that wait when it is destroyed resume without a permit.
class Semaphore {
 public:
  class Permit;
  class Acquire;

  /// Makes a semaphore that has `count` permits; with 0 no task ever gets one. Throws
  /// std::bad_alloc.
  Semaphore(ae::EventLoop& loop, std::size_t count)
      : permits_(std::make_shared<detail::Permits>(loop, count)) {}
  Semaphore(const Semaphore&) = delete;
  Semaphore& operator=(const Semaphore&) = delete;
  /// Destroys the semaphore: tasks that wait for it resume without a permit.
  ~Semaphore() { permits_->dismiss_all(); }

  /// Waits for a permit and returns it. Returns an empty Permit if the time-out expires first.
  [[nodiscard]] inline Acquire acquire(ae::Duration limit = kNoLimit) noexcept;
  /// Returns a permit without waiting; an empty Permit if none is free.
  [[nodiscard]] inline Permit try_acquire() noexcept;
  /// Returns the number of permits that no task holds now.
  std::size_t available() const noexcept { return permits_->free(); }

 private:
  std::shared_ptr<detail::Permits> permits_;
};

/// One permit of a Semaphore, or none. Destroying it gives the permit back, so that a task which is
/// cancelled keeps none.
class [[nodiscard]] Semaphore::Permit {
 public:
  Permit() noexcept = default;          ///< makes an object without a permit
  Permit(Permit&&) noexcept = default;  ///< moves the permit; the moved-from object has none
  /// Takes over the permit of `other`. Gives back the permit that this object had before.
  Permit& operator=(Permit&& other) noexcept {
    Permit(std::move(other)).permits_.swap(permits_);
    return *this;
  }
  ~Permit() { release(); }
  /// Returns whether there is a permit.
  explicit operator bool() const noexcept { return permits_ != nullptr; }
  /// Gives the permit back now, if there is one. The task that has waited longest gets it.
  void release() noexcept {
    if (const auto permits = std::exchange(permits_, nullptr)) permits->give();
  }

 private:
  friend class Semaphore;
  friend class Semaphore::Acquire;
  explicit Permit(std::shared_ptr<detail::Permits> permits) noexcept
      : permits_(std::move(permits)) {}
  std::shared_ptr<detail::Permits> permits_;
};

/// The operation that Semaphore::acquire() returns; it must be awaited.
class Semaphore::Acquire final : public detail::PermitWait {
 public:
  /// Makes the operation; called by Semaphore::acquire() only.
  Acquire(std::shared_ptr<detail::Permits> permits, ae::Duration limit) noexcept
      : PermitWait(*permits, limit), permits_(std::move(permits)) {}
  Acquire(Acquire&&) = default;  ///< moves the operation, which must not have begun to wait
  Acquire& operator=(Acquire&&) = delete;
  ~Acquire() override {
    if (has_permit()) (void)await_resume();
  }
  /// Called by co_await: returns whether the operation is complete without waiting.
  bool await_ready() noexcept { return try_take(); }
  /// Called by co_await: returns the permit, or an empty Permit if there was none.
  Permit await_resume() noexcept {
    if (!has_permit()) return Permit();
    use();
    return Permit(std::move(permits_));
  }

 private:
  // Keeps the Permits object, with the list that this wait is in, even if the semaphore is
  // destroyed.
  std::shared_ptr<detail::Permits> permits_;
};

inline Semaphore::Acquire Semaphore::acquire(ae::Duration limit) noexcept {
  return Acquire(permits_, limit);
}

inline Semaphore::Permit Semaphore::try_acquire() noexcept {
  return permits_->try_take() ? Permit(permits_) : Permit();
}

}}}  // namespace conn::co
