// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// How long the receive windows of a stream should be, and how many of them the peer should hold:
// longer and more while the peer fills them fast or waits for them, one of the first length when it
// is quiet. Decides only; StreamReceiver has the windows.

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
  struct Config {
    std::uint32_t window = 0, max_window = 0, max_windows = 0;
    /// True if requests without an answer fail in the end (StreamConfig::device_gives_up).
  };
  struct Peer {                ///< what the peer understands, as stated in its hello
    bool may_change = false;   ///< true: windows may have different lengths
    bool marks = false;        ///< true: the peer marks where it leaves a window
    bool takes_ahead = false;  ///< true: the peer accepts several windows at a time
  };
  WindowSize(const Config& config, const Peer& peer, ae::TimePoint now) noexcept;
  void set_peer(const Peer& peer) noexcept { peer_ = peer; }
  const Peer& peer() const noexcept { return peer_; }

  /// Length of the next window.
  std::uint32_t length() const noexcept { return desired_; }
  std::uint32_t first_length() const noexcept { return config_.window; }
  /// Returns the number of windows that the peer should have.
  std::uint32_t count() const noexcept { return wanted_; }
  /// Most windows that may be held, with the one that is being read.
  std::uint32_t most_held() const noexcept;
  /// More than one window of the first length.
  bool has_grown() const noexcept { return desired_ != config_.window || wanted_ > 1; }

  void on_data(ae::TimePoint now) noexcept { last_data_at_ = now; }
  /// `window` became full. `leaving`: its successor is a short window.
  void on_full(const ReceiveWindowQueue::Window& window, bool leaving, ae::TimePoint now) noexcept;
  /// The first `length` bytes of a window came, for which the peer had to wait although the reader
  /// is fast enough. True: the peer should hold more windows than before.
  bool on_peer_waited(std::uint32_t length, ae::TimePoint announced_at, ae::TimePoint now) noexcept;
  /// True if the peer has been quiet: one window of the first length is enough again.
  bool tick(ae::TimePoint now) noexcept;
  /// When the peer will have been quiet for that.
  ae::TimePoint quiet_at() const noexcept { return last_full_at_ + flow::kWindowsQuiet; }
  /// When unused windows, one or `several`, are to be replaced by a short one.
  ae::TimePoint recall_at(bool several) const noexcept;
  void check() const;

 private:
  std::uint32_t most_wanted() const noexcept;
  void grow() noexcept;
  bool was_idle(std::uint32_t length, ae::TimePoint now) const noexcept;

  Config config_;
  Peer peer_;
  std::uint32_t desired_;  // length of the next window to be offered
  // Length of the longest window that was filled quickly in the last burst of data.
  std::uint32_t useful_ = 0;
  // Length of the window that became full last, and the number of its bytes after the first write.
  std::uint32_t last_length_ = 0, last_rest_ = 0;
  std::uint32_t wanted_ = 1;  // number of windows that the peer should have
  // The value that wanted_ takes when the peer first waits for a window in a burst of data.
  std::uint32_t wanted_next_ = 2;  // the same, when the peer first waits in a burst
  ae::TimePoint more_since_{};     // when wanted_ last grew
  ae::Duration last_rest_took_{};
  ae::TimePoint last_full_at_, last_data_at_;
};

}}}  // namespace conn::rdma
