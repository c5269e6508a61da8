// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The receiving side of a stream. Decides how many receive windows (memory to write into) the peer
// has and how long they are, and gives the received bytes to the user. ReceiveWindowQueue keeps the
// windows in order.
//
// At first one window is offered. When its last byte has arrived, another one is offered at once,
// before the first is read, so that a peer need not wait for the reader unless the reader is more
// than a window behind. A peer that supports it is offered several windows at a time, once it has
// reported that it had to wait for one.
//
// Long windows that are idle are replaced by a short one, to save memory, if the peer supports it:
// the short window is offered although the long ones are not full, and the peer sends a message (a
// mark) when it changes to the short one (docs/valkey-over-rdma.md, "Windows: receiving").
//
// This class checks the values that the peer sends: a function that takes such a value returns a
// text that says what is wrong with it, or null.

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
  /// Stops requesting memory for receive windows and offering windows to the peer, because the
  /// stream has failed or the peer has closed.
  void end() noexcept { ended_ = true; }

  // --- adding and removing window memory ---------------------------------------------------------
  /// Returns the length in bytes of the receive window that the stream needs now; 0: it needs none.
  /// The caller then calls provide_window() with memory of exactly that length, or
  /// Stream::no_window() if there is no memory; if it calls neither, the result stays the same.
  /// Call this after Stream::on_data(), read() and Stream::tick(), each time after
  /// take_discarded().
  std::uint32_t wanted_window() const noexcept;
  /// Gives the stream memory for the receive window that wanted_window() asked for. Throws
  /// std::bad_alloc, and then does not use the memory.
  void provide_window(const WindowBuffer& buffer);
  /// Replaces the memory given to the last provide_window(). The message that announces this window
  /// must not have been posted yet.
  void replace_window(const WindowBuffer& buffer) { line_.replace_last(buffer); }
  /// Reports that there is no memory for the receive window that wanted_window() asked for. Returns
  /// false if the stream has no window at all, and must fail. Otherwise it continues with the
  /// windows it has, and asks again after a second.
  [[nodiscard]] bool no_window(ae::TimePoint now);
  /// Removes a spare (unused) window that the stream no longer needs, and returns its memory for
  /// the caller to free. If there is no such window, the `data` of the result is null. Call it
  /// repeatedly until `data` is null.
  WindowBuffer take_discarded() noexcept;
  /// Stops the use of all window memory, because the network path or the connection has ended.
  /// Copies all unread bytes to `into`, from where read() returns them; if `into` is null, they are
  /// lost. `into` must have unread_bytes() bytes (at most WindowSize::most_bytes()) and stay valid.
  /// From now on no window is requested or offered to the peer.
  void leave_windows(std::byte* into) noexcept;
  /// Stops the use of all window memory like leave_windows(), but copies nothing. The only unread
  /// bytes may be those that an earlier leave_windows() has copied; they stay readable.
  void drop_windows() noexcept;
  /// Returns true if the window memory must not be used: after leave_windows() or drop_windows(),
  /// until begin_again().
  bool released() const noexcept { return released_; }
  /// Requests and offers receive windows again after leave_windows(), because the stream continues
  /// on a new network path.
  void begin_again(const Peer& peer) noexcept;

  // --- announcing windows, and data that arrives: for Stream only --------------------------------
  const ReceiveWindowQueue& line() const noexcept { return line_; }
  /// Records that our message number `message`, counted from 1, has announced the oldest window
  /// that was not announced yet.
  void announced(std::uint64_t message, ae::TimePoint now) noexcept {
    line_.announced(message, now);
  }
  /// Records that the peer wrote `length` bytes into the current window. `waited`: the peer reports
  /// that it had to wait for a window before it could write them. Sets `announced_by` to the number
  /// of our message that announced the window: the peer must have handled that message. Returns
  /// null, or a text that says how the write breaks the protocol.
  const char* on_data(std::uint32_t length, bool waited, ae::TimePoint now,
                      std::uint64_t& announced_by) {
    const ReceiveWindowQueue::Window* const current = line_.current();
    if (current == nullptr) return "the peer wrote into a window that was not offered";
    if (length > current->end - current->filled) return "the peer wrote past the end of the window";
    if (waited && current->filled == 0) on_peer_waited(*current, length, now);
    size_.on_data(now);
    announced_by = current->announced_by;
    if (line_.fill(length, now)) on_full(*current, now);
    return nullptr;
  }
  /// Records data as on_data() does, but faster, if the data is neither the first nor the last of
  /// its window. Otherwise returns false and changes nothing.
  bool take_straight(std::uint32_t immediate, ae::TimePoint now) noexcept {
    if (line_.take_some(immediate) == nullptr) return false;
    size_.on_data(now);
    return true;
  }
  /// Returns true if the peer was asked to change to another window before the current one is full,
  /// and has not yet sent the mark (kWindowMark) that says that it did.
  bool expects_mark() const noexcept { return line_.leaving(); }
  /// Records the peer's mark (kWindowMark), which says that the peer has changed to the window that
  /// it was asked to change to. Returns null, or a text that says how the mark breaks the protocol.
  const char* on_mark() noexcept;

  // --- reading by the user -----------------------------------------------------------------------
  bool has_unread() const noexcept { return line_.windows().has_unread(); }
  std::uint64_t unread_bytes() const noexcept { return line_.windows().unread_bytes(); }
  /// Returns how many of the bytes that leave_windows() has copied out of the windows are still
  /// unread.
  std::uint64_t left_over() const noexcept { return line_.windows().left_over(); }
  /// Returns true if the peer has no receive window of ours to write into. If there are unread
  /// bytes, no more bytes can then arrive until some are read.
  bool is_full() const noexcept { return line_.outstanding() == 0; }
  /// Copies up to `size` of the oldest unread bytes to `into`, or drops them if `into` is null.
  /// Returns how many; 0 if there are none.
  std::size_t read(std::byte* into, std::size_t size);
  /// Does what read() does, but faster, if the oldest unread bytes are in a window that is not
  /// full, so that no window is read to its end. Otherwise reads nothing and returns 0.
  std::size_t read_straight(std::byte* into, std::size_t size) noexcept {
    return line_.read_some(into, size);
  }
  /// Sets the elements of `pieces` to the memory of the oldest unread bytes, in the order in which
  /// read() would return them, as many pieces as fit. Returns the number of pieces. They stay valid
  /// until they are read, or until leave_windows().
  std::size_t peek(std::span<std::span<const std::byte>> pieces) const noexcept {
    return line_.windows().peek(pieces);
  }
  /// Returns a counter. While it is unchanged, data and read() have not changed the results of
  /// wanted_window() and take_discarded(), nor the list of windows to be announced. It changes, for
  /// example, when a window becomes full or is read to its end; but not when the peer answers our
  /// probe, after which an announcement that had to wait for a free receive of the peer can be
  /// sent.
  std::uint32_t window_changes() const noexcept { return window_changes_; }

  // --- periodic checks ---------------------------------------------------------------------------
  void tick(ae::TimePoint now) noexcept;
  ae::TimePoint next_tick() const noexcept;

  // --- properties of the windows -----------------------------------------------------------------
  /// Returns true if the peer has a receive window of ours to write into, and none is still to be
  /// announced.
  bool has_announced() const noexcept { return !is_full() && line_.unannounced() == 0; }
  /// Returns true if the peer has several receive windows of ours to write into, or one that is
  /// longer than the initial length, so that tick() may replace them by a single short window.
  bool has_long_window() const noexcept {
    return line_.outstanding() > 1 || line_.longest_outstanding() > size_.first_length();
  }
  std::uint32_t window_length() const noexcept { return size_.length(); }
  /// Returns the number of our receive windows that the peer should be able to write into.
  std::size_t windows_wanted() const noexcept { return size_.count(); }
  std::uint64_t pinned_bytes() const noexcept { return line_.bytes(); }
  void check() const;

 private:
  // Number of receive windows in use. Bytes that leave_windows() has copied out of windows count as
  // the windows that would hold them. Otherwise a peer that loses its network path again and again,
  // while the user does not read, could make us store any number of bytes.
  std::uint64_t in_line() const noexcept {
    const std::uint32_t left = line_.windows().left_over();
    return line_.windows().count() + (left != 0 ? (left - 1) / size_.length() : 0);
  }
  bool wants_another() const noexcept {
    return !line_.leaving() && line_.outstanding() < size_.count() && in_line() <= size_.count();
  }
  bool may_recall() const noexcept;
  void offer_spares() noexcept;
  void on_peer_waited(const ReceiveWindowQueue::Window& window, std::uint32_t length,
                      ae::TimePoint now);
  void on_full(const ReceiveWindowQueue::Window& window, ae::TimePoint now);

  WindowSize size_;
  bool ended_ = false;
  // True after leave_windows() or drop_windows(): the window memory must not be used any more.
  bool released_ = false;
  // True if the peer had no receive window after it filled the last one, because the user had not
  // read the full ones yet. More or longer windows would not have helped then.
  bool reader_late_ = false;
  // True if the idle receive windows that the peer has are to be replaced by one short window
  // (decided by tick()).
  bool recall_ = false;
  // True if there was no memory for a window: wanted_window() does not ask again until
  // window_failed_until_.
  bool window_failed_ = false;
  // True if no window has become full for flow::kWindowsQuiet: spare (unused) windows of any length
  // are then freed, to save memory (take_discarded()).
  bool drop_spare_ = false;
  ReceiveWindowQueue line_;
  std::uint32_t window_changes_ = 0;
  ae::TimePoint window_failed_until_{};
};

}}}  // namespace conn::rdma
