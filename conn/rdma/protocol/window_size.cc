// SPDX-License-Identifier: BSD-3-Clause
#include "conn/rdma/protocol/window_size.h"

#include <algorithm>
#include <cassert>
#include <utility>

namespace conn { inline namespace AECONN_ABI { namespace rdma {
namespace {

// A receive window that became full within this time after it was announced was too short: the next
// ones become longer.
constexpr ae::Duration kFastFill = std::chrono::milliseconds(5);

}  // namespace

WindowSize::WindowSize(const Config& config, const Peer& peer, ae::TimePoint now) noexcept
    : config_(config),
      peer_(peer),
      desired_(config.window),
      last_full_at_(now),
      last_data_at_(now) {
  assert(config.window != 0);
}

// Returns the greatest number of windows that the peer may have to write into, not counting the one
// that the user is reading.
std::uint32_t WindowSize::most_wanted() const noexcept {
  if (!peer_.takes_ahead) return 1;
  // Limits the number of windows so that the number of unread bytes fits into 32 bits, as
  // StreamReceiver::leave_windows() requires.
  const std::uint32_t counted = 0xffffffffu / config_.max_window;
  return std::max(std::min(config_.max_windows, counted), 2u) - 1;
}

std::uint32_t WindowSize::most_held() const noexcept { return std::max(config_.max_windows, 2u); }

void WindowSize::on_full(const ReceiveWindowQueue::Window& window, bool leaving,
                         ae::TimePoint now) noexcept {
  last_length_ = window.buffer.length;
  last_rest_ = last_length_ - window.first;
  last_rest_took_ = now - window.first_at;
  if (!leaving && now - window.announced_at < kFastFill) grow();
  last_full_at_ = now;
}

// Makes the next windows longer. Called when the window that became full last was too short.
void WindowSize::grow() noexcept {
  if (!peer_.may_change) return;
  // The next window is twice as long as the last full one, or as long as the longest one that
  // proved too short (useful_) if that is more; at most max_window.
  const std::uint64_t next = std::max<std::uint64_t>(2 * std::uint64_t{last_length_}, useful_);
  desired_ = std::max(
      desired_, static_cast<std::uint32_t>(std::min<std::uint64_t>(next, config_.max_window)));
  useful_ = std::max(useful_, last_length_);
}

// Returns true if the connection carried no data for a noticeable time before the first `length`
// bytes of a window arrived. This is the case if they took longer than `length` bytes plus 1/32 of
// a window take at the measured rate. (A peer that posts writes faster than its device sends them
// also reports that it waited for a window, but its device was not idle.)
bool WindowSize::was_idle(std::uint32_t length, ae::TimePoint now) const noexcept {
  if (last_rest_ == 0) return true;
  const double each = std::chrono::duration<double>(last_rest_took_).count() / last_rest_;
  const std::chrono::duration<double> since = now - last_full_at_;
  return since.count() > each * (length + last_length_ / 32.0);
}

// The peer had to wait for a receive window. Makes the next windows longer or, if they already have
// the greatest length, makes their number larger.
bool WindowSize::on_peer_waited(std::uint32_t length, ae::TimePoint announced_at,
                                ae::TimePoint now) noexcept {
  // If the window was announced before the number of windows last grew, the fact that the peer had
  // to wait for it does not show that the present number is too small.
  if (announced_at < more_since_ || !was_idle(length, now)) return false;
  if (last_length_ < config_.max_window) {
    grow();
    return false;
  }
  const std::uint32_t before = wanted_;
  wanted_ = std::min(wanted_ == 1 ? wanted_next_ : wanted_ + 1, most_wanted());
  if (wanted_ == before) return false;
  more_since_ = now;
  return true;
}

bool WindowSize::tick(ae::TimePoint now) noexcept {
  if (now - last_full_at_ < flow::kWindowsQuiet) return false;
  if (peer_.may_change && desired_ != config_.window) {
    // This burst of data filled no window as long as useful_, so the next burst begins to grow from
    // a shorter one.
    if (last_length_ < useful_) useful_ /= 2;
    desired_ = config_.window;
  }
  // In the next burst of data the number of windows grows from 1 to one less than in this burst,
  // because that may suffice.
  if (wanted_ > 1) wanted_next_ = std::max(std::exchange(wanted_, 1u) - 1, 2u);
  return true;
}

ae::TimePoint WindowSize::recall_at(bool several) const noexcept {
  return std::max(last_full_at_, last_data_at_) +
         (several ? flow::kWindowsQuiet : flow::kLongWindowQuiet);
}

void WindowSize::check() const {
  assert(wanted_ >= 1 && (wanted_ == 1 || wanted_ <= most_wanted()));
}

}}}  // namespace conn::rdma
