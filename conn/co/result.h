// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Results of coroutine operations. Operations return errors as values; they never throw them.

#include <cstddef>
#include <system_error>

#include "ae/abi.h"
#include "ae/time.h"
#include "conn/in_place.h"

namespace conn { inline namespace AECONN_ABI { namespace co {

/// Time-out value: wait without a time limit.
inline constexpr ae::Duration kNoLimit = ae::Duration::max();
/// Time-out value: use the stream's idle limit, which Stream::set_idle_limit() sets.
inline constexpr ae::Duration kIdleLimit = ae::Duration::min();

/// The error of every reading operation at the end of the stream (ENODATA).
inline constexpr std::errc kEndOfStream = std::errc::no_message_available;

/// The number of bytes an operation moved, and the error that ended it (an errno value).
/// Connection::last_error() describes the error in words.
struct [[nodiscard]] Result {
  /// Bytes read into the buffer, or accepted by the connection. Also valid when an error is set.
  std::size_t size = 0;
  /// std::errc() if there is no error. timed_out: the time-out expired. kEndOfStream: the stream
  /// ended before all requested bytes had arrived.
  std::errc error{};

  /// Whether there is no error.
  explicit operator bool() const noexcept { return error == std::errc(); }
  bool ended() const noexcept { return error == kEndOfStream; }  ///< whether the stream ended
  /// Returns the size. Throws std::system_error if there is an error.
  std::size_t value() const {
    if (error != std::errc()) throw std::system_error(std::make_error_code(error));
    return size;
  }
};

/// The result of Stream::peek(); converts to false if there is an error. The view stays valid as
/// long as that of Connection::peek(). With kEndOfStream the view shows the bytes left before the
/// end, which are fewer than requested; with any other error it is empty.
struct [[nodiscard]] Peeked : View {
  std::errc error{};  ///< std::errc() if there is no error

  /// Whether there is no error.
  explicit operator bool() const noexcept { return error == std::errc(); }
  bool ended() const noexcept { return error == kEndOfStream; }  ///< whether the stream ended
};

}}}  // namespace conn::co
