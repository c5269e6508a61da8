// SPDX-License-Identifier: BSD-3-Clause
#include "conn/rdma/device/orphans.h"

#include <atomic>
#include <mutex>
#include <new>
#include <utility>

#include "ae/once.h"

namespace conn { inline namespace AECONN_ABI { namespace rdma {
namespace {

// Keeps all orphans (rdma_cm ids of ended loops) of the process. Its only object is never
// destroyed, because destroying ids could block the end of the process; the kernel then releases
// them.
struct Home {
  ae::Mutex mutex;
  std::vector<Orphans*> families;
};

Home& home() {
  return ae::once([] { return Home(); });
}

std::atomic<bool> are_there{false};

bool port_is_up(const CmId& id) noexcept {
  ibv_port_attr attributes{};
  return id->verbs == nullptr || ibv_query_port(id->verbs, id->port_num, &attributes) != 0 ||
         attributes.state == IBV_PORT_ACTIVE;
}

void let_go(Orphans& family) noexcept {
  while (const std::optional<CmEvent> event = family.channel->next()) {
    const auto its = [&](const CmId& each) { return each.get() == event->id; };
    if (ends_connect(*event)) std::erase_if(family.connecting, its);
    if (event->type == RDMA_CM_EVENT_DEVICE_REMOVAL) std::erase_if(family.parked, its);
  }
  std::erase_if(family.parked, port_is_up);
}

}  // namespace

void adopt(Orphans left) noexcept {
  if (left.empty()) return;
  auto* const kept = new (std::nothrow) Orphans(std::move(left));
  if (kept == nullptr) return;
  try {
    Home& here = home();
    const std::lock_guard lock(here.mutex);
    here.families.push_back(kept);
    are_there = true;
  } catch (const std::exception&) {  // no memory to store the ids: the kernel frees them at exit
  }
}

bool any_orphans() noexcept { return are_there; }

void look_after_orphans() noexcept {
  if (!are_there) return;
  Home& here = home();
  const std::unique_lock lock(here.mutex, std::try_to_lock);
  if (!lock) return;  // another thread is destroying orphans
  std::erase_if(here.families, [](Orphans* family) {
    const bool ours = !family->made_here.inherited();
    if (ours) let_go(*family);
    if (ours && !family->empty()) return false;
    delete family;
    return true;
  });
  are_there = !here.families.empty();
}

}}}  // namespace conn::rdma
