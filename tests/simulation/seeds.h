// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Runs one random walk for each of many seeds, in processes of their own.

#include <fmt/format.h>

#include <algorithm>
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
/// sums and returns a complaint. Sums has operator+=. `in_one`: this many seeds share a process; a
/// seed that fails there runs again in one of its own, as it would if it were run alone.
template <class Sums>
SeedsRun<Sums> run_seeds(std::uint64_t first, std::uint64_t count,
                         const std::function<std::string(std::uint64_t seed, Sums&)>& one,
                         std::uint64_t in_one = 1) {
  SeedsRun<Sums> run;
  std::uint64_t seed = first;
  while (seed < first + count && run.failed < 20) {
    const std::uint64_t begin = seed;
    const auto results = run_several_in_child<Sums>(
        std::min(in_one, first + count - begin),
        [&](std::uint64_t number, Sums& sums) { return one(begin + number, sums); });
    for (const ChildRun<Sums>& each : results) {
      run.all += each.sums;
      ++run.walks;
      if (each.complaint.empty()) {
        ++seed;
        continue;
      }
      ++run.failed;
      fmt::print(stderr, "seed {}: {}\n", seed, each.complaint);
      if (seed != begin) {
        const ChildRun<Sums> alone =
            run_in_child<Sums>([&](Sums& sums) -> std::string { return one(seed, sums); });
        if (alone.complaint != each.complaint)
          fmt::print(stderr, "seed {}, after {} to {} in one process; alone: {}\n", seed, begin,
                     seed - 1, alone.complaint.empty() ? "success" : alone.complaint);
      }
      ++seed;
    }
  }
  return run;
}

}  // namespace simulation
