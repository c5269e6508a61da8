// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The operations that the functions of Stream return. Each must be awaited in the expression that
// makes it.

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <coroutine>
#include <cstddef>
#include <cstring>
#include <span>
#include <system_error>
#include <utility>

#include "ae/abi.h"
#include "conn/co/lane.h"
#include "conn/co/result.h"
#include "conn/connection.h"
#include "conn/stopping.h"

namespace conn { inline namespace AECONN_ABI { namespace co::detail {

class Read final : public Operation {
 public:
  Read(Lane& lane, std::span<std::byte> buffer, ae::Duration limit) noexcept
      : Operation(lane, limit, buffer.empty()), buffer_(buffer) {}
  Result await_resume() noexcept {
    take_late();
    return {size_, error_};
  }

 private:
  bool look() override {
    // ENOMEM does not end the operation: only peek() needs memory, read() needs none.
    if (connection().peek().size == 0 && errno != ENOMEM)
      return failed(errno == 0 ? ENODATA : errno);
    be_late();
    return true;
  }
  bool advance() override {
    const ssize_t n = connection().read(buffer_.data(), buffer_.size());
    if (n <= 0) return failed(n == 0 ? ENODATA : errno);
    size_ = static_cast<std::size_t>(n);
    // If fewer bytes than requested were read, no more data has arrived yet.
    lane_->expect(size_ == buffer_.size());
    return true;
  }

  std::span<std::byte> buffer_;
  std::size_t size_ = 0;
};

class ReadExactly final : public Operation {
 public:
  ReadExactly(Lane& lane, std::span<std::byte> buffer, ae::Duration limit) noexcept
      : Operation(lane, limit, buffer.empty()), buffer_(buffer) {}
  Result await_resume() const noexcept { return {size_, error_}; }

 private:
  bool advance() override {
    while (size_ < buffer_.size()) {
      const std::span<std::byte> rest = buffer_.subspan(size_);
      const ssize_t n = connection().read(rest.data(), rest.size());
      if (n == 0) return failed(ENODATA);
      if (n < 0) return failed(errno);
      size_ += static_cast<std::size_t>(n);
      if (size_ < buffer_.size()) {
        lane_->expect(false);
        return false;
      }
    }
    // the buffer is full; the next read is tried at once, since more data may be available
    return true;
  }

  std::span<std::byte> buffer_;
  std::size_t size_ = 0;
};

class ReadLine final : public Operation {
 public:
  ReadLine(Lane& lane, std::span<char> buffer, ae::Duration limit) noexcept
      : Operation(lane, limit), buffer_(buffer) {}
  Result await_resume() const noexcept { return {size_, error_}; }

 private:
  bool advance() override {
    if (at_return_) return look_behind_return();
    const View view = connection().peek();
    if (view.size == 0) return failed(errno == 0 ? ENODATA : errno);
    bool over = false;
    std::size_t taken = 0;
    for (int i = 0; i < view.count && !over && !at_return_; ++i) {
      const auto& piece = view.pieces[static_cast<std::size_t>(i)];
      over = take({static_cast<const char*>(piece.iov_base), piece.iov_len}, taken);
    }
    connection().consume(taken);
    if (at_return_) return look_behind_return();
    lane_->expect(over || view.last);
    return over;
  }
  /// Moves `bytes` up to a newline to the buffer, and adds the number of bytes used to `taken`.
  /// Returns true if the line is complete, or longer than the buffer.
  bool take(std::string_view bytes, std::size_t& taken) noexcept {
    const std::size_t end = bytes.find('\n');
    const std::size_t text = std::min(end, bytes.size());
    const std::size_t fits = std::min(text, buffer_.size() - size_);
    std::memcpy(buffer_.data() + size_, bytes.data(), fits);
    size_ += fits;
    taken += fits;
    if (fits < text) {
      at_return_ = text - fits == 1 && bytes[fits] == '\r';
      if (!at_return_) error_ = std::errc::message_size;
      return !at_return_;
    }
    if (end == std::string_view::npos) return false;
    ++taken;
    if (size_ != 0 && buffer_[size_ - 1] == '\r') --size_;
    return true;
  }
  /// Called if the buffer is full and the next unread byte is a carriage return. If a newline
  /// follows, drops both; otherwise the line is too long for the buffer (EMSGSIZE). Returns whether
  /// the operation has ended; if not, the byte after the carriage return has not arrived yet.
  bool look_behind_return() {
    const View view = connection().peek(2);
    if (view.size == 0) return failed(errno == 0 ? ENODATA : errno);
    const bool known = view.size > 1 || view.last;
    lane_->expect(known);
    if (view.first().starts_with("\r\n"))
      connection().consume(2);
    else if (known)
      error_ = std::errc::message_size;
    return known;
  }

  bool at_return_ = false;  // whether the buffer is full, and the next byte is a carriage return
  std::span<char> buffer_;
  std::size_t size_ = 0;
};

class Peek : public Operation {
 public:
  Peek(Lane& lane, std::size_t& shown, std::size_t together, ae::Duration limit) noexcept
      : Operation(lane, limit), shown_(&shown), together_(together == 0 ? 1 : together) {}
  Peeked await_resume() noexcept {
    take_late();
    Peeked result;
    result.error = error_;
    if (result || result.ended()) static_cast<View&>(result) = view_;
    return result;
  }

 protected:
  // Marks the operation as late: the coroutine resumes later, and another operation may read the
  // shown bytes before that, so await_resume() looks them up again.
  bool look() override {
    if (!advance()) return false;
    if (error_ == std::errc()) be_late();
    return true;
  }
  bool advance() override {
    view_ = connection().peek(together_);
    *shown_ = view_.size;
    if (view_.size == 0) return failed(errno == 0 ? ENODATA : errno);
    if (view_.size >= together_) return true;
    if (view_.last) return failed(ENODATA);
    lane_->expect(false);
    return false;
  }

 private:
  std::size_t* shown_;
  std::size_t together_;
  View view_;
};

/// The operation of Stream::next_request(): waits for the first byte of a request, or until the
/// server stops (conn/stop.h).
class NextRequest final : public Peek, private StopWatcher {
 public:
  NextRequest(Lane& lane, std::size_t& shown, Stopping* stopping, ae::Duration limit) noexcept
      : Peek(lane, shown, 1, limit), stopping_(stopping) {}
  NextRequest(NextRequest&& other) noexcept : Peek(std::move(other)), stopping_(other.stopping_) {}
  NextRequest& operator=(NextRequest&&) = delete;

  template <class Awaiting>
  bool await_suspend(std::coroutine_handle<Awaiting> awaiting) noexcept {
    if (!Peek::await_suspend(awaiting)) return false;
    if (begun(stopping_))
      on_stop();
    else if (stopping_ != nullptr)
      stopping_->add(*this);
    return true;
  }
  Peeked await_resume() noexcept {
    if (error_ == std::errc::timed_out && begun(stopping_)) error_ = std::errc::operation_canceled;
    return Peek::await_resume();
  }

 private:
  /// The time for which next_request() still waits when the server begins to stop, because a
  /// request may be on its way.
  static constexpr ae::Duration kLastLook = std::chrono::milliseconds(1);

  static bool begun(const Stopping* stopping) noexcept {
    return stopping != nullptr && stopping->begun();
  }
  bool advance() override {
    if (stopping_ == nullptr || !stopping_->hurries()) return Peek::advance();
    error_ = std::errc::operation_canceled;
    return true;
  }
  void on_stop() override {
    if (lane_ != nullptr) lane_->end_by(std::chrono::steady_clock::now() + kLastLook);
  }

  Stopping* stopping_;
};

class Write final : public Operation {
 public:
  Write(Lane& lane, std::span<const std::byte> bytes, ae::Duration limit) noexcept
      : Operation(lane, limit, bytes.empty()), bytes_(bytes) {}
  Result await_resume() const noexcept { return {size_, error_}; }

 private:
  bool advance() override {
    if (size_ < bytes_.size()) {
      const std::span<const std::byte> rest = bytes_.subspan(size_);
      const ssize_t n = connection().write(rest.data(), rest.size());
      if (n < 0) return failed(errno);
      size_ += static_cast<std::size_t>(n);
    }
    lane_->expect(size_ == bytes_.size());
    return size_ == bytes_.size();
  }

  std::span<const std::byte> bytes_;
  std::size_t size_ = 0;
};

class Writable final : public Operation {
 public:
  Writable(Lane& lane, ae::Duration limit) noexcept : Operation(lane, limit) {
    lane.expect(false);  // makes the operation wait until the loop reports readiness
  }
  Result await_resume() const noexcept { return {0, error_}; }

 private:
  bool advance() override { return lane_->expected() || connection().state() != State::kConnected; }
};

}}}  // namespace conn::co::detail
