// SPDX-License-Identifier: BSD-3-Clause
#include "conn/rdma/loop/device_events.h"
#include "conn/kit/local_addresses.h"

#include <fmt/format.h>

#include <new>
#include <string>
#include <vector>

namespace conn { inline namespace AECONN_ABI { namespace rdma {

void DeviceEvents::tell_of_ports(ae::TimePoint now) noexcept {
  if (lost_ || !device_.any_port_down()) {
    port_down_since_.fill({});
    return;
  }
  device_.ask_ports_that_are_down(now);
  for (int port = 1; port < Device::kPorts; ++port) {
    ae::TimePoint& since = port_down_since_[static_cast<std::size_t>(port)];
    if (!device_.port_down(port) || device_.port_suspected(port)) {
      since = {};
      continue;
    }
    if (since == ae::TimePoint{}) since = now;
    const QueuePairEvent event{
        .kind = QueuePairEvent::Kind::kPortDown, .port = port, .since = now - since};
    users_.tell_all([&](QueuePairUser& each) { each.on_event(event); });
  }
}

// Tells the owners of queue pairs the machine's present addresses. If there is no memory for that,
// addresses_changed_ stays true, and tick() tries again.
void DeviceEvents::look_at_addresses() noexcept {
  addresses_changed_ = true;
  try {
    const std::vector<SocketAddress> present = local_addresses();
    if (present.empty()) return;  // the addresses could not be read
    const QueuePairEvent event{.kind = QueuePairEvent::Kind::kAddresses, .present = &present};
    users_.tell_all([&](QueuePairUser& each) { each.on_event(event); });
    addresses_changed_ = false;
  } catch (const std::bad_alloc&) {
  }
}

void DeviceEvents::take() noexcept {
  ibv_async_event event{};
  // At most 64 events are taken, so that a device that repeats an event for ever does not stall the
  // loop.
  for (int left = 64; left != 0 && ibv_get_async_event(device_.verbs(), &event) == 0; --left) {
    ++counters_.async_events;
    const ibv_event_type type = event.event_type;
    QueuePairUser* user = nullptr;
    switch (type) {
      case IBV_EVENT_QP_FATAL:
      case IBV_EVENT_QP_REQ_ERR:
      case IBV_EVENT_QP_ACCESS_ERR:
      case IBV_EVENT_COMM_EST:
      case IBV_EVENT_PATH_MIG_ERR:
      case IBV_EVENT_QP_LAST_WQE_REACHED:
        user = users_.find(event.element.qp->qp_num);
        break;
      default:
        break;
    }
    const int port = event.element.port_num;  // valid only if the event concerns a port
    // Acknowledges the event before handling it, because destroying an object waits until all
    // events of that object are acknowledged.
    ibv_ack_async_event(&event);
    handle(type, user, port);
  }
}

void DeviceEvents::handle(ibv_event_type type, QueuePairUser* user, int port) {
  const auto words = [&]() -> std::string {
    try {
      return fmt::format("{}: {}", device_.name(), ibv_event_type_str(type));
    } catch (const std::bad_alloc&) {  // no memory for the text: the event is reported without it
      return {};
    }
  };
  using enum QueuePairEvent::Kind;
  const auto tell = [&](const QueuePairEvent& event) {
    if (user != nullptr) QueuePairUsers::tell(*user, [&](auto& one) { one.on_event(event); });
  };
  switch (type) {
    case IBV_EVENT_COMM_EST:
      tell({.kind = kDataBeforeEstablished});
      break;
    case IBV_EVENT_QP_LAST_WQE_REACHED:
      tell({.kind = kLastReceive});
      break;
    case IBV_EVENT_QP_REQ_ERR:
    case IBV_EVENT_QP_ACCESS_ERR:
      tell({.kind = kRefusal});
      break;
    case IBV_EVENT_QP_FATAL:
    case IBV_EVENT_PATH_MIG_ERR: {
      const std::string text = words();
      tell({.kind = kFailed, .what = &text});
      break;
    }
    case IBV_EVENT_DEVICE_FATAL:
    case IBV_EVENT_CQ_ERR:
    case IBV_EVENT_SRQ_ERR: {
      lost_ = true;
      const std::string text = words();
      const QueuePairEvent failed{.kind = kFailed, .what = &text};
      users_.tell_all([&](QueuePairUser& each) { each.on_event(failed); });
      break;
    }
    case IBV_EVENT_PORT_ACTIVE:
    case IBV_EVENT_PORT_ERR:
      device_.on_port_event(port, type == IBV_EVENT_PORT_ERR);
      break;
    case IBV_EVENT_GID_CHANGE:
      address_change_ = true;
      look_at_addresses();
      break;
    case IBV_EVENT_SRQ_LIMIT_REACHED:
      ++counters_.receive_shortages;
      if (ReceiveQueue* receives = domains_.shared_receives()) {
        completions_.drain();
        (void)receives->replenish();
        domains_.arm_shortage_event();
      }
      break;
    default:
      // Other events (LID, SM, client re-register, path migrated) affect no connection.
      break;
  }
}

}}}  // namespace conn::rdma
