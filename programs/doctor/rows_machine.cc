// SPDX-License-Identifier: BSD-3-Clause
#include <fmt/format.h>

#include <algorithm>

#include "programs/doctor/rows.h"

namespace doctor {

Verdict processors(const Facts& facts) {
  constexpr const char* kRow = "processors";
  const std::size_t count = facts.processors.size();
  std::string text =
      fmt::format("this process may run on {} processor{}", count, count == 1 ? "" : "s");
  std::string remedy;
  for (const Device& device : facts.devices) {
    if (device.node < 0 || device.processors.empty()) continue;
    const auto near = [&](int each) {
      return std::find(device.processors.begin(), device.processors.end(), each) !=
             device.processors.end();
    };
    const auto so_many = std::count_if(facts.processors.begin(), facts.processors.end(), near);
    text += fmt::format("; {} of them on NUMA node {} of {}", so_many, device.node, device.name);
    if (so_many == 0 && remedy.empty())
      remedy =
          fmt::format("numactl --cpunodebind={} --membind={} PROGRAM", device.node, device.node);
  }
  if (count == 1) {
    text += "; loops do not spin on a single processor";
    if (remedy.empty()) remedy = "give it a second one (taskset, cpuset of a container)";
  }
  return {kRow, remedy.empty() ? Level::kOk : Level::kNote, text, remedy};
}

Verdict limit(const conn::Capacity& capacity, std::uint64_t asked_for, bool all) {
  Verdict verdict{.row = "limit", .text = capacity.text(asked_for)};
  if (capacity.enough()) return verdict;
  verdict.level = all || capacity.connections == 0 ? Level::kFailed : Level::kNote;
  verdict.remedy = capacity.raise;
  return verdict;
}

}  // namespace doctor
