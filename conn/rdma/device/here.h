// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Which RDMA devices this machine has, by name and address, for sentences: from sysfs, so that
// nothing is opened, and it works for who may not open a device. And why RDMA cannot be used.

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
  bool active = false;                 ///< one of its ports is
  std::vector<std::string> addresses;  ///< of its GIDs, those that this network namespace has
};

/// `present`: the addresses of this network namespace. `folder`: where the devices are.
std::vector<DeviceHere> devices_here(const std::vector<SocketAddress>& present,
                                     const std::string& folder = "/sys/class/infiniband");
/// "here are rxe0 (10.0.0.1, fd77::1), rxe1 (no address, link down)"; "there is no RDMA device
/// here".
std::string devices_text(const std::vector<DeviceHere>& devices);
/// devices_text() of this machine, as it was a second ago at most: failures come in crowds. Any
/// thread.
std::string devices_text();

/// "no RDMA device has the address 10.0.0.1; here is ..."
std::string no_device_has(const std::string& address);
/// An address is one of no device: of another network card, or of another network namespace.
bool is_no_device(int err) noexcept;
/// "no RDMA device reaches 10.0.0.1:6379: ...", and what is here, where that is why.
VerbsError not_reached(const SocketAddress& address, int err);
/// Throws VerbsError if the id was bound to an address, and that is one of no device.
void require_device(const CmId& id);

/// "No RDMA device on this machine: ..." and what to do, for a VerbsError at set-up.
Error unavailable(const VerbsError& error);

}}}  // namespace conn::rdma
