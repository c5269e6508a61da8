// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Notices the removal of every RDMA device that librdmacm has opened for this loop. rdma_cm reports
// a removal only through ids on the device, and librdmacm keeps a device open even after its last
// connection has ended; with some drivers (rxe) the removal would then wait for ever. So each such
// device has a RemovalWatch, provided that it has an address in this network namespace.

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
  /// Watches all devices. To release one device, librdmacm opens all others, and their removal
  /// would then wait for ever in the same way.
  void watch_all() noexcept;
  /// Call it when librdmacm reports the removal of the device `cm_handle`. Returns true the first
  /// time and false for repetitions: each id on the device reports the removal.
  bool is_news(ibv_context* cm_handle) noexcept;

 private:
  bool is_watched(std::string_view device) const noexcept;
  /// Watches the device that has this address, if one has it and it is not watched yet. Without
  /// memory or an id for that, only the ids of connections report its removal.
  void watch_owner_of(const SocketAddress& address) noexcept;

  CmChannel& channel_;
  std::vector<std::unique_ptr<RemovalWatch>> watches_;
  // The last removed device's handle in librdmacm; null: none.
  ibv_context* removed_ = nullptr;
};

}}}  // namespace conn::rdma
