// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// How much one connection may hold for its device, grown where that makes its stream faster. A
// stream is never faster than this in the time that a confirmation takes, which nobody knows
// beforehand: so more is tried, and kept where more was confirmed in a second with it. No clock, no
// memory: what is allowed here is taken block by block, and goes back with the confirmations.

#include <cstddef>
#include <cstdint>

#include "ae/abi.h"
#include "ae/time.h"
#include "conn/rdma/device/memory.h"

namespace conn { inline namespace AECONN_ABI { namespace rdma {

class SendBuffer {
 public:
  /// Bytes: to begin with, and the most it grows to.
  SendBuffer(std::uint32_t usual, std::uint32_t most) noexcept
      : usual_(usual), most_(most < usual ? usual : most), size_(usual) {}

  /// Bytes that were taken and are not confirmed, at most.
  std::uint32_t size() const noexcept { return size_; }

  /// The device has all that was written, and the writer has more than there was room for.
  void on_full(ae::TimePoint now) noexcept {
    full_at_ = now;
    since_full_ = 0;
    if (stage_ == Stage::kResting && now >= again_at_) watch(now);
  }
  /// So many bytes are confirmed. Grows only where `limit` leaves half of itself to others.
  void on_confirmed(std::size_t bytes, ae::TimePoint now, const MemoryLimit& limit) noexcept {
    if (stage_ != Stage::kResting) [[unlikely]]
      count(bytes, now, limit);
  }
  /// Something is written while nothing waits and nothing is under way.
  void on_idle_write(ae::TimePoint now) noexcept {
    if ((size_ != usual_ || stage_ != Stage::kResting) && now - full_at_ >= kIdle) reset();
  }
  /// There is no memory to send from.
  void on_refusal(ae::TimePoint now) noexcept {
    reset();
    again_at_ = now + kIdle;
  }

 private:
  static constexpr ae::Duration kIdle = std::chrono::seconds(1);
  enum class Stage : std::uint8_t {
    kResting,   ///< it is as it is
    kUsual,     ///< counts what is confirmed with the size there is
    kSettling,  ///< a longer one is tried; what was sent before is not counted
    kTrying,    ///< and counted
  };
  void watch(ae::TimePoint now) noexcept;
  void count(std::size_t bytes, ae::TimePoint now, const MemoryLimit& limit) noexcept;
  void decide(double rate, ae::TimePoint now, const MemoryLimit& limit) noexcept;
  void rest(ae::TimePoint now, ae::Duration pause) noexcept;
  void reset() noexcept;

  std::uint32_t usual_, most_, size_;
  std::uint32_t before_ = 0;    // what size_ goes back to where more gave nothing
  std::size_t since_full_ = 0;  // confirmed since the writer was last short of room
  Stage stage_ = Stage::kResting;
  unsigned measures_ = 0;      // with the size there is
  bool began_ = false;         // the counting, at begin_
  std::uint64_t counted_ = 0;  // bytes, since then
  double rate_ = 0;            // bytes a second with what there was before
  ae::TimePoint begin_{}, full_at_{}, again_at_{};
  ae::Duration pause_{};
};

}}}  // namespace conn::rdma
