// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The resources of a process, its own and in the kernel, for a comparison of before and after.

#include <cstddef>
#include <map>
#include <string>

namespace programs {

struct Footprint {
  std::size_t descriptors = 0;
  std::size_t heap = 0;                     ///< bytes allocated by malloc and not freed
  std::size_t resident = 0;                 ///< resident bytes, after returning free heap memory
  std::map<std::string, int> rdma_objects;  ///< {"qp", 3}, ... on all devices; {} without devices
};

Footprint footprint();
/// What was leaked, one sentence each, or "" if nothing was: descriptors and objects must be as
/// before, memory may have grown by `allowance`.
std::string left_over(const Footprint& before, const Footprint& after, std::size_t allowance);
/// "descriptors 12 -> 12, heap +3 KiB, resident +40 KiB, rdma objects as before"
std::string comparison(const Footprint& before, const Footprint& after);

}  // namespace programs
