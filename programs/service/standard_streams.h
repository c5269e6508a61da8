// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Standard input, output and error of a program: failures of input and output are errors, and each
// message on standard error is one line.

#include <cstddef>
#include <string>
#include <string_view>

#include "conn/error.h"

namespace service {

/// Thrown if standard input or output fails.
class StreamError : public conn::Error {
 public:
  using conn::Error::Error;
};

/// Call this first in main(): opens descriptors 0, 1 and 2 as /dev/null if they are closed, so that
/// no socket gets their numbers, and ignores SIGPIPE, so that a pipe whose reader has left is an
/// error of writing. Otherwise a client that causes a line in the log could end a server.
void open_standard_streams() noexcept;

/// Writes all of `text` to standard output. Throws StreamError.
void print(std::string_view text);

/// Writes "PROGRAM: text" to standard error as one write and one line, whatever bytes `text`
/// contains.
void complain(std::string_view program, std::string text) noexcept;

/// Reads bytes of standard input, blocking until there are some; returns 0 at its end. Throws
/// StreamError.
std::size_t read_input(char* to, std::size_t size);

/// Reads standard input line by line.
class InputLines {
 public:
  /// Reads the next line. Returns false at the end of input. The last line may lack a line break.
  /// Throws StreamError.
  bool next(std::string& line);

 private:
  std::string unread_;
  bool ended_ = false;
};

}  // namespace service
