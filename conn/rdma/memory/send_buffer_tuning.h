// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// How many bytes one connection may hold for its device, increased where that makes its stream
// faster. A stream sends at most this much in the time that a confirmation takes, which is not
// known beforehand: so a larger size is tried, and kept if more bytes per second were confirmed
// with it. It uses no clock and no memory: the memory that is allowed here is taken block by block,
// and goes back with the confirmations.

#include <cstddef>
#include <cstdint>

#include "ae/abi.h"
#include "ae/time.h"
#include "conn/rdma/device/memory.h"

namespace conn { inline namespace AECONN_ABI { namespace rdma {

class SendBufferTuning {
 public:
  /// `usual`: initial size in bytes; `most`: the largest size it grows to.
  SendBufferTuning(std::uint32_t usual, std::uint32_t most) noexcept
      : usual_(usual), most_(most < usual ? usual : most), size_(usual) {}

  /// Most bytes that may be accepted and unconfirmed.
  std::uint32_t size() const noexcept { return size_; }

  /// The device has all that was written, and the writer has more than there was space for.
  void on_full(ae::TimePoint now) noexcept {
    full_at_ = now;
    since_full_ = 0;
    if (stage_ == Stage::kResting && now >= again_at_) watch(now);
  }
  /// `bytes` are confirmed. Grows only where `limit` leaves half of itself to others.
  void on_confirmed(std::size_t bytes, ae::TimePoint now, const MemoryLimit& limit) noexcept {
    if (stage_ != Stage::kResting) [[unlikely]]
      count(bytes, now, limit);
  }
  /// Data is written while nothing is waiting and nothing is in flight.
  void on_idle_write(ae::TimePoint now) noexcept {
    if ((size_ != usual_ || stage_ != Stage::kResting) && now - full_at_ >= kIdle) reset();
  }
  /// No memory to send from is available.
  void on_refusal(ae::TimePoint now) noexcept {
    reset();
    again_at_ = now + kIdle;
  }

 private:
  static constexpr ae::Duration kIdle = std::chrono::seconds(1);
  enum class Stage : std::uint8_t {
    kResting,   ///< the size stays as it is
    kUsual,     ///< measures what is confirmed with the present size
    kSettling,  ///< a larger size is tried; what was sent before is not counted
    kTrying,    ///< measures what is confirmed with it
  };
  void watch(ae::TimePoint now) noexcept;
  void count(std::size_t bytes, ae::TimePoint now, const MemoryLimit& limit) noexcept;
  void decide(double rate, ae::TimePoint now, const MemoryLimit& limit) noexcept;
  void rest(ae::TimePoint now, ae::Duration pause) noexcept;
  void reset() noexcept;

  std::uint32_t usual_, most_, size_;
  std::uint32_t before_ = 0;    // size to return to if the larger one gave nothing
  std::size_t since_full_ = 0;  // confirmed since the writer last lacked space
  Stage stage_ = Stage::kResting;
  unsigned measures_ = 0;      // with the present size
  bool began_ = false;         // counting has begun, at begin_
  std::uint64_t counted_ = 0;  // bytes since then
  double rate_ = 0;            // bytes per second with the previous size
  ae::TimePoint begin_{}, full_at_{}, again_at_{};
  ae::Duration pause_{};
};

}}}  // namespace conn::rdma
