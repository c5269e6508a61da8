// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Finds the processors near a device.

#include <string>
#include <string_view>
#include <vector>

#include "ae/abi.h"

namespace conn { inline namespace AECONN_ABI { namespace rdma {

/// The numbers of a list as sysfs prints it: "0-3,8,10-11". Empty if it is not such a list.
std::vector<int> parse_processors(std::string_view list);
/// The processors of the NUMA node that `device` is on, as the kernel reports them (local_cpulist);
/// empty where it does not, as for Soft-RoCE, which is on no node.
std::vector<int> processors_near(const std::string& device);

}}}  // namespace conn::rdma
