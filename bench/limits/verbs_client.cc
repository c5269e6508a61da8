// SPDX-License-Identifier: BSD-3-Clause
#include "verbs_client.h"

#include <stdexcept>

namespace limits {
namespace {

constexpr int kPatienceMs = 2000;

}  // namespace

Client::Client(const ClientSettings& settings)
    : Worker(settings.spin),
      settings_(settings),
      address_(parse_address(settings.address)),
      slots_(settings.connections) {
  for (Slot& slot : slots_) slot.sent_at.resize(settings.depth);
}

Client::~Client() {
  for (Slot& slot : slots_) {
    if (slot.link) slot.link->disconnect();
  }
}

void Client::dial(Slot& slot) {
  slot.id = create_id(&slot);
  auto* const to = reinterpret_cast<sockaddr*>(&address_);
  if (rdma_resolve_addr(slot.id.get(), nullptr, to, kPatienceMs) != 0) fail("rdma_resolve_addr");
}

void Client::on_cm(const CmEvent& event) {
  Slot& slot = *static_cast<Slot*>(event.id->context);
  switch (event.type) {
    case RDMA_CM_EVENT_ADDR_RESOLVED:
      if (rdma_resolve_route(event.id, kPatienceMs) != 0) fail("rdma_resolve_route");
      break;
    case RDMA_CM_EVENT_ROUTE_RESOLVED:
      slot.link = std::make_unique<SlotLink>(device(event.id->verbs), std::move(slot.id),
                                             settings_.window, slot);
      add(*slot.link);
      slot.link->connect();
      break;
    case RDMA_CM_EVENT_ESTABLISHED:
      slot.link->established();
      break;
    case RDMA_CM_EVENT_DISCONNECTED:
      settle();
      slot.link->disconnect();
      remove(*slot.link);
      slot.link.reset();
      closed(slot);
      break;
    case RDMA_CM_EVENT_TIMEWAIT_EXIT:
      break;
    default:
      throw std::runtime_error("cannot connect to " + settings_.address + ": " +
                               rdma_event_str(event.type) + " " + std::to_string(event.status));
  }
}

void Client::serve(Link& link) {
  Slot& slot = static_cast<SlotLink&>(link).slot;
  link.established();
  if (link.filled() > slot.looked_at) {
    const std::uint32_t before = slot.looked_at;
    slot.looked_at = link.filled();
    arrived(slot, link.window() + before, link.filled() - before);
  }
  if (link.open() && !slot.open) {
    slot.open = true;
    opened(slot);
  }
  send(slot);
}

void Client::send(Slot& slot) {
  if (slot.link->full() && slot.link->add_offer()) slot.looked_at = 0;
  fill(slot);
  slot.link->post();
}

void Client::lost(Link&) { throw std::runtime_error("a connection broke"); }

}  // namespace limits
