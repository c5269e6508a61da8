// SPDX-License-Identifier: BSD-3-Clause
#include "conn/rdma/memory/send_buffer_tuning.h"

#include <algorithm>
#include <chrono>

namespace conn { inline namespace AECONN_ABI { namespace rdma {
namespace {

// In multiples of the send buffer's size: kRounds, the number of bytes confirmed in one
// measurement; kSettled, the number confirmed between a change of the size and the next
// measurement.
constexpr std::uint64_t kRounds = 4;
constexpr std::uint64_t kSettled = 4;
// Number of measurements before a larger send buffer is tried. A burst that ends earlier would not
// benefit from a larger one.
constexpr unsigned kMeasures = 16;
// Factor by which the rate of confirmed bytes must rise for a larger send buffer to be worth its
// memory.
constexpr double kGain = 1.03;
// Pause after a trial of a larger send buffer that gained nothing, as a multiple of the trial's
// duration. The pause at least doubles after each further such trial, up to kLongestPause.
constexpr int kPause = 16;
constexpr ae::Duration kLongestPause = std::chrono::seconds(10);

}  // namespace

void SendBufferTuning::watch(ae::TimePoint now) noexcept {
  if (size_ >= most_) return rest(now, kLongestPause);
  stage_ = Stage::kUsual;
  measures_ = 0;
  began_ = false;
}

void SendBufferTuning::count(std::size_t bytes, ae::TimePoint now,
                             const MemoryLimit& limit) noexcept {
  since_full_ += bytes;
  // The device has confirmed twice as many bytes as the send buffer holds since the writer last
  // filled it (on_full()). That takes longer than a wait for the peer's next receive window. So
  // something else limits the stream, or the stream has paused.
  if (since_full_ > std::size_t{2} * size_) {
    since_full_ = 0;
    began_ = false;
    return;
  }
  if (!began_) {
    began_ = true;
    begin_ = now;
    counted_ = 0;
    return;
  }
  counted_ += bytes;
  if (stage_ == Stage::kSettling) {
    // Gives the peer time to adapt its receive windows to the larger send buffer.
    if (counted_ < kSettled * size_) return;
    stage_ = Stage::kTrying;
    begin_ = now;
    counted_ = 0;
    return;
  }
  if (counted_ < kRounds * size_ || now <= begin_) return;
  if (stage_ == Stage::kUsual && ++measures_ < kMeasures) {
    begin_ = now;
    counted_ = 0;
    return;
  }
  const std::chrono::duration<double> took = now - begin_;
  decide(static_cast<double>(counted_) / took.count(), now, limit);
}

void SendBufferTuning::decide(double rate, ae::TimePoint now, const MemoryLimit& limit) noexcept {
  if (stage_ == Stage::kTrying) {
    if (rate < rate_ * kGain) {
      size_ = before_;
      return rest(now, std::max(2 * pause_, kPause * (now - begin_)));
    }
    pause_ = {};
  }
  const MemoryLimit half{limit.most, limit.most / 2};
  if (size_ >= most_ || !half.allows(size_)) return rest(now, kLongestPause);
  rate_ = rate;
  before_ = size_;
  size_ = static_cast<std::uint32_t>(std::min<std::uint64_t>(2 * std::uint64_t{size_}, most_));
  stage_ = Stage::kSettling;
  began_ = false;
}

void SendBufferTuning::rest(ae::TimePoint now, ae::Duration pause) noexcept {
  stage_ = Stage::kResting;
  pause_ = std::min(pause, kLongestPause);
  again_at_ = now + pause_;
}

void SendBufferTuning::reset() noexcept {
  size_ = usual_;
  stage_ = Stage::kResting;
  pause_ = {};
  again_at_ = {};
}

}}}  // namespace conn::rdma
