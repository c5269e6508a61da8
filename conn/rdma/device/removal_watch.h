// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Detects the removal of an RDMA device by means of an rdma_cm id of its own, so that it also works
// while no connection uses the device.

#include <string>
#include <string_view>

#include "ae/abi.h"
#include "conn/rdma/device/cm.h"

namespace conn { inline namespace AECONN_ABI { namespace rdma {

class RemovalWatch final : private CmUser {
 public:
  /// Creates an object that watches no device yet. Throws VerbsError.
  explicit RemovalWatch(CmChannel& channel);
  /// Begins to watch the device that has this address. Returns false if no device has it. May be
  /// called only once.
  bool begin(SocketAddress address);
  /// Returns true if no device is watched any more: it was removed, or begin() has returned false.
  bool over() const noexcept { return !id_; }
  bool is_on(std::string_view device) const noexcept { return !over() && device == device_; }
  const std::string& device() const noexcept { return device_; }

 private:
  void on_cm_event(const CmEvent& event) override;
  std::string device_;
  CmId id_;
};

}}}  // namespace conn::rdma
