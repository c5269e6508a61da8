// The simulator's schedule: the input decides what every end does, when messages arrive, which
// calls fail and which devices go (tests/simulation/walk.h).

#ifndef AECONN_CATCH2_V3
#define CATCH_CONFIG_RUNNER
#endif
#include "tests/support/catch.h"

#include <cstdio>
#include <cstdlib>

#include "tests/simulation/walk.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const simulation::WalkReport report = simulation::walk({data, size}, "rdma");
  if (report.complaint.empty()) return 0;
  std::fprintf(stderr, "%s (%s)\n", report.complaint.c_str(), report.story.c_str());
  std::abort();
}
