// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Stream: a Connection for coroutines, with operations to be awaited instead of handlers.

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

/// Owns a connection and its read and write handlers. Its destructor closes the connection, as
/// ConnectionPtr's does.
///
/// Await each operation where it is called: `co_await peer.read(buffer, 10s)`. Operations allocate
/// no memory of their own. One reading and one writing operation may wait at a time; a second one
/// in the same direction fails at once with EBUSY and takes nothing. On an empty stream every
/// operation fails with ENOTCONN.
///
/// `limit` is the longest time for which an operation waits. When it expires, the operation fails
/// with ETIMEDOUT, and the stream stays usable.
///
/// Destroying the awaiting coroutine cancels the operation. No byte is lost: the next operation
/// reads what was not taken. Buffers must outlive the wait; local variables of the coroutine do.
///
/// Each operation tries to complete at once, before it waits. After 64 such tries in a row, or when
/// the time of the loop's iteration is used up, the next operation waits for the next iteration, so
/// that other handlers can run.
class Stream {
 public:
  Stream() noexcept : Stream(ConnectionPtr()) {}
  /// Takes ownership of `connection`. Call it on the loop's thread. The connection must have no
  /// other read or write handler.
  Stream(ConnectionPtr connection) noexcept  // NOLINT(google-explicit-constructor)
      : connection_(std::move(connection)),
        reader_(detail::Lane::Direction::kRead, connection_.get(), at_once_),
        writer_(detail::Lane::Direction::kWrite, connection_.get(), at_once_) {}
  /// Takes the connection out of `other`, as other.release() does, and takes over its idle limit.
  Stream(Stream&& other) noexcept : Stream(other.release()) { idle_limit_ = other.idle_limit_; }
  /// Closes the connection that this stream had, as the destructor does, and takes over the
  /// connection and the idle limit of `other`. Operations that wait for one of the two connections
  /// fail with ECANCELED.
  Stream& operator=(Stream&& other) noexcept {
    if (this == &other) return *this;
    reader_.leave_connection();
    writer_.leave_connection();
    connection_ = other.release();
    idle_limit_ = other.idle_limit_;
    at_once_ = 0;
    shown_ = 0;
    stopping_ = nullptr;
    reader_.take_connection(connection_.get());
    writer_.take_connection(connection_.get());
    return *this;
  }

  /// Sets the time-out of operations that are called without one. It covers each operation as a
  /// whole, from its own beginning, and applies to operations that begin after this call. By
  /// default it is kNoLimit. For an operation that may wait without limit, pass kNoLimit.
  void set_idle_limit(ae::Duration limit) noexcept {
    idle_limit_ = limit == kIdleLimit ? kNoLimit : limit;
  }

  /// Reads available bytes, up to the size of the buffer; waits while there are none. Fails with
  /// ENODATA (kEndOfStream) if the stream has ended. With an empty buffer it completes at once,
  /// even while another operation reads.
  [[nodiscard]] detail::Read read(MutableBytes buffer, ae::Duration limit = kIdleLimit) noexcept {
    return {reader_, buffer.span(), limit_of(limit)};
  }
  /// Reads until the buffer is full. Fails with ENODATA if the stream ends first. After an error,
  /// `size` of the result says how many bytes have arrived.
  [[nodiscard]] detail::ReadExactly read_exactly(MutableBytes buffer,
                                                 ae::Duration limit = kIdleLimit) noexcept {
    return {reader_, buffer.span(), limit_of(limit)};
  }
  /// Reads up to a newline and drops it, and a carriage return before it; `size` is the length of
  /// the text. Fails with EMSGSIZE if the line is longer than the buffer, which is then full; the
  /// rest of the line comes next. Fails with ENODATA if the stream ends first; the buffer then
  /// holds the part of the line that arrived.
  [[nodiscard]] detail::ReadLine read_line(MutableBytes buffer,
                                           ae::Duration limit = kIdleLimit) noexcept {
    return {reader_, buffer.text(), limit_of(limit)};
  }
  /// Waits for `together` bytes, at most kMaxContiguous, and shows them in the memory where they
  /// are, for parsing in place. Fails with ENODATA if the stream ends before them; the remaining
  /// bytes are shown. Fails with EMSGSIZE if `together` is more than kMaxContiguous. Nothing counts
  /// as read before consume().
  [[nodiscard]] detail::Peek peek(std::size_t together = 1,
                                  ae::Duration limit = kIdleLimit) noexcept {
    return {reader_, shown_, together, limit_of(limit)};
  }
  /// Waits for the next request of a session, until the peer has sent at least one byte, and shows
  /// the bytes as peek() does. Fails with ECANCELED if the server stops (conn/stop.h) and nothing
  /// has arrived: a session that calls this function between requests thus ends after its current
  /// request. When half of the stop's time limit has passed, it fails even if the next request has
  /// arrived. The first call for a loop may throw std::bad_alloc.
  [[nodiscard]] detail::NextRequest next_request(ae::Duration limit = kIdleLimit) {
    ae::EventLoop* const loop = connection_ != nullptr ? connection_->loop() : nullptr;
    if (stopping_ == nullptr && loop != nullptr) stopping_ = &Stopping::of(*loop);
    return {reader_, shown_, loop != nullptr ? stopping_ : nullptr, limit_of(limit)};
  }
  /// Discards the first `size` bytes that peek() returned. The stream must have a connection.
  void consume(std::size_t size) noexcept {
    connection_->consume(size);
    shown_ -= size < shown_ ? size : shown_;
    // All bytes that peek() returned are consumed: the next read waits until the loop reports data.
    if (shown_ == 0) reader_.expect(false);
  }
  /// Writes all bytes. After an error `size` says how many the connection accepted. With no bytes
  /// it completes at once, even while another operation writes.
  [[nodiscard]] detail::Write write(ConstBytes bytes, ae::Duration limit = kIdleLimit) noexcept {
    return {writer_, bytes.span(), limit_of(limit)};
  }
  /// Waits until the connection's reserve(), commit() or send() may have space, or would fail. Call
  /// these functions directly on the connection afterwards.
  [[nodiscard]] detail::Writable writable(ae::Duration limit = kIdleLimit) noexcept {
    return {writer_, limit_of(limit)};
  }

  /// Gives access to all functions that do not wait: shutdown(), flush(), last_error(), info(), ...
  /// Never call rebind(), leave() or join() through it: they need a connection that was taken out
  /// by release().
  Connection* operator->() const noexcept { return connection_.get(); }
  /// Gives access to the connection, like operator->.
  Connection& operator*() const noexcept { return *connection_; }
  /// Returns whether this stream has a connection, in any state.
  explicit operator bool() const noexcept { return connection_ != nullptr; }
  /// Takes the connection out of this stream, which is then empty, and returns it without handlers.
  /// An operation that waits for the connection fails with ECANCELED in the loop's next iteration;
  /// the same happens when the stream is destroyed. If there is no memory for that, the operation
  /// waits until it is cancelled.
  [[nodiscard]] ConnectionPtr release() noexcept {
    reader_.leave_connection();
    writer_.leave_connection();
    stopping_ = nullptr;
    return std::move(connection_);
  }
  /// Takes the connection out of the stream, as release() does, and aborts it
  /// (Connection::abort()): the peer sees that the stream was cut.
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
  std::size_t shown_ = 0;  // number of bytes that peek() returned and that are not consumed yet
  // The Stopping object of the connection's loop; null before the first next_request().
  Stopping* stopping_ = nullptr;
};

}}}  // namespace conn::co
