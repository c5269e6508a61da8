// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Finds the processors (CPUs) of the NUMA node that an RDMA device is attached to.

#include <string>
#include <string_view>
#include <vector>

#include "ae/abi.h"

namespace conn { inline namespace AECONN_ABI { namespace rdma {

/// Parses a list of processor numbers in the format of sysfs, such as "0-3,8,10-11". Returns an
/// empty vector if the text is not such a list.
std::vector<int> parse_processors(std::string_view list);
/// Returns the processors of the NUMA node that `device` is on, from the kernel's local_cpulist.
/// Empty if the kernel does not report them; soft-RoCE, for example, belongs to no node.
std::vector<int> processors_near(const std::string& device);

}}}  // namespace conn::rdma
