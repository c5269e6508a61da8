// SPDX-License-Identifier: BSD-3-Clause
// The simulator's schedule: the input decides what every end does, when messages arrive, which
// calls fail and which devices go (tests/simulation/walk.h).

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

// libFuzzer would measure an input's time by the clock that we simulate and see hours: its time-out
// is taken away, and a walk has an alarm of its own.
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
