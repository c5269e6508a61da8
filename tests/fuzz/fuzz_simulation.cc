// SPDX-License-Identifier: BSD-3-Clause
// The simulation's schedule: the input decides what each end does, when messages arrive, which
// calls fail and which devices are removed (tests/simulation/walk.h).

#ifndef AECONN_CATCH2_V3
#define CATCH_CONFIG_RUNNER
#endif
#include "tests/support/catch.h"

#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "tests/simulation/walk.h"

// libFuzzer would measure durations by the simulated clock and see hours: its time-out is disabled,
// and each walk has an alarm instead.
extern "C" int LLVMFuzzerInitialize(int* argc, char*** argv) {
  static char off[] = "-timeout=0";
  static std::vector<char*> options(*argv, *argv + *argc);
  options.push_back(off);
  options.push_back(nullptr);
  *argv = options.data();
  ++*argc;
  std::signal(SIGALRM, [](int) { std::abort(); });
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  constexpr unsigned kMostSeconds = 60;
  alarm(kMostSeconds);
  const simulation::WalkReport report = simulation::walk({data, size}, {.transport = "rdma"});
  alarm(0);
  if (report.complaint.empty()) return 0;
  std::fprintf(stderr, "%s (%s)\n", report.complaint.c_str(), report.story.c_str());
  std::abort();
}
