// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// How long the receive windows of a stream should be, and how many of them the peer should hold:
// longer and more while the peer fills them fast or waits for them, one of the first length when it
// is quiet. Decides only; StreamReceiver has the windows.

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>

#include "ae/abi.h"
#include "ae/time.h"
#include "conn/rdma/protocol/receive_window_queue.h"

namespace conn { inline namespace AECONN_ABI { namespace rdma {

namespace flow {
/// A peer that sent no data for kWindowsQuiet gets one short window in place of several windows;
/// after kLongWindowQuiet also in place of one long window.
inline constexpr ae::Duration kWindowsQuiet = std::chrono::seconds(1);
inline constexpr ae::Duration kLongWindowQuiet = std::chrono::seconds(10);
}  // namespace flow

class WindowSize {
 public:
  struct Config {  ///< values of the members of StreamConfig that have the same names
    std::uint32_t window = 0, max_window = 0, max_windows = 0;
  };
  /// What the peer's protocol allows us to do with our windows, mostly stated in its hello.
  struct Peer {
    /// Whether the receive windows offered to one peer may have different lengths.
    bool may_change = false;
    /// Whether the peer marks in the stream where it leaves a window that is not full.
    bool marks = false;
    bool takes_ahead = false;  ///< whether the peer accepts offers of several windows at a time
  };
  WindowSize(const Config& config, const Peer& peer, ae::TimePoint now) noexcept;
  void set_peer(const Peer& peer) noexcept { peer_ = peer; }
  const Peer& peer() const noexcept { return peer_; }

  /// Returns the length in bytes that the next receive window should have.
  std::uint32_t length() const noexcept { return desired_; }
  std::uint32_t first_length() const noexcept { return config_.window; }
  /// Returns the number of our receive windows that the peer should be able to write into.
  std::uint32_t count() const noexcept { return wanted_; }
  /// Returns how many receive windows may exist at most, including the one that the user is
  /// reading.
  std::uint32_t most_held() const noexcept;
  /// Returns how many bytes may be unread at most, in windows or copied out of them.
  std::uint64_t most_bytes() const noexcept {
    return std::uint64_t{most_held()} * std::max(config_.max_window, config_.window);
  }
  /// Returns true if the windows should be longer or more than one window of the first length.
  bool has_grown() const noexcept { return desired_ != config_.window || wanted_ > 1; }

  void on_data(ae::TimePoint now) noexcept { last_data_at_ = now; }
  /// Records that `window` became full. `leaving`: the peer was asked to change to a short window,
  /// so the lengths do not grow.
  void on_full(const ReceiveWindowQueue::Window& window, bool leaving, ae::TimePoint now) noexcept;
  /// Call when the first `length` bytes of a window arrived that the peer had to wait for, although
  /// our reader is fast enough. Returns true if the peer should now hold more windows than before.
  /// `announced_at`: when the window was announced.
  bool on_peer_waited(std::uint32_t length, ae::TimePoint announced_at, ae::TimePoint now) noexcept;
  /// Returns true if no window became full for kWindowsQuiet: one window of the first length is
  /// enough again, and length() and count() now say so.
  bool tick(ae::TimePoint now) noexcept;
  /// Returns the time at which tick() returns true unless another window becomes full before.
  ae::TimePoint quiet_at() const noexcept { return last_full_at_ + flow::kWindowsQuiet; }
  /// Returns the time at which one unused long window, or `several` unused windows, must be
  /// replaced by one short window.
  ae::TimePoint recall_at(bool several) const noexcept;
  void check() const;

 private:
  std::uint32_t most_wanted() const noexcept;
  void grow() noexcept;
  bool was_idle(std::uint32_t length, ae::TimePoint now) const noexcept;

  Config config_;
  Peer peer_;
  std::uint32_t desired_;  // length in bytes that the next receive window should have
  // Length of the longest window that was filled quickly in the last burst of data.
  std::uint32_t useful_ = 0;
  // Length of the window that became full last, and the number of its bytes after the first write.
  std::uint32_t last_length_ = 0, last_rest_ = 0;
  // Number of our receive windows that the peer should be able to write into.
  std::uint32_t wanted_ = 1;
  // The value that wanted_ takes when the peer first waits for a window in a burst of data.
  std::uint32_t wanted_next_ = 2;
  ae::TimePoint more_since_{};  // time at which wanted_ last grew; zero: never
  ae::Duration last_rest_took_{};
  ae::TimePoint last_full_at_, last_data_at_;
};

}}}  // namespace conn::rdma
