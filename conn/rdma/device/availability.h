// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Determines and describes why RDMA cannot be used on this machine, or for one address.

#include <string>

#include "ae/abi.h"
#include "conn/error.h"
#include "conn/kit/resolver.h"
#include "conn/rdma/device/cm.h"
#include "conn/rdma/device/verbs.h"

namespace conn { inline namespace AECONN_ABI { namespace rdma {

/// Returns the text "no RDMA device has the address 10.0.0.1; here is ...".
std::string no_device_has(const std::string& address);
/// Returns true if the errno value `err` means that no RDMA device has the address: the address
/// belongs to another network card or to another network namespace.
bool is_no_device(int err) noexcept;
/// Returns the error "no RDMA device reaches 10.0.0.1:6379: ..." for the errno value `err`. If
/// is_no_device(err) is true, the text also lists the devices of this machine.
VerbsError not_reached(const SocketAddress& address, int err);
/// Throws VerbsError if no RDMA device has the address that the id was bound to.
void require_device(const CmId& id);

/// Converts the VerbsError of a failed set-up to the error that is reported, which says why RDMA
/// cannot be used and what to do: "no RDMA device on this machine: load the driver ...". Its code
/// is ENODEV if a device or a library is missing, EACCES if this user may not use the devices, and
/// that of the failed call otherwise.
Error unavailable(const VerbsError& error);

}}}  // namespace conn::rdma
