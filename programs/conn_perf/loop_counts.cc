// SPDX-License-Identifier: BSD-3-Clause
#include "loop_counts.h"

#include <fmt/format.h>
#include <sched.h>

#include <algorithm>
#include <charconv>
#include <thread>

#include "conn/error.h"

namespace perf {
namespace {

constexpr std::size_t kInOneText = 32;  // three numbers of up to 20 digits each fit into 4 KiB

std::string key(const char* what, std::size_t index) { return fmt::format("{}-{}", what, index); }

}  // namespace

void LoopFacts::store(const std::vector<LoopCounts>& loops, std::uint64_t first, Fields& fields) {
  fields.set("loops", std::uint64_t{loops.size()});
  for (std::size_t i = first; i < loops.size() && i < first + kInOneText; ++i) {
    fields.set(key("open", i), loops[i].open.value());
    fields.set(key("begun", i), loops[i].begun.value());
    fields.set(key("requests", i), loops[i].requests.value());
  }
}

std::size_t LoopFacts::load(const Fields& fields, std::vector<LoopFacts>& to) {
  const std::uint64_t all = fields.number("loops").value_or(0);
  if (all > kMostLoops) return 0;  // no server of ours
  while (to.size() < all) {
    const auto open = fields.number(key("open", to.size()));
    const auto begun = fields.number(key("begun", to.size()));
    const auto requests = fields.number(key("requests", to.size()));
    if (!open || !begun || !requests) break;
    to.push_back({*open, *begun, *requests});
  }
  return static_cast<std::size_t>(all);
}

std::size_t loops_of(const std::string& text) {
  std::size_t number = 0;
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, number);
  if (error != std::errc() || stop != end || number > kMostLoops) {
    throw conn::Error(
        fmt::format("--loops {}: a number from 0 to {} is wanted, 0 for one on each processor",
                    text, kMostLoops));
  }
  if (number != 0) return number;
  cpu_set_t set;
  CPU_ZERO(&set);
  const std::size_t processors = sched_getaffinity(0, sizeof set, &set) == 0
                                     ? static_cast<std::size_t>(CPU_COUNT(&set))
                                     : std::thread::hardware_concurrency();
  return std::clamp<std::size_t>(processors, 1, kMostLoops);
}

}  // namespace perf
