// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Why RDMA cannot be used: on this machine, or for one address.

#include <string>

#include "ae/abi.h"
#include "conn/error.h"
#include "conn/kit/resolver.h"
#include "conn/rdma/device/cm.h"
#include "conn/rdma/device/verbs.h"

namespace conn { inline namespace AECONN_ABI { namespace rdma {

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
