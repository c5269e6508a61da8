// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Error reporting. Set-up errors (a bad URL, a port in use, no such device) throw Error with one
// sentence for the user. I/O never throws: it returns -1 with errno, and the connection keeps the
// first Failure.

#include <chrono>
#include <stdexcept>
#include <string>
#include <system_error>
#include <utility>

#include "ae/abi.h"

namespace conn { inline namespace AECONN_ABI {

/// Makes text from any source safe to print or log as one line. Each byte of a control character
/// (including U+0080 to U+009F, line separators and marks that change the direction of text) or of
/// invalid UTF-8 becomes '?'. The size is unchanged. The texts of Failure and Error, path() and
/// info() are already printable; peer_address() and peer_user() contain the bytes chosen by the
/// peer.
AECONN_API std::string printable(std::string text) noexcept;

/// A set-up error such as an invalid option or a port in use. Its text is a sentence for the user.
class AECONN_API Error : public std::runtime_error {
 public:
  /// Creates the error with the sentence `text`, whose unprintable characters printable() replaces.
  explicit Error(std::string text) : std::runtime_error(printable(std::move(text))) {}
  /// Creates the error with the sentence `text` and the code `why` of its cause.
  Error(std::error_code why, std::string text) : Error(std::move(text)) { code_ = why; }
  /// The code of the cause: an errno value such as EADDRINUSE, or another category's code. Empty if
  /// the program's arguments are invalid, such as an unknown option; Failure and the library's C
  /// functions report EINVAL for such an error.
  const std::error_code& code() const noexcept { return code_; }

 private:
  std::error_code code_;
};

/// The reason why a connection failed: an error code for programs and a sentence for people.
struct Failure {
  Failure() = default;
  /// Creates a failure. Unprintable characters of `sentence` are replaced by printable().
  /// `asked_wait`: how long the peer asked to wait before another attempt; 0: it did not ask.
  Failure(std::error_code why, std::string sentence, std::chrono::milliseconds asked_wait = {})
      : code(why), text(printable(std::move(sentence))), retry_after(asked_wait) {}
  /// Creates a failure with the sentence of a set-up error and its code; EINVAL if it has none.
  explicit Failure(const Error& error)
      : Failure(error.code() ? error.code() : std::make_error_code(std::errc::invalid_argument),
                error.what()) {}

  std::error_code code;  ///< an errno value or another category's code; empty: there is no failure
  std::string text;      ///< description of the failure for people, one sentence
  /// The time for which the refusing peer asked the client to wait (rdma, if the peer uses this
  /// library, too); 0: the peer did not ask.
  std::chrono::milliseconds retry_after{0};
  /// Returns whether there is a failure, which means that `code` is not empty.
  explicit operator bool() const noexcept { return static_cast<bool>(code); }
};

/// Returns a Failure with the errno value `err` as its code and the text "what: strerror(err)".
AECONN_API Failure errno_failure(int err, const std::string& what);
/// Returns an Error with the errno value `err` as its code and the text "what: strerror(err)".
AECONN_API Error errno_error(int err, const std::string& what);
/// Returns a Failure with the code ENOMEM, without allocating memory.
AECONN_API Failure out_of_memory() noexcept;
/// Returns the description of an errno value, like strerror(), but is thread-safe.
AECONN_API std::string errno_text(int err);

}}  // namespace conn
