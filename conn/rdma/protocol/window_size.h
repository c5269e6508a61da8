// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Decides how long the receive windows of a stream should be, and how many of them the peer should
// have: longer and more ones while the peer fills them quickly or waits for them, and a single one
// of the initial length when no data arrives. StreamReceiver owns the windows.

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>

#include "ae/abi.h"
#include "ae/time.h"
#include "conn/rdma/protocol/receive_window_queue.h"

namespace conn { inline namespace AECONN_ABI { namespace rdma {

namespace flow {
/// If the peer has several receive windows and no data arrives for kWindowsQuiet, they are replaced
/// by one short window. A single long window is replaced by a short one after kLongWindowQuiet.
inline constexpr ae::Duration kWindowsQuiet = std::chrono::seconds(1);
inline constexpr ae::Duration kLongWindowQuiet = std::chrono::seconds(10);
}  // namespace flow

class WindowSize {
 public:
  struct Config {  ///< values of the members of StreamConfig that have the same names
    std::uint32_t window = 0, max_window = 0, max_windows = 0;
  };
  /// What the peer supports, as it stated when the connection was set up.
  struct Peer {
    /// True if the receive windows that we offer to this peer may have different lengths.
    bool may_change = false;
    /// True if the peer can change to a new window before the current one is full, and then sends a
    /// mark (kWindowMark).
    bool marks = false;
    bool takes_ahead = false;  ///< true if the peer accepts several windows at a time
  };
  WindowSize(const Config& config, const Peer& peer, ae::TimePoint now) noexcept;
  void set_peer(const Peer& peer) noexcept { peer_ = peer; }
  const Peer& peer() const noexcept { return peer_; }

  /// Returns the length in bytes that the next receive window should have.
  std::uint32_t length() const noexcept { return desired_; }
  std::uint32_t first_length() const noexcept { return config_.window; }
  /// Returns how many receive windows the peer should be able to write into.
  std::uint32_t count() const noexcept { return wanted_; }
  /// Returns the greatest number of receive windows that may exist, including the one that the user
  /// is reading.
  std::uint32_t most_held() const noexcept;
  /// Returns the greatest number of bytes that may be unread, in windows or copied out of them.
  std::uint64_t most_bytes() const noexcept {
    return std::uint64_t{most_held()} * std::max(config_.max_window, config_.window);
  }
  /// Returns true if more than one window, or a longer window than the initial one, is wanted.
  bool has_grown() const noexcept { return desired_ != config_.window || wanted_ > 1; }

  void on_data(ae::TimePoint now) noexcept { last_data_at_ = now; }
  /// Records that `window` has become full. `leaving`: the peer was asked to change to a short
  /// window, so the next windows must not become longer because of this one.
  void on_full(const ReceiveWindowQueue::Window& window, bool leaving, ae::TimePoint now) noexcept;
  /// Makes the next windows longer, or more numerous, if that would have helped a peer that reports
  /// that it had to wait for this window. Call it when the first `length` bytes of the window have
  /// arrived, unless our reader was the reason for the wait. Returns true if the peer should now
  /// have more windows than before. `announced_at`: time at which the window was announced.
  bool on_peer_waited(std::uint32_t length, ae::TimePoint announced_at, ae::TimePoint now) noexcept;
  /// Returns true if no receive window has become full for the time kWindowsQuiet. It then also
  /// resets length() and count() to one window of the initial length.
  bool tick(ae::TimePoint now) noexcept;
  /// Returns the time from which tick() returns true, unless another window becomes full before.
  ae::TimePoint quiet_at() const noexcept { return last_full_at_ + flow::kWindowsQuiet; }
  /// Returns the time at which idle windows must be replaced by one short window. `several`: the
  /// peer has more than one window; otherwise it has one long window.
  ae::TimePoint recall_at(bool several) const noexcept;
  void check() const;

 private:
  std::uint32_t most_wanted() const noexcept;
  void grow() noexcept;
  bool was_idle(std::uint32_t length, ae::TimePoint now) const noexcept;

  Config config_;
  Peer peer_;
  std::uint32_t desired_;  // length in bytes that the next receive window should have
  // Length in bytes of the longest window that proved too short, halved after each burst of data
  // that fills no such window; a later burst grows to it at once.
  std::uint32_t useful_ = 0;
  // For the window that became full last: its length in bytes, and the number of its bytes that
  // came after the first write.
  std::uint32_t last_length_ = 0, last_rest_ = 0;
  // Number of receive windows that the peer should be able to write into.
  std::uint32_t wanted_ = 1;
  // Number of windows to which wanted_, the wanted number, first grows from 1 in a burst of data.
  std::uint32_t wanted_next_ = 2;
  ae::TimePoint more_since_{};  // time of the last increase of wanted_; zero: never
  ae::Duration last_rest_took_{};
  ae::TimePoint last_full_at_, last_data_at_;
};

}}}  // namespace conn::rdma
