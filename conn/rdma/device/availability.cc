// SPDX-License-Identifier: BSD-3-Clause
#include "conn/rdma/device/availability.h"

#include <unistd.h>

#include <cerrno>
#include <utility>

#include "conn/rdma/device/device_list.h"
#include "conn/rdma/device/libraries.h"

namespace conn { inline namespace AECONN_ABI { namespace rdma {
namespace {

constexpr const char* kCmDevice = "/dev/infiniband/rdma_cm";
bool nothing_there(int err) { return err == ENODEV || err == ENOENT || err == ENXIO; }

}  // namespace

std::string no_device_has(const std::string& address) {
  return "no RDMA device has the address " + address + "; " + devices_text();
}

bool is_no_device(int err) noexcept {
  return err == ENODEV || err == EADDRNOTAVAIL || err == ENETUNREACH;
}

VerbsError not_reached(const SocketAddress& address, int err) {
  Failure why = errno_failure(err, "no RDMA device reaches " + address.to_string());
  if (is_no_device(err)) why.text += "; " + devices_text();
  return VerbsError(std::move(why));
}

void require_device(const CmId& id) {
  if (id->verbs == nullptr) throw VerbsError("the address is bound to no RDMA device", ENODEV);
}

Error unavailable(const VerbsError& error) {
  const auto coded = [](int err, const std::string& sentence) {
    return Error(std::error_code(err, std::generic_category()), sentence);
  };
  if (const std::string missing = missing_libraries(); !missing.empty())
    return coded(ENODEV, missing);
  int err = error.failure().code.value();
  // If librdmacm has no permission for kCmDevice, it tries another device file and reports that
  // this other file is missing. The real cause is the permission.
  if (nothing_there(err) && access(kCmDevice, F_OK) == 0 && access(kCmDevice, R_OK | W_OK) != 0)
    err = EACCES;
  if (nothing_there(err))
    return coded(
        ENODEV,
        "no RDMA device on this machine: load the driver of one, or for a trial without hardware "
        "run `modprobe rdma_rxe && rdma link add rxe0 type rxe netdev NETDEV` and "
        "`modprobe rdma_ucm` (" +
            error.failure().text + ")");
  if (err == EACCES || err == EPERM)
    return coded(EACCES, "this user may not use RDMA: give it access to /dev/infiniband (" +
                             error.failure().text + ")");
  return coded(err, "RDMA cannot be used: " + error.failure().text);
}

}}}  // namespace conn::rdma
