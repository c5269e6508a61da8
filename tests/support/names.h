// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// A name server for the tests: it stands in for getaddrinfo(3) in every program that this is linked
// to, for names that end in ".test".

#include <string>

namespace testing {

/// While it exists each such name is 127.0.0.1. One at a time.
class Names {
 public:
  Names();
  /// Lets all go on that are held, and waits until their lookups are over.
  ~Names();
  Names(const Names&) = delete;
  Names& operator=(const Names&) = delete;

  void hold(const std::string& name);        ///< lookups of it get no answer
  void release(const std::string& name);     ///< they do
  int asked(const std::string& name) const;  ///< how many lookups of it began
  int held() const;                          ///< lookups that wait for an answer
};

}  // namespace testing
