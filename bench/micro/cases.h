// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The cases that bench/micro times and bench/instructions counts: each makes its state once and is
// then called again and again. None of them depends on random numbers or on earlier cases, so that
// a count of instructions is the same in every run.

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace micro {

struct Case {
  std::string name;
  std::uint64_t rounds;  ///< calls that are counted: a whole number of the case's own periods
  std::function<std::function<void(std::uint64_t)>()> make;  ///< state; the result runs n calls
};

class Cases {
 public:
  /// `make()` gives what is called once for each iteration.
  template <class Make>
  void add(std::string name, Make make, std::uint64_t rounds = 1000) {
    list_.push_back({std::move(name), rounds, [make] {
                       const auto call = std::make_shared<decltype(make())>(make());
                       return [call](std::uint64_t times) {
                         for (; times > 0; --times) (*call)();
                       };
                     }});
  }
  const std::vector<Case>& list() const noexcept { return list_; }

 private:
  std::vector<Case> list_;
};

/// The compiler must have `value` in memory here, and must expect it to be changed.
template <class Value>
inline void keep(const Value& value) {
  asm volatile("" : : "g"(&value) : "memory");
}

/// A case that does not do what it says is no figure.
inline void require(bool condition, const char* what) {
  if (condition) return;
  std::fprintf(stderr, "bench/micro: %s\n", what);
  std::abort();
}

void add_stream_cases(Cases& cases);
void add_text_cases(Cases& cases);
void add_resp_cases(Cases& cases);
void add_store_cases(Cases& cases);
void add_loop_cases(Cases& cases);
void add_histogram_cases(Cases& cases);

}  // namespace micro
