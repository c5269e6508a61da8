// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// A Connection for coroutines.

#include <cstddef>
#include <memory>
#include <utility>

#include "ae/abi.h"
#include "ae/time.h"
#include "conn/co/bytes.h"
#include "conn/co/operations.h"
#include "conn/co/result.h"
#include "conn/connection.h"

namespace conn { inline namespace AECONN_ABI { namespace co {

/// Owns a connection and its read and write handlers: its end closes it, as ConnectionPtr's does.
/// What the operations give is awaited where they are called: `co_await peer.read(buffer, 10s)`.
/// They allocate nothing of their own. One that reads and one that writes may wait at a time; a
/// second one in a direction says EBUSY at once, and takes nothing. Of an empty stream: ENOTCONN.
/// A limit is the longest wait, from its beginning; the operation says ETIMEDOUT then, and the
/// stream can be used on.
/// An operation is cancelled by the end of who awaits it. No byte is lost by that: what was not
/// taken is read by the next one. Buffers must outlive the wait; locals of the coroutine do.
/// Each tries at once before it waits; one that never had to, 64 times, waits for the loop's next
/// iteration, so that others have their turn.
class Stream {
 public:
  Stream() noexcept : Stream(ConnectionPtr()) {}
  /// On its loop's thread; the connection keeps neither read nor write handler of others.
  Stream(ConnectionPtr connection) noexcept  // NOLINT(google-explicit-constructor)
      : connection_(std::move(connection)),
        reader_(detail::Lane::Way::kRead, connection_.get(), at_once_),
        writer_(detail::Lane::Way::kWrite, connection_.get(), at_once_) {}
  /// As release(). The idle limit comes along.
  Stream(Stream&& other) noexcept : Stream(other.release()) { idle_limit_ = other.idle_limit_; }
  /// Closes what it had, as its end does: what waits for that says ECANCELED, and so does what
  /// waits for `other`'s.
  Stream& operator=(Stream&& other) noexcept {
    if (this == &other) return *this;
    reader_.leave_connection();
    writer_.leave_connection();
    connection_ = other.release();
    idle_limit_ = other.idle_limit_;
    at_once_ = 0;
    shown_ = 0;
    reader_.take_connection(connection_.get());
    writer_.take_connection(connection_.get());
    return *this;
  }

  /// The limit of operations that are given none: of each, for all of it, from its own beginning.
  /// It counts for those that begin from now on. None (kNoLimit) to begin with; one that is to wait
  /// as long as it takes says kNoLimit itself.
  void set_idle_limit(ae::Duration limit) noexcept {
    idle_limit_ = limit == kIdleLimit ? kNoLimit : limit;
  }

  /// What is there, up to the room; waits while there is nothing. ENODATA (kEndOfStream): the
  /// stream has ended. Into no room: at once, also beside another one that reads.
  [[nodiscard]] detail::Read read(MutableBytes buffer, ae::Duration limit = kIdleLimit) noexcept {
    return {reader_, buffer.span(), limit_of(limit)};
  }
  /// Fills the buffer. ENODATA: the stream ended first; then, and after another error, `size` says
  /// how much of it has come.
  [[nodiscard]] detail::ReadExactly read_exactly(MutableBytes buffer,
                                                 ae::Duration limit = kIdleLimit) noexcept {
    return {reader_, buffer.span(), limit_of(limit)};
  }
  /// Reads up to a newline and drops it, and a carriage return before it; `size` is the text's.
  /// EMSGSIZE: the buffer is full of a longer line, whose rest comes next. ENODATA: the stream
  /// ended first, and what came of the line is in the buffer.
  [[nodiscard]] detail::ReadLine read_line(MutableBytes buffer,
                                           ae::Duration limit = kIdleLimit) noexcept {
    return {reader_, buffer.text(), limit_of(limit)};
  }
  /// Waits for `together` bytes, kMaxContiguous at most, and shows them where they lie: a parser in
  /// place. ENODATA: the stream ends before them; what is left of it is shown. EMSGSIZE: `together`
  /// is more than kMaxContiguous. Nothing is read before consume().
  [[nodiscard]] detail::Peek peek(std::size_t together = 1,
                                  ae::Duration limit = kIdleLimit) noexcept {
    return {reader_, shown_, together, limit_of(limit)};
  }
  /// The first `size` bytes that peek() showed have been read.
  void consume(std::size_t size) noexcept {
    connection_->consume(size);
    shown_ -= size < shown_ ? size : shown_;
    if (shown_ == 0) reader_.expect(false);  // the loop tells of more
  }
  /// Writes all. After an error `size` says how much the connection took. Nothing: at once, also
  /// beside another one that writes.
  [[nodiscard]] detail::Write write(ConstBytes bytes, ae::Duration limit = kIdleLimit) noexcept {
    return {writer_, bytes.span(), limit_of(limit)};
  }
  /// Waits until there may be room for reserve(), commit() or send() of the connection, which are
  /// used as they are; or until they fail.
  [[nodiscard]] detail::Writable writable(ae::Duration limit = kIdleLimit) noexcept {
    return {writer_, limit_of(limit)};
  }

  /// All that is not waited for: shutdown(), flush(), last_error(), info(), ... Not rebind(),
  /// leave() and join(), which are for a connection that was released.
  Connection* operator->() const noexcept { return connection_.get(); }
  Connection& operator*() const noexcept { return *connection_; }  ///< the connection itself
  /// Whether there is a connection, whatever has become of it.
  explicit operator bool() const noexcept { return connection_ != nullptr; }
  /// Gives the connection back, without handlers. What waits for it, says ECANCELED in the loop's
  /// next iteration, and as well where the stream ends; without memory for that it waits until it
  /// is cancelled.
  [[nodiscard]] ConnectionPtr release() noexcept {
    reader_.leave_connection();
    writer_.leave_connection();
    return std::move(connection_);
  }
  /// As release(), and then Connection::abort(): the peer sees that the stream was cut.
  void abort() noexcept {
    if (ConnectionPtr connection = release()) connection.release()->abort();
  }

 private:
  ae::Duration limit_of(ae::Duration given) const noexcept {
    return given == kIdleLimit ? idle_limit_ : given;
  }

  ConnectionPtr connection_;
  ae::Duration idle_limit_ = kNoLimit;
  unsigned at_once_ = 0;
  detail::Lane reader_, writer_;
  std::size_t shown_ = 0;  // by peek(), and not consumed
};

}}}  // namespace conn::co
