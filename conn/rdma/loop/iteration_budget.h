// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// How much an iteration of the loop does for connections that begin and end. System calls that
// begin and end connections may use a limited part of each iteration, over all connections, so that
// hundreds of them do not delay other work. Each list of such work makes at least one step in each
// iteration, whatever the others have used.

#include <chrono>
#include <cstdint>
#include <utility>

#include "ae/abi.h"
#include "ae/time.h"

namespace conn { inline namespace AECONN_ABI { namespace rdma {

class IterationBudget {
 public:
  /// Do all of the work, or what the iteration has time for.
  enum class Most : std::uint8_t { kShare, kAll };

  /// A new iteration, which has its whole share.
  void begin() noexcept {
    ++number_;
    spent_ = {};
  }
  /// The iteration goes on inside a blocking operation and gets another share.
  void extend() noexcept { spent_ = {}; }
  /// Changes with every iteration.
  std::uint64_t number() const noexcept { return number_; }

  bool has_share_left() const noexcept {
    const ae::Duration now =
        spending_ ? std::chrono::steady_clock::now() - spending_since_ : ae::Duration::zero();
    return spent_ + now < kShare;
  }
  /// Whether a list of work goes on. `first`: it has not made a step in this iteration yet.
  bool allows(Most most, bool first) const noexcept {
    return first || most == Most::kAll || has_share_left();
  }
  /// An expired deadline may be handled: while there is time left, and one in every iteration, so
  /// that a flood cannot postpone the others indefinitely.
  bool may_expire() noexcept {
    return std::exchange(expired_in_, number_) != number_ || has_share_left();
  }

  /// Charges its lifetime to the iteration's share; a nested one charges nothing besides.
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
    IterationBudget* iteration_;  // null if nested
  };

 private:
  static constexpr ae::Duration kShare = std::chrono::milliseconds(1);

  ae::Duration spent_{};
  ae::TimePoint spending_since_;
  bool spending_ = false;
  std::uint64_t number_ = 0, expired_in_ = 0;
};

}}}  // namespace conn::rdma
