// SPDX-License-Identifier: BSD-3-Clause
#include "conn/rdma/loop/domains.h"

#include <fmt/format.h>

#include <algorithm>
#include <system_error>

#include "conn/rdma/protocol/flow_control.h"

namespace conn { inline namespace AECONN_ABI { namespace rdma {

bool Domains::binds(const Settings& settings) const {
  const bool wanted =
      settings.isolation == Isolation::kAuto || settings.isolation == Isolation::kWindow;
  return wanted && device_.binding() != Device::Binding::kNo;
}

Failure Domains::no_windows() const {
  return {
      std::make_error_code(std::errc::operation_not_supported),
      fmt::format("isolation=window: {} has no type 2 memory windows that work", device_.name())};
}

std::shared_ptr<Domain> Domains::for_connection(const Settings& settings,
                                                std::uint32_t own_receives, bool may_bind) {
  const bool bind = may_bind && binds(settings);
  if (settings.isolation == Isolation::kWindow && !bind) throw VerbsError(no_windows());
  const auto alone = [&] {
    Domain::Config config;
    config.own_receives = own_receives;
    return std::make_shared<Domain>(device_, pages_, config, settings.limit());
  };
  if (!bind && settings.isolation != Isolation::kNone) return alone();
  std::shared_ptr<Domain>& slot = common(settings, bind);
  // Until the device has carried out a first bind of a key, only one connection may use the
  // protection domain. If that bind is refused, give_up_binding() changes the domain, which must
  // not affect other connections.
  const bool in_use = slot.use_count() > 1;
  if (bind && in_use && device_.binding() == Device::Binding::kUnsure) return alone();
  return slot;
}

Domain* Domains::for_prepared(const Settings& settings) {
  const bool bind = binds(settings);
  if (!bind && settings.isolation != Isolation::kNone) return nullptr;
  Domain* domain = common(settings, bind).get();
  return domain->srq() != nullptr ? domain : nullptr;
}

std::shared_ptr<Domain>& Domains::common(const Settings& settings, bool bind) {
  std::shared_ptr<Domain>& slot =
      shared_ == nullptr || shared_->bind_keys() == bind ? shared_ : second_;
  if (slot != nullptr) return slot;
  Domain::Config config;
  config.shared = true;
  config.bind_keys = bind;
  // Only the domain that is created first (shared_) has the shared receive queue, because both
  // domains are seldom used together. Connections in the other domain have their own receives. On
  // iWARP no receives are shared, because iWARP does not retry a message that finds no posted
  // receive.
  const ibv_device_attr& limits = device_.limits();
  if (limits.max_srq > 0 && limits.max_srq_wr > 0 && &slot == &shared_ && device_.shares_receives())
    // At most half the entries of a completion queue: all shared receives may complete on one
    // queue, which also needs entries for sends.
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
  if (&slot == &shared_) arm_shortage_event();
  return slot;
}

void Domains::give_up_binding(Domain& domain) {
  domain.give_up_binding();
  for (std::shared_ptr<Domain>* slot : {&shared_, &second_})
    if (slot->get() == &domain) slot->reset();
}

void Domains::drop_ready_keys() noexcept {
  for (Domain* each : {shared_.get(), second_.get()})
    if (each != nullptr) each->keep_ready(0);
}

bool Domains::give_back_one() noexcept {
  return (shared_ && shared_->give_back_one()) || (second_ && second_->give_back_one());
}

void Domains::leave_device() noexcept {
  for (const std::shared_ptr<Domain>* each : {&shared_, &second_})
    if (each->use_count() > 1) (*each)->leave_device();
}

std::uint32_t Domains::shared_depth() const noexcept {
  const ReceiveQueue* receives = shared_receives();
  return receives != nullptr ? receives->depth() : 0;
}

void Domains::arm_shortage_event() noexcept {
  ibv_srq_attr limit{};
  limit.srq_limit = shared_depth() / flow::kShortageAt;
  // A failure of this call is ignored: receives are posted again when they complete, in any case.
  if (limit.srq_limit != 0) (void)ibv_modify_srq(shared_->srq(), &limit, IBV_SRQ_LIMIT);
}

void Domains::tick(ae::TimePoint now) noexcept {
  for (Domain* each : {shared_.get(), second_.get()})
    if (each != nullptr) each->tick(now);
}

bool Domains::at_rest() const noexcept {
  return (!shared_ || shared_->at_rest()) && (!second_ || second_->at_rest());
}

}}}  // namespace conn::rdma
