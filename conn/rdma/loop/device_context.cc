// SPDX-License-Identifier: BSD-3-Clause
#include "conn/rdma/loop/device_context.h"

#include <algorithm>

#include "conn/rdma/config/limits.h"
#include "conn/rdma/device/port_counters.h"

namespace conn { inline namespace AECONN_ABI { namespace rdma {

DeviceContext::DeviceContext(ibv_device* device, const Settings& settings, PagePool& pages,
                             std::optional<std::size_t> loop, bool& to_clear)
    : to_clear_(to_clear),
      device_(device, settings.inline_data),
      domains_(device_, pages),
      completions_(device_, device_.completion_vector(settings.completion_vector, loop), users_,
                   domains_, counters_),
      events_(device_, users_, domains_, completions_, counters_) {
  begin_port_counters(name());
}

DeviceContext::~DeviceContext() {
  prepared_.clear();
  domains_.leave_device();
}

void DeviceContext::give_up_parked(Orphans& to) noexcept {
  while (!lost() && may_release_parked()) release_one_parked();
  parked_.give_up(to);
}

void DeviceContext::give_up_binding(Domain& domain) {
  device_.give_up_binding();
  prepared_.drop_of(domain);
  domains_.give_up_binding(domain);
}

bool DeviceContext::prepare_one(const Settings& settings) {
  if (lost()) return false;
  Domain* domain = domains_.for_prepared(settings);
  if (domain == nullptr) return false;
  const QueuePairShape shape{domain, send_queue_of(settings, device_), settings.inline_data};
  const std::size_t ready = prepared_.count(shape);
  if (ready >= settings.prepared) return false;
  // A quarter of the memory limit is reserved for connections; queue pairs created in advance must
  // not use it.
  const MemoryLimit limit = settings.limit().but_a_quarter();
  PreparedQueuePair made;
  made.shape = shape;
  made.lease = lease(shape.sends);
  ibv_qp_init_attr attributes = ask_for(shape, made.lease);
  attributes.cap.max_send_sge = device_.max_pieces();
  made.qp = device_.create_qp(domain->pd(), attributes);
  made.cap = attributes.cap;
  made.rings = pin_rings(made.cap);
  prepared_.add(std::move(made), *domain, settings.window, limit);
  domain->keep_ready(ready + 1);
  return ready + 1 < settings.prepared;
}

bool DeviceContext::drop_one_prepared() noexcept {
  domains_.drop_ready_keys();
  return prepared_.drop_one();
}

void DeviceContext::attach(std::uint32_t qp_number, QueuePairUser* user) {
  parked_.reserve(users_.size() + 1);
  users_.add(qp_number, user);
}

void DeviceContext::tick(ae::TimePoint now) noexcept {
  events_.tick();
  if (ReceiveQueue* receives = domains_.shared_receives()) {
    if (receives->has_overtaken()) {
      // The queues must be polled empty first: a receive whose completion is still in a queue is
      // not lost.
      completions_.drain();
      counters_.receives_lost += receives->take_lost();
    }
    if (receives->missing() != 0) (void)receives->replenish();
  }
  domains_.tick(now);
  completions_.tick(now);
}

}}}  // namespace conn::rdma
