// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Standard input, output and error of a program: failures of the first two are errors, and what
// goes to the last is one line.

#include <cstddef>
#include <string>
#include <string_view>

#include "conn/error.h"

namespace service {

/// Standard input or output failed.
class StreamError : public conn::Error {
 public:
  using conn::Error::Error;
};

/// First of all in main(): descriptors 0, 1 and 2 that are not open become /dev/null, so that no
/// socket gets their numbers.
void open_standard_streams() noexcept;

/// Writes all of it to standard output. Throws StreamError.
void print(std::string_view text);

/// "PROGRAM: text" on standard error: one write and one line, whoever chose the text's bytes.
void complain(std::string_view program, std::string text) noexcept;

/// Waits for bytes of standard input; 0 at its end. Throws StreamError.
std::size_t read_input(char* to, std::size_t size);

/// Standard input by lines.
class InputLines {
 public:
  /// False at the end. A last line may lack its line end. Throws StreamError.
  bool next(std::string& line);

 private:
  std::string unread_;
  bool ended_ = false;
};

}  // namespace service
