// SPDX-License-Identifier: BSD-3-Clause
#include "conn/capacity.h"

#include <dirent.h>
#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>
#include <memory>

#include "conn/kit/saturating.h"

namespace conn { inline namespace AECONN_ABI {
namespace {

// Descriptors that a process needs besides those of its connections: for listeners, the loop
// itself, the standard streams, and those that a lookup or a log opens.
constexpr std::uint64_t kOtherDescriptors = 16;

std::string amount(std::uint64_t value, bool bytes) {
  return bytes ? fmt::format("{} KiB", (value + 1023) / 1024) : fmt::format("{}", value);
}

std::uint64_t open_descriptors() {
  struct Close {
    void operator()(DIR* folder) const noexcept { closedir(folder); }
  };
  const std::unique_ptr<DIR, Close> folder(opendir("/proc/self/fd"));
  if (!folder) return 0;
  std::uint64_t count = 0;
  while (const dirent* each = readdir(folder.get())) count += each->d_name[0] != '.';
  return count - 1;  // without the descriptor through which /proc/self/fd itself is read
}

}  // namespace

std::string Capacity::text(std::uint64_t asked_for) const {
  std::string line =
      fmt::format("{}: {}, {} used; ", name, amount(most, bytes), amount(used, bytes));
  if (needed == 0) return line + "connections of these options need none of it";
  line += fmt::format("{} connections of these options need {}", asked_for, amount(needed, bytes));
  return enough() ? line : line + fmt::format(", so there is room for {}: {}", connections, raise);
}

Capacity descriptor_capacity(std::uint64_t connections, std::uint64_t for_each) {
  rlimit limit{};
  Capacity capacity;
  capacity.name = "descriptors (nofile)";
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) limit.rlim_cur = limit.rlim_max = RLIM_INFINITY;
  capacity.most = limit.rlim_cur;
  capacity.used = open_descriptors();
  capacity.needed = saturating_sum(saturating_product(connections, for_each), kOtherDescriptors);
  const std::uint64_t taken = std::min(capacity.most, capacity.used + kOtherDescriptors);
  capacity.connections =
      for_each == 0 ? (capacity.enough() ? UINT64_MAX : 0) : (capacity.most - taken) / for_each;
  const std::uint64_t wanted = saturating_sum(capacity.used, capacity.needed);
  capacity.raise =
      limit.rlim_max >= wanted
          ? fmt::format("raise it with ulimit -n {}", wanted)
          : fmt::format("raise it with ulimit -Hn {} as root, or LimitNOFILE={} of a systemd unit",
                        wanted, wanted);
  return capacity;
}

}}  // namespace conn
