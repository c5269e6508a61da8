// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Environment variables during a test.

#include <cstdlib>
#include <optional>
#include <string>

namespace testing {

/// Sets an environment variable, and at the end gives it back the value that it had.
class Variable {
 public:
  Variable(const char* name, const std::string& value) : name_(name) {
    if (const char* const before = std::getenv(name)) before_ = before;
    set(value);
  }
  Variable(const Variable&) = delete;
  Variable& operator=(const Variable&) = delete;
  ~Variable() {
    if (before_)
      set(*before_);
    else
      ::unsetenv(name_);
  }
  void set(const std::string& value) const { ::setenv(name_, value.c_str(), 1); }

 private:
  const char* const name_;
  std::optional<std::string> before_;
};

}  // namespace testing
