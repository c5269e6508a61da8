// SPDX-License-Identifier: BSD-3-Clause
#include "conn/rdma/device/numa.h"

#include <algorithm>
#include <charconv>
#include <fstream>

namespace conn { inline namespace AECONN_ABI { namespace rdma {

std::vector<int> parse_processors(std::string_view list) {
  constexpr int kMostProcessors = 1 << 20;
  std::vector<int> all;
  while (!list.empty()) {
    const std::string_view part = list.substr(0, list.find(','));
    list.remove_prefix(std::min(list.size(), part.size() + 1));
    int first = 0;
    const char* const end = part.data() + part.size();
    const auto [dash, error] = std::from_chars(part.data(), end, first);
    int last = first;
    if (error != std::errc{}) return {};
    if (dash != end) {
      const auto [rest, bad] = std::from_chars(dash + 1, end, last);
      if (*dash != '-' || bad != std::errc{} || rest != end) return {};
    }
    if (first < 0 || last < first || last > kMostProcessors) return {};
    for (int i = first; i <= last; ++i) all.push_back(i);
  }
  return all;
}

std::vector<int> processors_near(const std::string& device) {
  if (device.empty()) return {};
  std::ifstream file("/sys/class/infiniband/" + device + "/device/local_cpulist");
  std::string line;
  std::getline(file, line);
  return parse_processors(line);
}

}}}  // namespace conn::rdma
