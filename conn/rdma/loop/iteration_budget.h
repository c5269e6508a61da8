// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Limits the time that an iteration of the event loop spends on system calls that set up and tear
// down connections. All connections together may use 1 ms (kShare) of each iteration, so that
// hundreds of them do not delay other work. Each kind of such work does at least one step in each
// iteration, even if the time is used up.

#include <chrono>
#include <cstdint>
#include <utility>

#include "ae/abi.h"
#include "ae/time.h"

namespace conn { inline namespace AECONN_ABI { namespace rdma {

class IterationBudget {
 public:
  /// How much of the waiting work to do. kShare: as much as the iteration has time for; kAll:
  /// everything.
  enum class Most : std::uint8_t { kShare, kAll };

  /// Begins a new iteration of the loop, in which the whole share of time (1 ms) may be spent.
  void begin() noexcept {
    ++number_;
    spent_ = {};
  }
  /// Lets this iteration spend its whole time for system calls (kShare) again. For blocking
  /// operations, which may last much longer than an iteration.
  void extend() noexcept { spent_ = {}; }
  /// Returns the number of this iteration; each iteration has a different one.
  std::uint64_t number() const noexcept { return number_; }

  bool has_share_left() const noexcept {
    const ae::Duration now =
        spending_ ? std::chrono::steady_clock::now() - spending_since_ : ae::Duration::zero();
    return spent_ + now < kShare;
  }
  /// Returns true if the next step of the work may be done in this iteration. `first`: it is the
  /// first step, which is always allowed.
  bool allows(Most most, bool first) const noexcept {
    return first || most == Most::kAll || has_share_left();
  }
  /// Returns true if an expired deadline may be handled now. The first call in an iteration always
  /// returns true, further calls while time is left. So a flood of other work cannot postpone
  /// deadlines for ever.
  bool may_expire() noexcept {
    return std::exchange(expired_in_, number_) != number_ || has_share_left();
  }

  /// While an object of this class exists, the time that passes counts as spent on system calls
  /// (see IterationBudget). A nested object has no effect.
  class Spending {
   public:
    explicit Spending(IterationBudget& iteration) noexcept
        : iteration_(std::exchange(iteration.spending_, true) ? nullptr : &iteration) {
      if (iteration_ != nullptr) iteration_->spending_since_ = std::chrono::steady_clock::now();
    }
    ~Spending() {
      if (iteration_ == nullptr) return;
      iteration_->spent_ += std::chrono::steady_clock::now() - iteration_->spending_since_;
      iteration_->spending_ = false;
    }
    Spending(const Spending&) = delete;
    Spending& operator=(const Spending&) = delete;

   private:
    IterationBudget* iteration_;  // null if another Spending exists already
  };

 private:
  static constexpr ae::Duration kShare = std::chrono::milliseconds(1);

  ae::Duration spent_{};
  ae::TimePoint spending_since_;
  bool spending_ = false;
  std::uint64_t number_ = 0, expired_in_ = 0;
};

}}}  // namespace conn::rdma
