// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Lists the RDMA devices of this machine, by name and address, for messages. The data comes from
// sysfs, so nothing is opened and it works for users who may not open a device. Also says why RDMA
// cannot be used.

#include <string>
#include <vector>

#include "ae/abi.h"
#include "conn/error.h"
#include "conn/kit/resolver.h"
#include "conn/rdma/device/cm.h"
#include "conn/rdma/device/verbs.h"

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

/// "no RDMA device has the address 10.0.0.1; here is ..."
std::string no_device_has(const std::string& address);
/// The error means that no device has the address: it is another network card's, or another network
/// namespace's.
bool is_no_device(int err) noexcept;
/// "no RDMA device reaches 10.0.0.1:6379: ...", with the devices here where that is the reason.
VerbsError not_reached(const SocketAddress& address, int err);
/// Throws VerbsError if the id was bound to an address that no RDMA device has.
void require_device(const CmId& id);

/// The error to report for a VerbsError at set-up: "no RDMA device on this machine: ..." and what
/// to do.
Error unavailable(const VerbsError& error);

}}}  // namespace conn::rdma
