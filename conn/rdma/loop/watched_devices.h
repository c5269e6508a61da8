// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Detects the removal of every RDMA device that librdmacm has opened for this loop. librdmacm keeps
// a device open even after its last connection has ended, and with some drivers (rxe) the removal
// waits until the device is closed. But rdma_cm reports a removal only through ids on the device.
// So each such device has a RemovalWatch (an additional id on it), if it has an address in this
// network namespace.

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
  /// If `id` is bound to a device, watches that device from now on, because librdmacm has opened it
  /// permanently. This must be done even if no DeviceContext is created. Fast if the device is
  /// watched already.
  void watch(const CmId& id);
  /// Watches all devices. Call it after let_go_of_device(): to close one device, librdmacm opens
  /// all others.
  void watch_all() noexcept;
  /// Returns true if the removal of the device `cm_handle`, which an rdma_cm id has reported, is
  /// new; false if another id on that device has reported it before.
  bool is_news(ibv_context* cm_handle) noexcept;

 private:
  bool is_watched(std::string_view device) const noexcept;
  /// Watches the device that has this address, if there is one and it is not watched yet. If this
  /// fails, only ids of connections report the removal of the device.
  void watch_owner_of(const SocketAddress& address) noexcept;

  CmChannel& channel_;
  std::vector<std::unique_ptr<RemovalWatch>> watches_;
  // librdmacm's handle of the device that was removed last; null: none.
  ibv_context* removed_ = nullptr;
};

}}}  // namespace conn::rdma
