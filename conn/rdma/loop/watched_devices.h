// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Notices the removal of every device that librdmacm has opened for this loop. rdma_cm reports a
// removal only through ids on the device, and librdmacm keeps the device open even after the last
// connection; with some drivers (rxe) the removal would then wait forever. So each such device has
// one watch, as far as it has an address in this network namespace.

#include <memory>
#include <string_view>
#include <vector>

#include "ae/abi.h"
#include "conn/rdma/device/cm.h"
#include "conn/rdma/device/removal_watch.h"

namespace conn { inline namespace AECONN_ABI { namespace rdma {

class WatchedDevices {
 public:
  explicit WatchedDevices(CmChannel& channel) noexcept : channel_(channel) {}
  /// If `id` is bound to a device, librdmacm has opened that device permanently: from now on its
  /// removal is noticed, even if no DeviceContext is ever made. Needs a lookup if it is already
  /// watched.
  void watch(const CmId& id);
  /// Watches all devices: to release one device librdmacm opens all others, whose removal would
  /// then wait in the same way.
  void watch_all() noexcept;
  /// The device of this handle of librdmacm's was removed. False: that was already reported; each
  /// id on the device reports it.
  bool is_news(ibv_context* cm_handle) noexcept;

 private:
  bool is_watched(std::string_view device) const noexcept;
  void watch_owner_of(const SocketAddress& address);

  CmChannel& channel_;
  std::vector<std::unique_ptr<RemovalWatch>> watches_;
  ibv_context* removed_ = nullptr;  // librdmacm's handle of the last device removed
};

}}}  // namespace conn::rdma
