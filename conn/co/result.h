// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// What an operation of a coroutine comes to: a value, never an exception.

#include <cstddef>
#include <system_error>

#include "ae/abi.h"
#include "ae/time.h"
#include "conn/in_place.h"

namespace conn { inline namespace AECONN_ABI { namespace co {

/// For operations without a time limit.
inline constexpr ae::Duration kNoLimit = ae::Duration::max();
/// For operations of a Stream that are given no limit: Stream::set_idle_limit() says which it is.
inline constexpr ae::Duration kIdleLimit = ae::Duration::min();

/// The error that every operation which reads has at the end of the stream (ENODATA).
inline constexpr std::errc kEndOfStream = std::errc::no_message_available;

/// How many bytes an operation moved, and what ended it: an errno. Connection::last_error() has the
/// sentence.
struct [[nodiscard]] Result {
  /// Bytes that were read into the buffer, or taken by the connection: also where an error is set.
  std::size_t size = 0;
  /// None is std::errc(). timed_out: the limit. kEndOfStream: the stream ended before all had come.
  std::errc error{};

  /// Whether there is no error.
  explicit operator bool() const noexcept { return error == std::errc(); }
  bool ended() const noexcept { return error == kEndOfStream; }  ///< whether the stream ended
  /// The size. Throws std::system_error where there is an error.
  std::size_t value() const {
    if (error != std::errc()) throw std::system_error(std::make_error_code(error));
    return size;
  }
};

/// What Stream::peek() shows; see View for how long it stays. False where there is an error. With
/// kEndOfStream it shows what is left before the end, which is less than was asked for; with
/// another error nothing.
struct [[nodiscard]] Peeked : View {
  std::errc error{};  ///< none is std::errc()

  /// Whether there is no error.
  explicit operator bool() const noexcept { return error == std::errc(); }
  bool ended() const noexcept { return error == kEndOfStream; }  ///< whether the stream ended
};

}}}  // namespace conn::co
