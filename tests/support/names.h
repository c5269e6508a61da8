// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// A name server for tests: replaces getaddrinfo(3) in each program that links it, for names that
// end in ".test".

#include <string>

namespace testing {

/// While an instance exists each such name resolves to 127.0.0.1. One instance at a time.
class Names {
 public:
  Names();
  /// Releases all held lookups and waits for their end.
  ~Names();
  Names(const Names&) = delete;
  Names& operator=(const Names&) = delete;

  void hold(const std::string& name);        ///< lookups of this name get no answer
  void release(const std::string& name);     ///< lookups of this name are answered again
  int asked(const std::string& name) const;  ///< number of lookups of this name that began
  int held() const;                          ///< number of lookups waiting for an answer
};

}  // namespace testing
