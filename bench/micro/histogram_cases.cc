// The histogram of conn-perf, to which every reply goes.

#include "bench/micro/cases.h"

#if __has_include("examples/conn_perf/histogram.h")
#include "examples/conn_perf/histogram.h"
#endif

namespace micro {

void add_histogram_cases(Cases&) {}

}  // namespace micro
