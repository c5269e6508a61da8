// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The receiving side of a stream: how many windows of ours the peer has, how long they are, and
// what of them can be read. The order of the windows is ReceiveWindowQueue's.
//
// One window is offered; when its last byte has arrived, another is offered at once, before the
// first is read, so that a transfer never waits for the reader as long as the reader keeps up with
// one window. A peer whose hello allows it is offered several windows at a time once it reports
// that it had to wait for one.
//
// Windows that grew and are now idle are replaced by a short one where the peer's hello allows it:
// the short window is offered although the long ones are not full, and the peer marks in the stream
// where it changes over (docs/valkey-over-rdma.md, "Windows: receiving").
//
// The peer's values are checked here: a function that takes one returns why it is bad.

#include <cstddef>
#include <cstdint>
#include <span>

#include "ae/abi.h"
#include "ae/time.h"
#include "conn/rdma/protocol/receive_window_queue.h"
#include "conn/rdma/protocol/window_size.h"

namespace conn { inline namespace AECONN_ABI { namespace rdma {

class StreamReceiver {
 public:
  using Config = WindowSize::Config;
  using Peer = WindowSize::Peer;
  StreamReceiver(const Config& config, const Peer& peer, ae::TimePoint now) noexcept;
  void set_peer(const Peer& peer) noexcept { size_.set_peer(peer); }
  /// The stream has failed, or the peer has closed: no window is wanted or offered any more.
  void end() noexcept { ended_ = true; }

  // --- memory comes and goes ---------------------------------------------------------------------
  /// Length of the window that is wanted now, or 0. Answer with provide_window() of exactly that
  /// length, or with Stream::no_window() if there is no memory, or not at all: the request then
  /// remains. Call it after Stream::on_data(), read() and Stream::tick(), each time after
  /// take_discarded(), which frees slots.
  std::uint32_t wanted_window() const noexcept;
  void provide_window(const WindowBuffer& buffer);
  /// Replaces the window that was provided last, whose announcement has not been posted.
  void replace_window(const WindowBuffer& buffer) { line_.replace_last(buffer); }
  /// False: there is no window at all. Otherwise it continues with the windows there are and asks
  /// again a second later.
  [[nodiscard]] bool no_window(ae::TimePoint now);
  /// Returns a spare window that is of no more use and must be freed. Empty `data` if there is
  /// none.
  WindowBuffer take_discarded() noexcept;
  /// For the end of the connection: no window is used any more. Unread bytes are copied to `into`
  /// (unread_bytes() long, must stay valid) and read() continues there; null: they are lost. From
  /// now on no windows are wanted and none are offered.
  void leave_windows(std::byte* into) noexcept;

  // --- telling the peer, and what it writes: only Stream calls these
  // ------------------------------
  const ReceiveWindowQueue& line() const noexcept { return line_; }
  /// The window that is next to be announced was, by our message of this number.
  void announced(std::uint64_t message, ae::TimePoint now) noexcept {
    line_.announced(message, now);
  }
  /// `length` bytes arrived. `waited`: the peer had them before it had a window. Returns null, or
  /// what is wrong. `announced_by`: the number of our message that the peer has handled.
  const char* on_data(std::uint32_t length, bool waited, ae::TimePoint now,
                      std::uint64_t& announced_by);
  /// It is to leave windows, and has not said so yet.
  bool expects_mark() const noexcept { return line_.leaving(); }
  /// It has left them. Returns as on_data().
  const char* on_mark() noexcept;

  // --- reading -----------------------------------------------------------------------------------
  bool has_unread() const noexcept { return line_.has_unread(); }
  std::uint64_t unread_bytes() const noexcept { return line_.unread_bytes(); }
  /// With unread bytes: no more can arrive until some of them are read, in the current state.
  bool is_full() const noexcept { return line_.outstanding() == 0; }
  /// Copies out up to `size` bytes, or drops them if `into` is null. Returns 0 if there are none
  /// now.
  std::size_t read(std::byte* into, std::size_t size);
  /// Shows in place what read() would return: the oldest pieces, as many as `pieces` can hold.
  /// Returns their number. They stay valid until they are read, or until leave_windows().
  std::size_t peek(std::span<std::span<const std::byte>> pieces) const noexcept {
    return line_.peek(pieces);
  }
  /// Counts windows that became full or were read to their end. While it is unchanged, arrivals and
  /// read() have changed nothing about wanted_window(), take_discarded() and what is to be
  /// announced, except for windows that wait until more receives are proven: the answer to our
  /// probe releases those.
  std::uint32_t window_turns() const noexcept { return window_turns_; }

  // --- time --------------------------------------------------------------------------------------
  void tick(ae::TimePoint now) noexcept;
  ae::TimePoint next_tick() const noexcept;

  // --- facts -------------------------------------------------------------------------------------
  /// The peer has a window of ours to write into.
  bool has_announced() const noexcept { return !is_full() && !line_.to_announce(); }
  /// The peer has more than one window of the first length; tick() may recall that later.
  bool has_long_window() const noexcept {
    return line_.outstanding() > 1 || line_.longest_outstanding() > size_.first_length();
  }
  std::uint32_t window_length() const noexcept { return size_.length(); }
  /// Number of windows that the peer should hold.
  std::size_t windows_wanted() const noexcept { return size_.count(); }
  std::uint64_t pinned_bytes() const noexcept { return line_.bytes(); }
  void check() const;

 private:
  bool wants_another() const noexcept {
    return !line_.leaving() && line_.outstanding() < size_.count() &&
           line_.count() <= size_.count();
  }
  bool may_recall() const noexcept;
  void offer_spares() noexcept;

  WindowSize size_;
  bool ended_ = false;
  bool released_ = false;       // leave_windows() was called
  bool reader_late_ = false;    // no window was left because full ones had not been read
  bool recall_ = false;         // a short window is to replace the outstanding ones
  bool window_failed_ = false;  // no memory for another window
  bool drop_spare_ = false;     // nothing has filled a window for a while
  ReceiveWindowQueue line_;
  std::uint32_t window_turns_ = 0;
  ae::TimePoint window_failed_until_{};
};

}}}  // namespace conn::rdma
