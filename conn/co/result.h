// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Results of coroutine operations. Operations return errors as values; they never throw them.

#include <cstddef>
#include <system_error>

#include "ae/abi.h"
#include "ae/time.h"
#include "conn/in_place.h"

namespace conn { inline namespace AECONN_ABI { namespace co {

/// Time-out value that means to wait without a time limit.
inline constexpr ae::Duration kNoLimit = ae::Duration::max();
/// Time-out value that means the stream's idle limit (Stream::set_idle_limit()).
inline constexpr ae::Duration kIdleLimit = ae::Duration::min();

/// The error with which reading operations end at the end of the stream (ENODATA).
inline constexpr std::errc kEndOfStream = std::errc::no_message_available;

/// The number of bytes that an operation moved, and the error that ended it (an errno value).
/// Connection::last_error() describes the error in words.
struct [[nodiscard]] Result {
  /// Number of bytes that were read into the buffer, or that the connection accepted. Valid even if
  /// `error` is set.
  std::size_t size = 0;
  /// The error that ended the operation; std::errc() if none. timed_out: the time-out expired.
  /// kEndOfStream: the stream ended before all requested bytes had arrived.
  std::errc error{};

  /// Returns whether the operation succeeded.
  explicit operator bool() const noexcept { return error == std::errc(); }
  /// Returns whether the peer ended the stream.
  bool ended() const noexcept { return error == kEndOfStream; }
  /// Returns the number of bytes. Throws std::system_error if `error` is set.
  std::size_t value() const {
    if (error != std::errc()) throw std::system_error(std::make_error_code(error));
    return size;
  }
};

/// The result of Stream::peek(); converts to false if there is an error. The view stays valid as
/// long as that of Connection::peek(). With kEndOfStream the view shows the bytes left before the
/// end, which are fewer than requested; with any other error it is empty.
struct [[nodiscard]] Peeked : View {
  std::errc error{};  ///< the error that ended the operation; std::errc() if none

  /// Returns whether the operation succeeded.
  explicit operator bool() const noexcept { return error == std::errc(); }
  /// Returns whether the peer ended the stream.
  bool ended() const noexcept { return error == kEndOfStream; }
};

}}}  // namespace conn::co
