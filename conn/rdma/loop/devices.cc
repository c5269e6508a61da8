// SPDX-License-Identifier: BSD-3-Clause
#include "conn/rdma/loop/devices.h"

#include <fmt/format.h>
#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <exception>
#include <new>
#include <utility>

#include "conn/core/connection_set.h"
#include "conn/kit/interruption.h"
#include "conn/rdma/config/limits.h"
#include "conn/rdma/device/availability.h"

namespace conn { inline namespace AECONN_ABI { namespace rdma {

std::shared_ptr<DeviceContext> Devices::context(const CmId& id, const Settings& settings) {
  require_device(id);
  watch_removal(id);
  const char* name = ibv_get_device_name(id->verbs->device);
  if (!settings.device.empty() && settings.device != name)
    throw VerbsError(
        fmt::format("the address belongs to {}, not to device={}", name, settings.device),
        EADDRNOTAVAIL);
  for (const auto& context : contexts_)
    if (!context->lost() && context->name() == name) return context;
  std::shared_ptr<DeviceContext> made;
  try {
    made = std::make_shared<DeviceContext>(id->verbs->device, settings, pages_,
                                           ConnectionSet::of(loop_).index_in_group, to_clear_);
  } catch (const VerbsError& error) {
    Failure failure = error.failure();
    failure.text += limit_words(failure.code.value(), name, nullptr, settings);
    throw VerbsError(std::move(failure));
  }
  contexts_.reserve(contexts_.size() + 1);
  counted_before_.try_emplace(made->name());
  watch(*made);
  contexts_.push_back(made);
  look_for_only();
  return made;
}

void Devices::watch(DeviceContext& context) {
  try {
    loop_.add_file_event(context.completions().fd(), ae::kReadable,
                         [&context](int, ae::Mask) { context.completions().on_event(); });
    loop_.add_file_event(context.device().event_fd(), ae::kReadable,
                         [this, &context](int, ae::Mask) {
                           on_async_event(context);
                           try {
                             watch_ports();
                           } catch (const std::exception&) {  // no memory: tick() tries again
                           }
                         });
  } catch (...) {
    unwatch(context);
    throw;
  }
}

void Devices::unwatch(DeviceContext& context) {
  if (const auto before = counted_before_.find(context.name()); before != counted_before_.end())
    before->second += context.counters();
  loop_.remove_file_event(context.completions().fd(), ae::kReadable);
  loop_.remove_file_event(context.device().event_fd(), ae::kReadable);
}

void Devices::on_async_event(DeviceContext& context) noexcept {
  context.on_async_event();
  tell_of_addresses(context);
}

void Devices::tell_of_addresses(DeviceContext& context) noexcept {
  if (context.take_address_change()) listeners_.addresses_changed();
}

std::size_t Devices::prepared() const noexcept {
  std::size_t all = 0;
  for (const auto& context : contexts_) all += context->prepared();
  return all;
}

// --- completions and events of the devices -------------------------------------------------------

bool Devices::poll_all() {
  bool more = false;
  each([&](DeviceContext& context) { more = context.completions().poll() || more; });
  return more;
}

std::size_t Devices::poll_now() {
  std::size_t taken = 0;
  each([&](DeviceContext& context) { taken += context.completions().poll(kPollBudget); });
  return taken;
}

void Devices::drain() {
  each([](DeviceContext& context) { context.completions().drain(); });
}

bool Devices::arm_all() {
  bool quiet = true;
  each([&](DeviceContext& context) { quiet = context.completions().arm() && quiet; });
  return quiet;
}

void Devices::wait(int fd, ae::Duration limit) {
  std::vector<pollfd> fds{{fd, POLLIN, 0}};
  for (const auto& context : contexts_) {
    fds.push_back({context->completions().fd(), POLLIN, 0});
    fds.push_back({context->device().event_fd(), POLLIN, 0});
  }
  // poll() takes milliseconds. The time is rounded up, so that `limit` has passed when poll() times
  // out.
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(limit).count();
  const int ms = static_cast<int>(std::clamp<long long>(left, 0, 3600 * 1000));
  const int ready = ::poll(fds.data(), fds.size(), ms);
  if (ready < 0 && errno == EINTR) (void)Interruption::came();
  if (ready <= 0) return;
  for (std::size_t i = 0; i < contexts_.size() && 2 + 2 * i < fds.size(); ++i) {
    if (fds[1 + 2 * i].revents != 0) contexts_[i]->completions().on_event();
    if (fds[2 + 2 * i].revents != 0) on_async_event(*contexts_[i]);
  }
}

void Devices::on_event_of_nobody(const CmEvent& event) noexcept {
  for (const auto& context : contexts_) context->on_event_of_nobody(event);
}

// Marks our DeviceContext of a removed device as lost, and makes librdmacm close its own handle of
// the device, because the kernel completes the removal only after every handle is closed.
void Devices::on_removed(ibv_context* cm_handle) {
  if (!watches_.is_news(cm_handle)) return;
  for (const auto& context : contexts_)
    if (context->name() == ibv_get_device_name(cm_handle->device)) context->set_lost();
  let_go_of_device(cm_handle);
  watches_.watch_all();
}

// --- freeing resources that are not needed any more ----------------------------------------------

bool Devices::has_parked_to_release() const noexcept {
  return std::any_of(contexts_.begin(), contexts_.end(),
                     [](const auto& context) { return context->may_release_parked(); });
}

void Devices::release_parked(IterationBudget& iteration, IterationBudget::Most most) {
  for (const auto& context : contexts_)
    for (bool first = true; context->may_release_parked(); first = false) {
      if (!iteration.allows(most, first)) break;
      const IterationBudget::Spending spending(iteration);
      context->release_one_parked();
    }
}

bool Devices::has_lost() const noexcept {
  return std::any_of(contexts_.begin(), contexts_.end(), may_go);
}

void Devices::drop_lost(IterationBudget& iteration) {
  std::erase_if(contexts_, [&](const std::shared_ptr<DeviceContext>& context) {
    if (!may_go(context)) return false;
    for (bool more = true; more;) {
      const IterationBudget::Spending spending(iteration);
      more = context->give_back_one();
      if (more && !iteration.has_share_left()) return false;
    }
    unwatch(*context);
    return true;
  });
  look_for_only();
}

void Devices::look_if_clear() noexcept {
  to_clear_ = std::any_of(contexts_.begin(), contexts_.end(), [](const auto& context) {
    return context->lost() || context->has_parked();
  });
}

void Devices::drop_idle() {
  std::erase_if(contexts_, [this](const std::shared_ptr<DeviceContext>& context) {
    if (context.use_count() != 1 || context->has_parked()) return false;
    unwatch(*context);
    return true;
  });
  look_for_only();
}

void Devices::give_back_what_is_idle() {
  drop_idle();
  pages_.give_back_all();
}

bool Devices::tick(ae::TimePoint now) {
  each([&](DeviceContext& context) {
    context.tick(now);
    tell_of_addresses(context);
    context.tell_of_ports(now);
  });
  try {
    watch_ports();
  } catch (const std::bad_alloc&) {  // no memory for the timer: the next tick() tries again
  }
  return pages_.tick_all(now);
}

bool Devices::at_rest() const noexcept {
  return pages_.all_at_rest() &&
         std::all_of(contexts_.begin(), contexts_.end(),
                     [](const auto& context) { return context->at_rest(); });
}

void Devices::leave_loop() noexcept {
  port_watch_.stop();
  for (const auto& context : contexts_) unwatch(*context);
}

void Devices::give_up_parked(Orphans& to) noexcept {
  for (const auto& context : contexts_) context->give_up_parked(to);
}

}}}  // namespace conn::rdma
