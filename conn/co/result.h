// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// What an operation of a coroutine comes to: a value, never an exception.

#include <cstddef>
#include <system_error>

#include "ae/abi.h"
#include "ae/event_loop.h"
#include "conn/in_place.h"

namespace conn::inline AECONN_ABI::co {

/// For operations without a time limit.
inline constexpr ae::Duration kNoLimit = ae::Duration::max();
/// For operations of a Stream that are given no limit: Stream::set_idle_limit() says which it is.
inline constexpr ae::Duration kIdleLimit = ae::Duration::min();

/// How many bytes an operation moved, and what ended it: an errno. Connection::last_error() has the
/// sentence.
struct [[nodiscard]] Result {
  /// Bytes that were read into the buffer, or taken by the connection: also where an error is set.
  std::size_t size = 0;
  /// None is std::errc(). timed_out: the limit. no_message_available: the stream ended before all
  /// had come.
  std::errc error{};

  /// Whether there is no error.
  explicit operator bool() const noexcept { return error == std::errc(); }
  /// The size. Throws std::system_error where there is an error.
  std::size_t value() const {
    if (error != std::errc()) throw std::system_error(std::make_error_code(error));
    return size;
  }
};

/// What Stream::peek() shows; see View for how long it stays. False at the end of the stream, with
/// no error, and where there is an error: nothing is shown then.
struct [[nodiscard]] Peeked : View {
  std::errc error{};                                             ///< none is std::errc()
  explicit operator bool() const noexcept { return size != 0; }  ///< whether there are bytes
};

}  // namespace conn::inline AECONN_ABI::co
