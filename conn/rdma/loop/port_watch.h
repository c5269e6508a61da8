// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Queries ports that are down, periodically until they are up: the event of a port may come late or
// never. Has a timer exactly while a port is known to be down.

#include <memory>
#include <vector>

#include "ae/abi.h"
#include "ae/event_loop.h"
#include "conn/rdma/loop/device_context.h"

namespace conn { inline namespace AECONN_ABI { namespace rdma {

class PortWatch {
 public:
  /// Borrows both.
  PortWatch(ae::EventLoop& loop,
            const std::vector<std::shared_ptr<DeviceContext>>& contexts) noexcept
      : loop_(loop), contexts_(contexts) {}
  /// If a port is down, queries it periodically until it is up. Throws std::bad_alloc.
  void start();
  /// Removes the timer; the loop ends.
  void stop() noexcept;

 private:
  bool has_port_down() const noexcept;

  ae::EventLoop& loop_;
  const std::vector<std::shared_ptr<DeviceContext>>& contexts_;
  ae::TimerId timer_ = 0;  // while a port is down
};

}}}  // namespace conn::rdma
