// SPDX-License-Identifier: BSD-3-Clause
#include <fmt/format.h>
#include <sys/resource.h>

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

Verdict descriptors(const Facts& facts) {
  constexpr const char* kRow = "descriptors";
  constexpr std::uint64_t kOthers = 16;  // besides connections, with one loop: docs/limits.md
  const auto number = [](std::uint64_t limit) {
    return limit == RLIM_INFINITY ? std::string("any number") : std::to_string(limit);
  };
  if (facts.descriptors == RLIM_INFINITY)
    return {.row = kRow, .text = "this process may open any number of descriptors"};
  const std::uint64_t room = facts.descriptors - std::min(facts.descriptors, kOthers);
  Verdict verdict{.row = kRow,
                  .text = fmt::format(
                      "this process may open {} descriptors (RLIMIT_NOFILE), and raise that to {}: "
                      "room for {} connections of tcp, unix, vsock, shm and tls over them, or {} "
                      "that become descriptors other than their sockets; rdma needs none for each",
                      facts.descriptors, number(facts.most_descriptors), room, room / 3)};
  if (room >= 256) return verdict;
  verdict.level = Level::kNote;
  verdict.remedy =
      "ulimit -n 65536, LimitNOFILE=65536 of a systemd unit, or --ulimit nofile=65536 "
      "of a container";
  return verdict;
}

Verdict limit(const conn::Capacity& capacity, std::uint64_t asked_for, bool all) {
  Verdict verdict{.row = "limit", .text = capacity.text(asked_for)};
  if (capacity.enough()) return verdict;
  verdict.level = all || capacity.connections == 0 ? Level::kFailed : Level::kNote;
  verdict.remedy = capacity.raise;
  return verdict;
}

}  // namespace doctor
