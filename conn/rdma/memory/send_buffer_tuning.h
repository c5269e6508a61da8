// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Decides how large the send buffer of one connection is: how many bytes may be accepted from the
// user and not yet confirmed by the device. The throughput of a stream is at most this many bytes
// per confirmation delay. The delay is not known in advance, so a larger size is tried, and kept if
// more bytes per second were confirmed with it. This class reads no clock and allocates no memory:
// its size() is only a limit for the blocks that the connection acquires one by one and releases as
// bytes are confirmed.

#include <cstddef>
#include <cstdint>

#include "ae/abi.h"
#include "ae/time.h"
#include "conn/rdma/device/memory.h"

namespace conn { inline namespace AECONN_ABI { namespace rdma {

class SendBufferTuning {
 public:
  /// `usual`: initial value of size(), in bytes; `most`: the largest value that size() grows to.
  SendBufferTuning(std::uint32_t usual, std::uint32_t most) noexcept
      : usual_(usual), most_(most < usual ? usual : most), size_(usual) {}

  /// Returns the size of the send buffer: the largest number of bytes that the connection may have
  /// accepted and that the device has not confirmed yet.
  std::uint32_t size() const noexcept { return size_; }

  /// Records that the size of the send buffer limits the throughput: the writer has more bytes than
  /// size() allows, and all accepted bytes are posted.
  void on_full(ae::TimePoint now) noexcept {
    full_at_ = now;
    since_full_ = 0;
    if (stage_ == Stage::kResting && now >= again_at_) watch(now);
  }
  /// Counts `bytes` bytes that the device has confirmed. This may increase size(), but only if at
  /// most half of the memory that `limit` allows is in use then.
  void on_confirmed(std::size_t bytes, ae::TimePoint now, const MemoryLimit& limit) noexcept {
    if (stage_ != Stage::kResting) [[unlikely]]
      count(bytes, now, limit);
  }
  /// Call for a write while no earlier bytes are waiting or in flight. Resets size() to its initial
  /// value if on_full() was not called for a second. `now`: a function that returns the time; it is
  /// called only if the time is needed.
  template <class Now>
  void on_idle_write(Now now) noexcept {
    if ((size_ != usual_ || stage_ != Stage::kResting) && now() - full_at_ >= kIdle) reset();
  }
  /// Call when no memory for the send buffer is available. Resets size() to its initial value; it
  /// then does not grow for a second.
  void on_refusal(ae::TimePoint now) noexcept {
    reset();
    again_at_ = now + kIdle;
  }

 private:
  static constexpr ae::Duration kIdle = std::chrono::seconds(1);
  enum class Stage : std::uint8_t {
    kResting,   ///< the size of the send buffer stays, and nothing is measured
    kUsual,     ///< measures the confirmed bytes per second with the present size
    kSettling,  ///< a larger send buffer is tried, but the rate is not measured yet
    kTrying,    ///< measures the confirmed bytes per second with the larger size
  };
  void watch(ae::TimePoint now) noexcept;
  void count(std::size_t bytes, ae::TimePoint now, const MemoryLimit& limit) noexcept;
  void decide(double rate, ae::TimePoint now, const MemoryLimit& limit) noexcept;
  void rest(ae::TimePoint now, ae::Duration pause) noexcept;
  void reset() noexcept;

  std::uint32_t usual_, most_, size_;
  std::uint32_t before_ = 0;    // size() before a larger send buffer was tried
  std::size_t since_full_ = 0;  // bytes confirmed since the last on_full()
  Stage stage_ = Stage::kResting;
  bool began_ = false;         // true if counted_ counts the bytes confirmed since begin_
  unsigned measures_ = 0;      // number of measurements with the present size()
  std::uint64_t counted_ = 0;  // bytes confirmed since time begin_
  double rate_ = 0;            // bytes confirmed per second with the size before_
  ae::TimePoint begin_{}, full_at_{}, again_at_{};
  ae::Duration pause_{};
};

}}}  // namespace conn::rdma
