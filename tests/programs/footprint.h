// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// What a process holds, in itself and in the kernel, to compare before and after.

#include <cstddef>
#include <map>
#include <string>

namespace programs {

struct Footprint {
  std::size_t descriptors = 0;
  std::size_t heap = 0;                     ///< bytes that malloc gave out and has not back
  std::size_t resident = 0;                 ///< bytes of the process in memory, free heap returned
  std::map<std::string, int> rdma_objects;  ///< {"qp", 3}, ... on all devices; {} where none are
};

Footprint footprint();
/// What is left over, one sentence for each thing, or "" if nothing is: descriptors and objects
/// must be as before, memory may have grown by `allowance`.
std::string left_over(const Footprint& before, const Footprint& after, std::size_t allowance);
/// "descriptors 12 -> 12, heap +3 KiB, resident +40 KiB, rdma objects as before"
std::string comparison(const Footprint& before, const Footprint& after);

}  // namespace programs
