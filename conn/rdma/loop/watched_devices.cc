// SPDX-License-Identifier: BSD-3-Clause
#include "conn/rdma/loop/watched_devices.h"
#include "conn/kit/local_addresses.h"

#include <algorithm>
#include <exception>
#include <utility>

namespace conn { inline namespace AECONN_ABI { namespace rdma {

void WatchedDevices::watch(const CmId& id) {
  if (id->verbs == nullptr) return;
  std::erase_if(watches_, [](const auto& each) { return each->over(); });
  if (is_watched(ibv_get_device_name(id->verbs->device))) return;
  removed_ = nullptr;  // a device added later may get the removed one's handle value
  watch_owner_of(id.local());
}

bool WatchedDevices::is_watched(std::string_view device) const noexcept {
  return std::any_of(watches_.begin(), watches_.end(),
                     [&](const auto& each) { return each->is_on(device); });
}

void WatchedDevices::watch_owner_of(const SocketAddress& address) noexcept {
  try {
    auto watch = std::make_unique<RemovalWatch>(channel_);
    if (watch->begin(address) && !is_watched(watch->device())) watches_.push_back(std::move(watch));
  } catch (const std::exception&) {  // the device's removal is reported only by ids of connections
  }
}

void WatchedDevices::watch_all() noexcept {
  try {
    std::erase_if(watches_, [](const auto& each) { return each->over(); });
    for (const SocketAddress& address : local_addresses()) watch_owner_of(address);
  } catch (const std::exception&) {  // the addresses are unknown: watches no further devices
  }
}

bool WatchedDevices::is_news(ibv_context* cm_handle) noexcept {
  if (cm_handle == nullptr) return false;
  return std::exchange(removed_, cm_handle) != cm_handle;
}

}}}  // namespace conn::rdma
