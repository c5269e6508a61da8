// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Which processors are near a device.

#include <string>
#include <string_view>
#include <vector>

#include "ae/abi.h"

namespace conn { inline namespace AECONN_ABI { namespace rdma {

/// The numbers of a list as sysfs prints it: "0-3,8,10-11". Empty if it is none.
std::vector<int> parse_processors(std::string_view list);
/// Those of the NUMA node that `device` is on, as the kernel tells (local_cpulist); empty where it
/// does not, as with Soft-RoCE, which is on no node.
std::vector<int> processors_near(const std::string& device);

}}}  // namespace conn::rdma
