// SPDX-License-Identifier: BSD-3-Clause
// Replaces conn/rdma/device/numa.cc, which reads sysfs: the processors near a simulated device.

#include "conn/rdma/device/numa.h"

#include "tests/simulation/objects.h"

namespace conn { inline namespace AECONN_ABI { namespace rdma {

std::vector<int> processors_near(const std::string& device) {
  using simulation::World;
  const simulation::Device* const found =
      World::current() != nullptr ? World::current()->find_device(device) : nullptr;
  return found != nullptr ? found->near : std::vector<int>{};
}

}}}  // namespace conn::rdma
