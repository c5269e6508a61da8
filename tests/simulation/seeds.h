// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Runs one random walk for each of many seeds, each in a process of its own.

#include <fmt/format.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>

#include "tests/simulation/child.h"

namespace simulation {

inline std::uint64_t number_from(const char* name, std::uint64_t otherwise) {
  const char* text = std::getenv(name);
  return text != nullptr ? std::strtoull(text, nullptr, 10) : otherwise;
}

/// What a report complains of, with the story of the walk; "": nothing.
template <class Report>
std::string complaint_of(const Report& report) {
  return report.complaint.empty() ? "" : report.complaint + " (" + report.story + ")";
}

template <class Sums>
struct SeedsRun {
  Sums all{};  ///< the sums of all walks
  std::uint64_t walks = 0, failed = 0;
};

/// Calls `one` for `count` seeds from `first` on, and stops after 20 failures. `one` fills in its
/// sums and returns a complaint. Sums has operator+=.
template <class Sums>
SeedsRun<Sums> run_seeds(std::uint64_t first, std::uint64_t count,
                         const std::function<std::string(std::uint64_t seed, Sums&)>& one) {
  SeedsRun<Sums> run;
  for (std::uint64_t seed = first; seed < first + count && run.failed < 20; ++seed, ++run.walks) {
    const ChildRun<Sums> child =
        run_in_child<Sums>([&](Sums& sums) -> std::string { return one(seed, sums); });
    run.all += child.sums;
    if (child.complaint.empty()) continue;
    ++run.failed;
    fmt::print(stderr, "seed {}: {}\n", seed, child.complaint);
  }
  return run;
}

}  // namespace simulation
