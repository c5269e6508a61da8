// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The cases that bench/micro times and bench/instructions counts: each creates its state once and
// is then called repeatedly. No case depends on random numbers or on earlier cases, so instruction
// counts are identical in every run.

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
  std::uint64_t rounds;  ///< number of counted calls: a multiple of the case's own period
  std::function<std::function<void(std::uint64_t)>()>
      make;  ///< creates the state; the result runs n calls
};

class Cases {
 public:
  /// `make()` returns the function that is called once per iteration.
  template <class Make>
  void add(std::string name, Make make, std::uint64_t rounds = 1000) {
    list_.push_back({std::move(name), rounds, [make] {
                       const auto call = std::make_shared<decltype(make())>(make());
                       return [call](std::uint64_t times) {
                         for (; times > 0; --times) (*call)();
                       };
                     }});
  }
  /// `make()` returns a function that is called with a number of rounds and runs all of them in one
  /// call. For what repeats itself below one call, such as the iterations of an event loop's run().
  template <class Make>
  void add_runs(std::string name, Make make, std::uint64_t rounds = 1000) {
    list_.push_back({std::move(name), rounds, make});
  }
  const std::vector<Case>& list() const noexcept { return list_; }

 private:
  std::vector<Case> list_;
};

/// Forces the compiler to have `value` in memory here and to assume that it may change.
template <class Value>
inline void keep(const Value& value) {
  asm volatile("" : : "g"(&value) : "memory");
}

/// Fails the benchmark if a case did not do what it claims to measure.
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
