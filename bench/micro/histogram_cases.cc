// SPDX-License-Identifier: BSD-3-Clause
// The histogram of conn-perf, which records the latency of every reply.

#include <cstdint>

#include "bench/micro/cases.h"
#include "programs/conn_perf/histogram.h"

namespace micro {
namespace {

/// 20 to 150 microseconds, occasionally a millisecond.
struct Latencies {
  perf::Histogram histogram;
  std::uint64_t at = 0;
  std::uint64_t next() {
    ++at;
    return at % 1000 == 0 ? 1'000'000 : 20'000 + at * 7919 % 130'000;
  }
};

}  // namespace

void add_histogram_cases(Cases& cases) {
  cases.add("histogram/record", [] {
    return [latencies = std::make_shared<Latencies>()] {
      latencies->histogram.record(latencies->next());
    };
  });
  cases.add("histogram/99th percentile", [] {
    const auto latencies = std::make_shared<Latencies>();
    for (int i = 0; i < 10'000; ++i) latencies->histogram.record(latencies->next());
    return [latencies] { keep(latencies->histogram.percentile(99)); };
  });
}

}  // namespace micro
