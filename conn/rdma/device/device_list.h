// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Lists the RDMA devices of this machine, by name and address, for messages. The data comes from
// sysfs, so nothing is opened and it works for users who may not open a device.

#include <string>
#include <vector>

#include "ae/abi.h"
#include "conn/kit/resolver.h"

namespace conn { inline namespace AECONN_ABI { namespace rdma {

struct DeviceHere {
  std::string name;
  bool active = false;                 ///< one of its ports is active
  std::vector<std::string> addresses;  ///< of its GIDs, as far as in this network namespace
};

/// `present`: the addresses of this network namespace. `folder`: the directory of the devices.
std::vector<DeviceHere> devices_here(const std::vector<SocketAddress>& present,
                                     const std::string& folder = "/sys/class/infiniband");
/// "here are rxe0 (10.0.0.1, fd77::1), rxe1 (no address, link down)"; "there is no RDMA device
/// here".
std::string devices_text(const std::vector<DeviceHere>& devices);
/// devices_text() of this machine, at most a second old, because failures come in bursts. Any
/// thread.
std::string devices_text();

}}}  // namespace conn::rdma
