// SPDX-License-Identifier: BSD-3-Clause
#include "conn/rdma/loop/periodic_cleanup.h"

#include <chrono>
#include <utility>

#include "conn/rdma/device/orphans.h"
#include "conn/rdma/loop/clock.h"

namespace conn { inline namespace AECONN_ABI { namespace rdma {
namespace {

constexpr ae::Duration kInterval = std::chrono::seconds(1);
constexpr ae::Duration kNextPart = std::chrono::milliseconds(10);

}  // namespace

void PeriodicCleanup::start() {
  if (timer_ != 0) return;
  due_ = clock_now() + kInterval;
  timer_ = loop_.add_time_event(kInterval, [this] { return on_timer(); });
}

void PeriodicCleanup::stop() noexcept {
  if (timer_ != 0) loop_.remove_time_event(std::exchange(timer_, 0));
}

ae::Duration PeriodicCleanup::on_timer() {
  run();
  if (more_soon_) return kNextPart;
  if (!has_nothing_left()) return kInterval;
  timer_ = 0;
  return ae::kNoMore;
}

bool PeriodicCleanup::has_nothing_left() const noexcept {
  // Without listeners, a later cleanup closes the devices, once no connection and no rdma_cm id
  // that waits to be destroyed is left. So the timer must go on while a device is open.
  if (listeners_.empty() && !devices_.contexts().empty()) return false;
  return users_.attached() == 0 && !any_orphans() && devices_.at_rest();
}

void PeriodicCleanup::run_if_due(ae::TimePoint now) noexcept {
  if (timer_ != 0 && now >= due_) run();
}

void PeriodicCleanup::run() noexcept {
  const ae::TimePoint now = clock_now();
  due_ = now + kInterval;
  // If there are neither connections nor listeners, idle devices are closed. Otherwise this process
  // could delay the removal of a device: without an rdma_cm id on the device, the removal is not
  // reported to us, and the kernel waits until we close it.
  if (wheel_.empty() && listeners_.empty()) devices_.drop_idle();
  look_after_orphans();
  more_soon_ = devices_.tick(now);
  // Lets connections that wait for memory try again, because another loop may have released some.
  (void)users_.memory_came_back();
}

}}}  // namespace conn::rdma
