// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Periodically queries the ports that are down until they are up again, because the event that
// reports this may come late or never. The timer runs only while a port is known to be down.

#include <memory>
#include <vector>

#include "ae/abi.h"
#include "ae/event_loop.h"
#include "conn/rdma/loop/device_context.h"

namespace conn { inline namespace AECONN_ABI { namespace rdma {

class PortWatch {
 public:
  /// Both arguments must outlive this object.
  PortWatch(ae::EventLoop& loop,
            const std::vector<std::shared_ptr<DeviceContext>>& contexts) noexcept
      : loop_(loop), contexts_(contexts) {}
  /// If a port of a device is down, queries it periodically until it is up. Throws std::bad_alloc.
  void start();
  /// Removes the timer that queries the ports from the loop; call it before the loop is destroyed.
  void stop() noexcept;

 private:
  bool has_port_down() const noexcept;

  ae::EventLoop& loop_;
  const std::vector<std::shared_ptr<DeviceContext>>& contexts_;
  ae::TimerId timer_ = 0;  // the timer that queries the ports; 0: it is not running
};

}}}  // namespace conn::rdma
