// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Lists the RDMA devices of this machine, by name and address, for messages. Reads sysfs only, so
// it also works for users who may not open a device.

#include <string>
#include <vector>

#include "ae/abi.h"
#include "conn/kit/resolver.h"

namespace conn { inline namespace AECONN_ABI { namespace rdma {

struct DeviceHere {
  std::string name;
  bool active = false;  ///< true if at least one port of the device is active
  /// The device's IP addresses (from its GIDs) that belong to this network namespace.
  std::vector<std::string> addresses;
};

/// Lists the RDMA devices in the sysfs directory `folder`. `present`: all IP addresses of this
/// network namespace; other addresses of a device are left out.
std::vector<DeviceHere> devices_here(const std::vector<SocketAddress>& present,
                                     const std::string& folder = "/sys/class/infiniband");
/// Returns the devices as text: "here are rxe0 (10.0.0.1, fd77::1), rxe1 (no address in this
/// network namespace, link down)", or "there is no RDMA device here".
std::string devices_text(const std::vector<DeviceHere>& devices);
/// Returns devices_text() for the devices of this machine. The result is cached for a second,
/// because failures come in bursts. Thread-safe.
std::string devices_text();

}}}  // namespace conn::rdma
