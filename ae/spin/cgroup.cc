// SPDX-License-Identifier: BSD-3-Clause
#include "ae/spin/cgroup.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string_view>

namespace ae { inline namespace AECONN_ABI {

bool find_cgroup(const char* list, std::span<char> group) noexcept {
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(list, "re"), &std::fclose);
  if (!file) return false;
  // The file has a line for each cgroup hierarchy: a limited number of version 1, one of version 2.
  char* line = nullptr;
  std::size_t size = 0;
  bool found = false;
  for (ssize_t got; !found && (got = ::getline(&line, &size, file.get())) > 0;) {
    std::string_view text(line, static_cast<std::size_t>(got));
    if (text.ends_with('\n')) text.remove_suffix(1);
    if (!text.starts_with("0::/")) continue;
    text.remove_prefix(3);
    if (text.size() >= group.size()) break;
    std::memcpy(group.data(), text.data(), text.size());
    group[text.size()] = '\0';
    found = true;
  }
  std::free(line);
  return found;
}

}}  // namespace ae
