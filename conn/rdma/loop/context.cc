// SPDX-License-Identifier: BSD-3-Clause
#include "conn/rdma/loop/context.h"

#include <arpa/inet.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <iterator>

#include "conn/rdma/device/port_counters.h"
#include "conn/rdma/protocol/flow_control.h"
#include "conn/rdma/protocol/wire.h"

namespace conn { inline namespace AECONN_ABI { namespace rdma {
namespace {

constexpr std::size_t kMostParked = 16384;

}  // namespace

Context::Counters& Context::Counters::operator+=(const Counters& other) noexcept {
  completions += other.completions;
  completion_events += other.completion_events;
  arms += other.arms;
  async_events += other.async_events;
  receive_shortages += other.receive_shortages;
  receives_lost += other.receives_lost;
  return *this;
}

Context::Context(ibv_device* device, const Settings& settings, PagePool& pages,
                 std::optional<std::size_t> loop)
    : pages_(pages),
      device_(device, settings.inline_data),
      queues_(device_, device_.completion_vector(settings.completion_vector, loop)) {
  begin_port_counters(name());
}

Context::~Context() {
  prepared_.clear();
  for (const std::shared_ptr<Domain>* each : {&shared_, &second_})
    if (each->use_count() > 1) (*each)->leave_device();
}

void Context::give_up_parked(Orphans& to) noexcept {
  while (!lost_ && may_release_parked()) release_one_parked();
  const auto move = [](std::vector<CmId>& from, std::vector<CmId>& list) {
    list.insert(list.end(), std::make_move_iterator(from.begin()),
                std::make_move_iterator(from.end()));
    from.clear();
  };
  try {
    move(connecting_, to.connecting);
    move(parked_, to.parked);
  } catch (const std::bad_alloc&) {  // then the end of the loop blocks
  }
}

void Context::on_event_of_nobody(const CmEvent& event) noexcept {
  if (!ends_connect(event)) return;
  std::erase_if(connecting_, [&](const CmId& each) { return each.get() == event.id; });
}

// --- domains -------------------------------------------------------------------------------------

bool Context::binds(const Settings& settings) const {
  const bool wanted =
      settings.isolation == Isolation::kAuto || settings.isolation == Isolation::kWindow;
  return wanted && device_.binding() != Device::Binding::kNo;
}

Failure Context::no_windows() const {
  return {std::make_error_code(std::errc::operation_not_supported),
          fmt::format("isolation=window: {} has no type 2 memory windows that work", name())};
}

std::shared_ptr<Domain> Context::domain(const Settings& settings, std::uint32_t own_receives) {
  const bool bind = binds(settings);
  if (settings.isolation == Isolation::kWindow && !bind) throw VerbsError(no_windows());
  const auto alone = [&] {
    Domain::Config config;
    config.own_receives = own_receives;
    return std::make_shared<Domain>(device_, pages_, config, settings.limit());
  };
  if (!bind && settings.isolation != Isolation::kNone) return alone();
  std::shared_ptr<Domain>& slot = common_domain(settings, bind);
  // Until a bind has worked, only one connection may use the domain: if the bind is refused, it
  // keeps the domain to itself, without the keys of others in it.
  const bool in_use = slot.use_count() > 1;
  if (bind && in_use && device_.binding() == Device::Binding::kUnsure) return alone();
  return slot;
}

std::shared_ptr<Domain>& Context::common_domain(const Settings& settings, bool bind) {
  std::shared_ptr<Domain>& slot =
      shared_ == nullptr || shared_->bind_keys() == bind ? shared_ : second_;
  if (slot != nullptr) return slot;
  Domain::Config config;
  config.shared = true;
  config.bind_keys = bind;
  // Mixed settings are rare: the first kind keeps the shared receive queue, the other gets receives
  // of its own. iWARP does not retry a message that finds no receive, so no receives are shared
  // there.
  const ibv_device_attr& limits = device_.limits();
  if (limits.max_srq > 0 && limits.max_srq_wr > 0 && &slot == &shared_ && device_.shares_receives())
    // All of them may complete on one completion queue, which also needs entries for sends.
    config.shared_receives =
        std::min({settings.shared_receive_queue, static_cast<std::uint32_t>(limits.max_srq_wr),
                  device_.max_cq() / 2});
  try {
    slot = std::make_shared<Domain>(device_, pages_, config, settings.limit());
  } catch (const VerbsError& error) {
    if (config.shared_receives == 0 || !refused_as_such(error.failure().code.value())) throw;
    device_.give_up_shared_receives();
    config.shared_receives = 0;
    slot = std::make_shared<Domain>(device_, pages_, config, settings.limit());
  }
  if (&slot == &shared_) arm_srq_limit();
  return slot;
}

void Context::give_up_binding(Domain& domain) {
  device_.give_up_binding();
  prepared_.drop_of(domain);
  domain.give_up_binding();
  for (std::shared_ptr<Domain>* slot : {&shared_, &second_})
    if (slot->get() == &domain) slot->reset();
}

bool Context::prepare_one(const Settings& settings) {
  const bool bind = binds(settings);
  if (lost_ || (!bind && settings.isolation != Isolation::kNone)) return false;
  Domain& domain = *common_domain(settings, bind);
  if (domain.srq() == nullptr) return false;
  const QueuePairShape shape{&domain, std::min(settings.send_queue, device_.max_send_queue()),
                             settings.inline_data};
  const std::size_t ready = prepared_.count(shape);
  if (ready >= settings.prepared) return false;
  // Leaves memory for existing connections.
  const MemoryLimit limit = settings.limit().but_a_quarter();
  PreparedQueuePair made;
  made.shape = shape;
  made.lease = lease(shape.sends);
  ibv_qp_init_attr attributes = ask_for(shape, made.lease);
  attributes.cap.max_send_sge = device_.max_pieces();
  made.qp = device_.create_qp(domain.pd(), attributes);
  made.cap = attributes.cap;
  made.rings = pin_rings(made.cap);
  prepared_.add(std::move(made), domain, settings.window, limit);
  domain.keep_ready(ready + 1);
  return ready + 1 < settings.prepared;
}

bool Context::drop_one_prepared() noexcept {
  for (Domain* each : {shared_.get(), second_.get()})
    if (each != nullptr) each->keep_ready(0);
  return prepared_.drop_one();
}

std::uint32_t Context::shared_depth() const noexcept {
  return shared_ && shared_->srq() != nullptr ? shared_->shared_receives()->depth() : 0;
}

void Context::attach(std::uint32_t qp_number, QueuePairUser* user) {
  const std::size_t ids = parked_.size() + connecting_.size() + users_.size() + 1;
  for (std::vector<CmId>* list : {&parked_, &connecting_})
    if (list->capacity() < ids) list->reserve(std::max(ids, 2 * list->capacity()));
  if (visited_.capacity() < ids) visited_.reserve(parked_.capacity());
  users_[qp_number] = user;
}

void Context::arm_srq_limit() noexcept {
  ibv_srq_attr limit{};
  limit.srq_limit = shared_depth() / flow::kShortageAt;
  // Optional: without the event, receives are still replenished as they complete.
  if (limit.srq_limit != 0) (void)ibv_modify_srq(shared_->srq(), &limit, IBV_SRQ_LIMIT);
}

// --- completions ---------------------------------------------------------------------------------

std::size_t Context::poll(std::size_t budget, bool* more) {
  const auto& queues = queues_.unarmed();
  // Each queue gets a share, so that a busy one does not starve the others.
  const std::size_t share =
      std::max<std::size_t>(budget / std::max<std::size_t>(queues.size(), 1), kPollBatch);
  std::size_t total = 0;
  // NOLINTNEXTLINE(modernize-loop-convert): the list may change meanwhile
  for (std::size_t i = 0; i < queues.size(); ++i) {
    const std::size_t taken = poll_queue(*queues[i], share);
    if (more != nullptr && taken >= share) *more = true;
    total += taken;
  }
  return total;
}

// Reentrant: a dispatch may drain this queue. Completions that were already polled come first.
std::size_t Context::poll_queue(CompletionQueue& queue, std::size_t budget) {
  std::size_t total = 0;
  for (bool more = true; more && total < budget;) {
    if (queue.next == queue.end) {
      const int count = ibv_poll_cq(queue.cq.get(), kPollBatch, queue.polled.data());
      if (count <= 0) break;
      queue.next = 0;
      queue.end = static_cast<std::uint32_t>(count);
    }
    more = queue.end == kPollBatch;
    while (queue.next != queue.end) {
      const ibv_wc completion = queue.polled[queue.next++];
      ++total;
      try {
        dispatch(completion);
      } catch (const std::exception&) {  // that connection ends, others are unaffected
        if (const auto found = users_.find(completion.qp_num); found != users_.end())
          found->second->on_no_memory();
      }
    }
    // Before handlers run: the peers' next messages need receives.
    if (shared_ && shared_->srq() != nullptr) {
      ReceiveQueue& receives = *shared_->shared_receives();
      const std::size_t batch =
          std::min<std::size_t>(flow::kSharedBatch, receives.depth() / flow::kReceiveBatches);
      if (receives.missing() != 0 && receives.missing() >= batch) (void)receives.replenish();
    }
  }
  counters_.completions += total;
  return total;
}

void Context::drain(CompletionQueue& queue) {
  // New completions are behind those that were there, which are at most as many as its depth.
  const std::size_t most = queue.cq.entries();
  for (std::size_t taken = 0; taken <= most;) {
    const std::size_t now = poll_queue(queue, 1024);
    if (now == 0) return;
    taken += now;
  }
}

void Context::drain() {
  for (const auto& queue : queues_.all()) drain(*queue);
}

void Context::dispatch(const ibv_wc& completion) {
  // A destroyed queue pair may leave completions behind; only their receives matter.
  const auto found = users_.find(completion.qp_num);
  QueuePairUser* user = found == users_.end() ? nullptr : found->second;
  if ((completion.wr_id & kReceiveId) != 0) return on_receive(completion, user);
  if (user == nullptr) return;
  const auto sequence = static_cast<std::uint32_t>(completion.wr_id);
  if (completion.status == IBV_WC_SUCCESS)
    user->on_sends_done(sequence);
  else
    user->on_work_failed(completion.status, true, sequence);
}

void Context::on_receive(const ibv_wc& completion, QueuePairUser* user) {
  const auto slot = static_cast<std::uint32_t>(completion.wr_id);
  const bool own = (completion.wr_id & kOwnReceiveId) != 0;
  ReceiveQueue* receives = user != nullptr ? user->receives() : nullptr;
  if (!own && user == nullptr && shared_) receives = shared_->shared_receives();
  if (receives == nullptr) return;
  if (completion.status != IBV_WC_SUCCESS) {
    (void)receives->consumed(slot);
    if (user != nullptr) user->on_work_failed(completion.status, false, 0);
    return;
  }
  const bool immediate =
      completion.opcode == IBV_WC_RECV_RDMA_WITH_IMM ||
      (device_.immediates_by_flag() && (completion.wc_flags & IBV_WC_WITH_IMM) != 0);
  ControlBytes copy{};
  std::size_t length = 0;
  if (!immediate) {
    const std::span<const std::byte> bytes = receives->buffer(slot, completion.byte_len);
    length = completion.byte_len <= kControlSize ? bytes.size() : 0;
    std::memcpy(copy.data(), bytes.data(), bytes.size());
  }
  if (!receives->consumed(slot) || user == nullptr) return;
  const bool common = shared_ && receives == shared_->shared_receives();
  if (!common && receives->missing() * flow::kReceiveBatches >= receives->depth())
    (void)receives->replenish();
  if (immediate)
    user->on_immediate(ntohl(completion.imm_data));
  else
    user->on_message({copy.data(), length});
}

bool Context::arm() {
  bool lost = false;
  const auto& armed = queues_.arm(lost);
  counters_.arms += armed.size();
  if (lost) return true;  // the device is gone; its events report it
  // Completions between the last poll and the arming raised no event.
  constexpr std::size_t kBudget = 256;
  const std::size_t share =
      std::max<std::size_t>(kBudget / std::max<std::size_t>(armed.size(), 1), kPollBatch);
  std::size_t total = 0;
  for (CompletionQueue* queue : armed) {
    const std::size_t taken = poll_queue(*queue, share);
    // More may remain: the queue is polled again before its event counts.
    if (taken >= share) queues_.look_again(*queue);
    total += taken;
  }
  return total == 0;
}

// --- periodic work -------------------------------------------------------------------------------

void Context::tick(ae::TimePoint now) noexcept {
  if (addresses_changed_) look_at_addresses();
  if (shared_ && shared_->srq() != nullptr) {
    ReceiveQueue& receives = *shared_->shared_receives();
    if (receives.has_overtaken()) {
      drain();  // receives still in a queue are not lost
      counters_.receives_lost += receives.take_lost();
    }
    if (receives.missing() != 0) (void)receives.replenish();
  }
  for (Domain* each : {shared_.get(), second_.get()})
    if (each != nullptr) each->tick(now);
  queues_.tick(now);
}

bool Context::at_rest() const noexcept {
  return (!shared_ || shared_->at_rest()) && (!second_ || second_->at_rest()) &&
         queues_.at_rest() && !device_.any_port_down() && !addresses_changed_;
}

void Context::tell_of_ports(ae::TimePoint now) noexcept {
  if (lost_ || !device_.any_port_down()) {
    port_down_since_.fill({});
    return;
  }
  device_.ask_ports_that_are_down(now);
  for (int port = 1; port < Device::kPorts; ++port) {
    ae::TimePoint& since = port_down_since_[static_cast<std::size_t>(port)];
    if (!device_.port_down(port)) {
      since = {};
      continue;
    }
    if (since == ae::TimePoint{}) since = now;
    for_each_user([&](QueuePairUser& each) { each.on_port_down(port, now - since); });
  }
}

bool Context::full_of_parked() const noexcept {
  return parked_.size() + connecting_.size() >= kMostParked;
}

bool Context::may_release_parked() const noexcept {
  if (parked_.empty() || lost_ || !device_.any_port_down()) return !parked_.empty();
  return std::any_of(parked_.begin(), parked_.end(),
                     [&](const CmId& id) { return !device_.port_down(id->port_num); });
}

void Context::release_one_parked() noexcept {
  auto one = parked_.end() - 1;
  if (!lost_ && device_.any_port_down())
    one = std::find_if(parked_.begin(), one,
                       [&](const CmId& id) { return !device_.port_down(id->port_num); });
  std::swap(*one, parked_.back());
  parked_.pop_back();
}

// --- asynchronous events -------------------------------------------------------------------------

// If there is no memory to notify the users now, tick() tries again.
void Context::look_at_addresses() noexcept {
  addresses_changed_ = true;
  try {
    const std::vector<SocketAddress> present = local_addresses();
    if (present.empty()) return;  // the addresses are unknown
    for_each_user([&](QueuePairUser& each) { each.on_address_change(present); });
    addresses_changed_ = false;
  } catch (const std::bad_alloc&) {
  }
}

void Context::on_async_event() noexcept {
  ibv_async_event event{};
  // Bounded, so that a device that repeats an event forever cannot stall the loop.
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
        if (const auto found = users_.find(event.element.qp->qp_num); found != users_.end())
          user = found->second;
        break;
      default:
        break;
    }
    const int port = event.element.port_num;  // valid for port events
    // Acknowledged first, because destroying an object waits for its unacknowledged events.
    ibv_ack_async_event(&event);
    const auto words = [&]() -> std::string {
      try {
        return fmt::format("{}: {}", name(), ibv_event_type_str(type));
      } catch (const std::bad_alloc&) {  // the event counts even without text
        return {};
      }
    };
    switch (type) {
      case IBV_EVENT_COMM_EST:
        if (user != nullptr) tell(*user, [](auto& one) { one.on_communication_established(); });
        break;
      case IBV_EVENT_QP_LAST_WQE_REACHED:
        if (user != nullptr) tell(*user, [](auto& one) { one.on_last_receive(); });
        break;
      case IBV_EVENT_QP_REQ_ERR:
      case IBV_EVENT_QP_ACCESS_ERR:
        if (user != nullptr) tell(*user, [](auto& one) { one.on_refusal(); });
        break;
      case IBV_EVENT_QP_FATAL:
      case IBV_EVENT_PATH_MIG_ERR:
        if (user != nullptr) tell(*user, [&](auto& one) { one.on_device_event(words()); });
        break;
      case IBV_EVENT_DEVICE_FATAL:
      case IBV_EVENT_CQ_ERR:
      case IBV_EVENT_SRQ_ERR: {
        lost_ = true;
        const std::string text = words();
        for_each_user([&](QueuePairUser& each) { each.on_device_event(text); });
        break;
      }
      case IBV_EVENT_PORT_ACTIVE:
      case IBV_EVENT_PORT_ERR:
        device_.on_port_event(port, type == IBV_EVENT_PORT_ERR);
        break;
      case IBV_EVENT_GID_CHANGE:
        look_at_addresses();
        break;
      case IBV_EVENT_SRQ_LIMIT_REACHED:
        ++counters_.receive_shortages;
        if (shared_ && shared_->srq() != nullptr) {
          drain();
          (void)shared_->shared_receives()->replenish();
          arm_srq_limit();
        }
        break;
      default:
        break;  // LID, SM, client re-register, path migrated: ends nothing here
    }
  }
}

}}}  // namespace conn::rdma
