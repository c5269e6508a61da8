// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// How the layer reports trouble. Mistakes made at set-up (a bad URL, a port in use, no such device)
// throw Error with one sentence for a person. I/O never throws: it returns -1 with errno, and the
// connection keeps its first Failure.

#include <chrono>
#include <stdexcept>
#include <string>
#include <system_error>
#include <utility>

#include "ae/abi.h"

namespace conn { inline namespace AECONN_ABI {

/// The text as one line that is safe to print or log, whoever chose its bytes: each byte that is a
/// control character (also U+0080 to U+009F, line separators and marks that turn the direction of
/// text) or no UTF-8 becomes '?'. The size stays. Failures, errors, path() and info() have passed
/// it; peer_address() and peer_user() are the peer's bytes, as it chose them.
AECONN_API std::string printable(std::string text) noexcept;

/// A mistake made at set-up, in a sentence for a person.
class AECONN_API Error : public std::runtime_error {
 public:
  /// The sentence is made printable().
  explicit Error(std::string text) : std::runtime_error(printable(std::move(text))) {}
};

/// Why a connection died: a code to decide by and a sentence to show.
struct Failure {
  Failure() = default;
  /// The sentence is made printable().
  Failure(std::error_code why, std::string sentence, std::chrono::milliseconds patience = {})
      : code(why), text(printable(std::move(sentence))), retry_after(patience) {}

  std::error_code code;  ///< none: no failure
  std::string text;      ///< one sentence
  /// A peer that refused asked for so much patience (rdma, between peers of this library); or 0.
  std::chrono::milliseconds retry_after{0};
  /// Whether there is one.
  explicit operator bool() const noexcept { return static_cast<bool>(code); }
};

/// "what: strerror(err)", for Failures that an errno explains.
AECONN_API Failure errno_failure(int err, const std::string& what);
/// Says so without needing any.
AECONN_API Failure out_of_memory() noexcept;
/// strerror() that is safe in threads.
AECONN_API std::string errno_text(int err);

}}  // namespace conn
