// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Lists the RDMA devices of this machine, by name and address, for error messages, and explains why
// RDMA cannot be used. The list is read from sysfs, so it opens no device and works for users who
// may not open one.

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
  bool active = false;                 ///< at least one port of the device is active
  std::vector<std::string> addresses;  ///< IP addresses in its GIDs that this network namespace has
};

/// Lists the devices found in the directory `folder`. `present`: all addresses of this network
/// namespace; a device's other addresses are left out.
std::vector<DeviceHere> devices_here(const std::vector<SocketAddress>& present,
                                     const std::string& folder = "/sys/class/infiniband");
/// Returns the devices as text: "here are rxe0 (10.0.0.1, fd77::1), rxe1 (no address in this
/// network namespace, link down)", or "there is no RDMA device here".
std::string devices_text(const std::vector<DeviceHere>& devices);
/// Returns devices_text() for the devices of this machine. The result is cached for a second,
/// because failures come in bursts. Any thread.
std::string devices_text();

/// Returns the text "no RDMA device has the address 10.0.0.1; here is ...".
std::string no_device_has(const std::string& address);
/// True if the error `err` means that no RDMA device has the address: it belongs to another network
/// card or to another network namespace.
bool is_no_device(int err) noexcept;
/// Returns the error "no RDMA device reaches 10.0.0.1:6379: ...". If is_no_device(err), its text
/// also lists the devices of this machine.
VerbsError not_reached(const SocketAddress& address, int err);
/// Throws VerbsError if no RDMA device has the address that the id was bound to.
void require_device(const CmId& id);

/// Converts the VerbsError of a failed set-up to the error that is reported, which says why RDMA
/// cannot be used and what to do: "no RDMA device on this machine: load the driver ...".
Error unavailable(const VerbsError& error);

}}}  // namespace conn::rdma
