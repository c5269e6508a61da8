// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Queue of the peer's probes (control messages that ask for an answer) that we have not answered
// yet, oldest first. It stores the `select` field of each, which the answer repeats. The queue has
// a fixed size, so a peer cannot make it grow.

#include <array>
#include <cassert>
#include <cstddef>
#include <cstdint>

#include "ae/abi.h"
#include "conn/rdma/protocol/flow_control.h"

namespace conn { inline namespace AECONN_ABI { namespace rdma {

class AnswerQueue {
 public:
  static constexpr std::size_t kMost = flow::kMostAnswers;

  bool empty() const noexcept { return count_ == 0; }
  /// Returns the number of probes of the peer that must still be answered: 0 to kMost.
  std::uint32_t count() const noexcept { return count_; }
  /// Returns the `select` field for the answer at index `i` among those still to be sent: 0 is the
  /// oldest, count() - 1 the newest.
  std::uint16_t at(std::size_t i) const noexcept {
    assert(i < count_);
    return selects_[(head_ + i) % kMost];
  }
  /// Adds the answer to a probe with this `select` field. Returns false, and adds nothing, if kMost
  /// answers are due already.
  [[nodiscard]] bool push(std::uint16_t select) noexcept {
    if (count_ == kMost) return false;
    selects_[(head_ + count_) % kMost] = select;
    ++count_;
    return true;
  }
  /// Removes the oldest answer if its `select` field is `select`. Returns false if it is not, or if
  /// no answer is due.
  [[nodiscard]] bool pop(std::uint16_t select) noexcept {
    if (empty() || at(0) != select) return false;
    head_ = static_cast<std::uint8_t>((head_ + 1u) % kMost);
    --count_;
    return true;
  }
  void clear() noexcept { count_ = 0; }

 private:
  static_assert(kMost <= 0xff);
  // Ring buffer: the oldest element is at index head_, and count_ elements are valid.
  std::array<std::uint16_t, kMost> selects_{};
  std::uint8_t head_ = 0, count_ = 0;
};

}}}  // namespace conn::rdma
