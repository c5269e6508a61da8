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
  /// Call when the stream has failed or the peer has closed: from now on no window is wanted or
  /// offered.
  void end() noexcept { ended_ = true; }

  // --- adding and removing window memory ---------------------------------------------------------
  /// Returns the length of the window that is wanted now; 0: none is wanted. Answer with
  /// provide_window() of exactly that length, or with Stream::no_window() if there is no memory, or
  /// not at all: the window then stays wanted. Call it after Stream::on_data(), read() and
  /// Stream::tick(), each time after take_discarded(), which frees slots.
  std::uint32_t wanted_window() const noexcept;
  /// Throws std::bad_alloc, and then does not use the memory.
  void provide_window(const WindowBuffer& buffer);
  /// Replaces the memory of the window that was provided last. The message that announces this
  /// window must not have been posted yet.
  void replace_window(const WindowBuffer& buffer) { line_.replace_last(buffer); }
  /// Call instead of provide_window() if there is no memory. Returns false if the stream has no
  /// window at all. Otherwise it continues with those it has, and wants a window again after a
  /// second.
  [[nodiscard]] bool no_window(ae::TimePoint now);
  /// Removes a spare window that the stream needs no more and returns its memory, which the caller
  /// must free. The `data` of the result is null if there is no such window.
  WindowBuffer take_discarded() noexcept;
  /// Stops the use of all windows, at the end of the connection. Unread bytes are copied to `into`
  /// (unread_bytes() long, which is at most WindowSize::most_bytes(); must stay valid), where
  /// read() continues; if `into` is null they are lost. From now on no window is wanted or offered.
  void leave_windows(std::byte* into) noexcept;
  /// Stops the use of all windows like leave_windows(), but bytes that an earlier leave_windows()
  /// has copied stay. No other bytes may be unread.
  void drop_windows() noexcept;
  /// Returns true after leave_windows() and drop_windows().
  bool released() const noexcept { return released_; }
  /// Offers windows again after leave_windows(), because the stream goes on over a new path.
  void begin_again(const Peer& peer) noexcept;

  // --- announcing windows, and data that arrives: for Stream only --------------------------------
  const ReceiveWindowQueue& line() const noexcept { return line_; }
  /// Records that our message number `message` has announced the oldest window that was not
  /// announced yet.
  void announced(std::uint64_t message, ae::TimePoint now) noexcept {
    line_.announced(message, now);
  }
  /// Records that `length` bytes arrived. `waited`: the peer had these bytes before it had a window
  /// for them. Sets `announced_by` to the number of our message that announced the window, which
  /// the peer has thus handled. Returns null, or a text that says what is wrong.
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
  /// Does what on_data() does for a message that neither begins nor ends a window. Returns false,
  /// and changes nothing, if the immediate value says something else.
  bool take_straight(std::uint32_t immediate, ae::TimePoint now) noexcept {
    if (line_.take_some(immediate) == nullptr) return false;
    size_.on_data(now);
    return true;
  }
  /// Returns true if the peer was asked to leave windows and has not yet marked that it left them.
  bool expects_mark() const noexcept { return line_.leaving(); }
  /// Records the peer's mark, which says that it has left the windows that it was asked to leave.
  /// Returns null, or a text that says how the mark breaks the protocol.
  const char* on_mark() noexcept;

  // --- reading -----------------------------------------------------------------------------------
  bool has_unread() const noexcept { return line_.windows().has_unread(); }
  std::uint64_t unread_bytes() const noexcept { return line_.windows().unread_bytes(); }
  /// Returns how many unread bytes are in the memory that leave_windows() was given.
  std::uint64_t left_over() const noexcept { return line_.windows().left_over(); }
  /// Returns true if the peer has no window to write into, so that no more bytes can arrive until
  /// some are read. Only meaningful while there are unread bytes.
  bool is_full() const noexcept { return line_.outstanding() == 0; }
  /// Copies up to `size` bytes to `into`, or drops them if `into` is null. Returns their number; 0
  /// if none are unread now.
  std::size_t read(std::byte* into, std::size_t size);
  /// Like read(), if that changes nothing but the number of unread bytes. Otherwise it reads
  /// nothing and returns 0.
  std::size_t read_straight(std::byte* into, std::size_t size) noexcept {
    return line_.read_some(into, size);
  }
  /// Fills `pieces` with the oldest unread bytes in place, in the order in which read() would
  /// return them, as many pieces as fit. Returns the number of pieces. They stay valid until they
  /// are read, or until leave_windows().
  std::size_t peek(std::span<std::span<const std::byte>> pieces) const noexcept {
    return line_.windows().peek(pieces);
  }
  /// Returns a counter of windows that became full or were read to their end. While it is
  /// unchanged, arrivals and read() have not changed wanted_window(), take_discarded(), or what is
  /// to be announced. The exception are windows that wait for proof that the peer has more
  /// receives: the answer to our probe releases them.
  std::uint32_t window_changes() const noexcept { return window_changes_; }

  // --- time-outs and ticks -----------------------------------------------------------------------
  void tick(ae::TimePoint now) noexcept;
  ae::TimePoint next_tick() const noexcept;

  // --- facts about the windows -------------------------------------------------------------------
  /// Returns true if the peer has a window of ours to write into.
  bool has_announced() const noexcept { return !is_full() && line_.unannounced() == 0; }
  /// Returns true if the peer has several windows to write into, or one that is longer than the
  /// first length; tick() may later have them replaced by a single short window.
  bool has_long_window() const noexcept {
    return line_.outstanding() > 1 || line_.longest_outstanding() > size_.first_length();
  }
  std::uint32_t window_length() const noexcept { return size_.length(); }
  /// Returns the number of our receive windows that the peer should be able to write into.
  std::size_t windows_wanted() const noexcept { return size_.count(); }
  std::uint64_t pinned_bytes() const noexcept { return line_.bytes(); }
  void check() const;

 private:
  // Bytes that leave_windows() has copied count as the windows that would hold them: a peer that
  // loses its path again and again while nobody reads is not offered windows without end.
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
  // True once leave_windows() was called: the window memory must not be used any more.
  bool released_ = false;
  // True if the last full window left the peer without any, because our reader had not read the
  // full ones yet: more windows or longer ones would not have helped.
  bool reader_late_ = false;
  // True if one short window is to replace the idle windows that the peer has.
  bool recall_ = false;
  // True if there was no memory for a wanted window: none is asked for until window_failed_until_.
  bool window_failed_ = false;
  // True if no window has been filled for a while, so that take_discarded() must return a spare
  // one, whatever its length.
  bool drop_spare_ = false;
  ReceiveWindowQueue line_;
  std::uint32_t window_changes_ = 0;
  ae::TimePoint window_failed_until_{};
};

}}}  // namespace conn::rdma
