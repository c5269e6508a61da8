// SPDX-License-Identifier: BSD-3-Clause
// Measures small parts of the library and of kv-server in isolation.
//
//   build/bench/micro                    times by Google Benchmark; accepts its options
//   bench/instructions                   runs `micro --count` under callgrind, which counts

#include <benchmark/benchmark.h>

#include <cstdio>
#include <cstring>
#include <string>

#include "bench/micro/cases.h"

#if __has_include(<valgrind/callgrind.h>)
#include <valgrind/callgrind.h>
#define MICRO_COUNTS 1
#else
#define MICRO_COUNTS 0
#endif

namespace {

constexpr std::uint64_t kBatch = 16;
/// libev reads a second clock twice a second: the minimum of several counts excludes that.
[[maybe_unused]] constexpr int kCounts = 3;

void measure(const micro::Cases& cases) {
  for (const micro::Case& one : cases.list()) {
    benchmark::RegisterBenchmark(one.name.c_str(), [&one](benchmark::State& state) {
      const auto run = one.make();
      run(one.rounds);  // reaches the periodic state
      while (state.KeepRunningBatch(kBatch)) run(kBatch);
    });
  }
  benchmark::RunSpecifiedBenchmarks();
}

/// Prints the compiler, and dumps each case kCounts times under the name "CASE ROUNDS". callgrind
/// must run with --collect-atstart=no.
int count(const micro::Cases& cases) {
#if MICRO_COUNTS
  if (RUNNING_ON_VALGRIND == 0) {
    std::fprintf(stderr, "bench/micro: --count is for bench/instructions, under valgrind\n");
    return 1;
  }
#ifdef __clang__
  std::puts("clang++ " __clang_version__);
#else
  std::puts("g++ " __VERSION__);
#endif
  for (const micro::Case& one : cases.list()) {
    const std::string title = one.name + " " + std::to_string(one.rounds);
    const auto run = one.make();
    run(one.rounds);
    for (int i = 0; i < kCounts; ++i) {
      CALLGRIND_ZERO_STATS;
      CALLGRIND_TOGGLE_COLLECT;
      run(one.rounds);
      CALLGRIND_TOGGLE_COLLECT;
      CALLGRIND_DUMP_STATS_AT(title.c_str());
    }
  }
  return 0;
#else
  static_cast<void>(cases);
  std::fprintf(stderr, "bench/micro: built without <valgrind/callgrind.h>; it cannot count\n");
  return 1;
#endif
}

}  // namespace

int main(int argc, char** argv) {
  micro::Cases cases;
  cases.add("empty loop", [] { return [] { micro::keep(0); }; });
  micro::add_stream_cases(cases);
  micro::add_text_cases(cases);
  micro::add_resp_cases(cases);
  micro::add_store_cases(cases);
  micro::add_loop_cases(cases);
  micro::add_histogram_cases(cases);
  if (argc == 2 && std::strcmp(argv[1], "--count") == 0) return count(cases);
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  measure(cases);
  return 0;
}
