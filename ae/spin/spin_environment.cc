// SPDX-License-Identifier: BSD-3-Clause
#include "ae/spin/spin_environment.h"

#include <fcntl.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "ae/spin/cgroup.h"

namespace ae { inline namespace AECONN_ABI {
namespace {

constexpr unsigned kQuotaLooks = 64;  // look() reads the CPU quota only in one of this many calls

unsigned processors_of(pid_t thread) noexcept {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(thread, sizeof set, &set) == 0)
    return static_cast<unsigned>(CPU_COUNT(&set));
  // This is reached if sched_getaffinity() has failed, because the system has more processors than
  // fit in cpu_set_t.
  const long online = sysconf(_SC_NPROCESSORS_ONLN);
  return online > 0 ? static_cast<unsigned>(online) : 1;
}

using Text = std::array<char, 512>;

bool read_file(const char* path, Text& text) noexcept {
  const int fd = ::open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return false;
  const ssize_t got = ::read(fd, text.data(), text.size() - 1);
  ::close(fd);
  text[got > 0 ? static_cast<std::size_t>(got) : 0] = '\0';
  return got > 0;
}

// Whether a CPU quota of less than one processor applies. Checks the process's cgroup and all its
// ancestors, because the smallest quota applies.
bool has_quota() noexcept {
  std::array<char, PATH_MAX> group;
  if (!find_cgroup("/proc/self/cgroup", group)) return false;
  for (;;) {
    std::array<char, PATH_MAX + 32> path;
    std::snprintf(path.data(), path.size(), "/sys/fs/cgroup%s/cpu.max", group.data());
    Text limit;
    if (read_file(path.data(), limit) && is_below_one_processor(limit.data())) return true;
    char* const last = std::strrchr(group.data(), '/');
    if (last == nullptr) return false;
    *last = '\0';
  }
}

}  // namespace

bool is_below_one_processor(const char* cpu_max) noexcept {
  char* end = nullptr;
  const unsigned long long quota = std::strtoull(cpu_max, &end, 10);
  // The file contains "max" instead of a number: there is no quota.
  if (end == cpu_max) return false;
  const unsigned long long period = std::strtoull(end, nullptr, 10);
  return quota < period;
}

SpinRoom::Seen SpinEnvironment::look() noexcept {
  SpinRoom::Seen seen;
  // If this thread is pinned to one processor, it may still spin, because the other threads of the
  // process may use other processors.
  seen.processors = std::max(processors_of(0), processors_of(getpid()));
  if (looks_++ % kQuotaLooks == 0) quota_ = has_quota();
  seen.quota = quota_;
  return seen;
}

}}  // namespace ae
