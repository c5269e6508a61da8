// SPDX-License-Identifier: BSD-3-Clause
#include "tests/simulation/costs.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <cstdio>
#include <map>

#include "tests/simulation/memory.h"

namespace simulation {
namespace {

bool is_rdma_cm(const std::string& call) { return call.starts_with("rdma_"); }

constexpr std::size_t kPage = 4096, kHugePage = 2 << 20;

// Ranges that may be on huge pages: begin and end. An estimate: the kernel uses huge pages when it
// has some, and does not say where.
std::map<std::uintptr_t, std::uintptr_t>& huge_ranges() {
  static std::map<std::uintptr_t, std::uintptr_t> ranges;
  return ranges;
}

void forget_huge(std::uintptr_t begin, std::uintptr_t end) {
  auto& ranges = huge_ranges();
  auto each = ranges.upper_bound(begin);
  if (each != ranges.begin()) --each;
  while (each != ranges.end() && each->first < end) {
    const auto [from, to] = *each;
    if (to <= begin) {
      ++each;
      continue;
    }
    each = ranges.erase(each);
    if (from < begin) ranges[from] = begin;
    if (to > end) ranges[end] = to;
  }
}

void remember_huge(std::uintptr_t begin, std::uintptr_t end) {
  forget_huge(begin, end);
  huge_ranges()[begin] = end;
}

}  // namespace

std::int64_t Costs::slow_calls() const {
  std::int64_t sum = 0;
  for (const auto& [call, count] : slow) sum += is_rdma_cm(call) ? 0 : count;
  return sum;
}

std::int64_t Costs::rdma_cm_calls() const {
  std::int64_t sum = 0;
  for (const auto& [call, count] : slow) sum += is_rdma_cm(call) ? count : 0;
  return sum;
}

Costs Costs::operator-(const Costs& before) const {
  Costs left = *this;
  for (const auto& [call, count] : before.slow)
    if ((left.slow[call] -= count) == 0) left.slow.erase(call);
  left.doorbells -= before.doorbells;
  left.requests -= before.requests;
  left.not_inline -= before.not_inline;
  left.polls -= before.polls;
  left.notifications -= before.notifications;
  left.completion_events -= before.completion_events;
  left.registrations -= before.registrations;
  left.keys -= before.keys;
  left.translation_entries -= before.translation_entries;
  left.pinned -= before.pinned;
  left.queue_pairs -= before.queue_pairs;
  left.completion_queues -= before.completion_queues;
  left.shared_queues -= before.shared_queues;
  left.provider_mappings -= before.provider_mappings;
  return left;
}

std::string Costs::slow_text() const {
  std::string text;
  for (const auto& [call, count] : slow) {
    const std::string name = call.starts_with("ibv_") ? call.substr(4) : call;
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", name, count);
  }
  return text;
}

std::string Costs::text() const {
  return fmt::format(
      "slow calls {}, of rdma_cm {} ({}); doorbells {}, requests {}, not inline {}, polls {}, "
      "notifications {}, completion events {}; registrations {}, keys {}, translation entries {}, "
      "pinned {}, queue pairs {}, completion queues {}",
      slow_calls(), rdma_cm_calls(), slow_text(), doorbells, requests, not_inline, polls,
      notifications, completion_events, registrations, keys, translation_entries, pinned,
      queue_pairs, completion_queues);
}

std::int64_t process_mappings() {
  std::FILE* maps = std::fopen("/proc/self/maps", "r");
  if (maps == nullptr) return -1;
  std::int64_t lines = 0;
  for (int c; (c = std::fgetc(maps)) != EOF;) lines += c == '\n' ? 1 : 0;
  std::fclose(maps);
  return lines;
}

std::size_t page_size_of(const void* address, std::size_t size) noexcept {
  const auto begin = reinterpret_cast<std::uintptr_t>(address);
  if (begin % kHugePage != 0 || size % kHugePage != 0 || size == 0) return kPage;
  const auto& ranges = huge_ranges();
  auto after = ranges.upper_bound(begin);
  if (after == ranges.begin()) return kPage;
  --after;
  return after->second >= begin + size ? kHugePage : kPage;
}

}  // namespace simulation

using simulation::Below;

// Reached through the linker's --wrap from the code linked into this program: the library.
extern "C" {

void* __real_mmap(void*, size_t, int, int, int, off_t);
int __real_munmap(void*, size_t);
int __real_madvise(void*, size_t, int);

void* __wrap_mmap(void* wish, size_t size, int protection, int flags, int fd, off_t offset) {
  const Below below;
  void* at = __real_mmap(wish, size, protection, flags, fd, offset);
  if (at == MAP_FAILED) return at;
  const auto begin = reinterpret_cast<std::uintptr_t>(at);
  if ((flags & MAP_HUGETLB) != 0)
    simulation::remember_huge(begin, begin + size);
  else
    simulation::forget_huge(begin, begin + size);
  return at;
}

int __wrap_munmap(void* at, size_t size) {
  const Below below;
  const auto begin = reinterpret_cast<std::uintptr_t>(at);
  simulation::forget_huge(begin, begin + size);
  return __real_munmap(at, size);
}

int __wrap_madvise(void* at, size_t size, int advice) {
  const Below below;
  const auto begin = reinterpret_cast<std::uintptr_t>(at);
  if (advice == MADV_HUGEPAGE)
    simulation::remember_huge(begin, begin + size);
  else if (advice == MADV_NOHUGEPAGE)
    simulation::forget_huge(begin, begin + size);
  return __real_madvise(at, size, advice);
}

}  // extern "C"
