// SPDX-License-Identifier: BSD-3-Clause
// What the connection does with its receive windows and their keys.

#include <poll.h>

#include <algorithm>
#include <cerrno>

#include "conn/rdma/carrier.h"

namespace conn { inline namespace AECONN_ABI { namespace rdma {

void RdmaCarrier::manage_windows() {
  if (windows_.manage({domain_.get(), settings_.limit(), state_->statistics(), live_},
                      state_->now()))
    state_->want_flush(*this);
  // The next tick may be earlier now: to detect that windows are quiet, or to retry one.
  if (in_wheel() && stream_.next_tick() < due()) state_->look_at(*this, stream_.next_tick());
}

// All sends up to `sequence` are complete.
void RdmaCarrier::on_keys_changed(std::uint32_t sequence) {
  const Windows::Changed changed = windows_.on_done(sequence, domain_.get());
  if (changed == Windows::Changed::kBound) context_->device().prove_binding();
  if (changed != Windows::Changed::kNone) manage_windows();  // there may be a place for another
}

// Called before the connection is established, once the queue pair is ready to send: a device that
// refuses keys is detected before the next connection is made.
void RdmaCarrier::post_keys() {
  for (bool again = true; again && windows_.has_key_to_change();) {
    const SendChain::Result result = sender_.post_keys(qp_.get(), windows_);
    if (result.error == 0) return;
    const bool unsure = context_->device().binding() == Device::Binding::kUnsure;
    again = result.known && unsure &&
            windows_.go_on_without_binding(*context_, *domain_, lease_, settings_);
    if (!result.known && unsure) context_->device().give_up_binding();
    if (!again) throw VerbsError(bind_failure(*context_, settings_, result.error));
  }
}

// Called before the connection is established. A device counts as able to bind keys once it has
// carried out a bind: some refuse it when it is posted, some when it is executed, and then the
// queue pair is unusable. False: this one is unusable; the next will not bind keys.
bool RdmaCarrier::keys_work() {
  constexpr ae::Duration kBindPatience = std::chrono::milliseconds(20);  // it takes microseconds
  Device& device = context_->device();
  if (iwarp_ || (role_ == Role::kClient && device.binding() != Device::Binding::kUnsure))
    return true;
  post_keys();
  proving_ = device.binding() == Device::Binding::kUnsure && windows_.has_key_to_change();
  const ae::TimePoint until = std::chrono::steady_clock::now() + kBindPatience;
  while (proving_ && device.binding() == Device::Binding::kUnsure) {
    context_->drain(*lease_.queue());
    if (!proving_ || device.binding() != Device::Binding::kUnsure) break;
    if (std::chrono::steady_clock::now() >= until) break;  // a later failure ends the connection
    (void)::poll(nullptr, 0, 1);
  }
  const bool failed = device.binding() == Device::Binding::kNo && sender_.failed();
  proving_ = false;
  if (failed) context_->on_async_event();  // events of this queue pair must not hit the next one
  return !failed;
}

// The device refused to bind or invalidate a key. True if the connection continues.
bool RdmaCarrier::on_key_refused(ReceiveWindow& window) {
  if (windows_.drop_refused(window)) {
    manage_windows();
    return true;
  }
  if (context_->device().binding() == Device::Binding::kUnsure &&
      windows_.go_on_without_binding(*context_, *domain_, lease_, settings_))
    return true;
  end_with(bind_failure(*context_, settings_, EOPNOTSUPP));
  return false;
}

}}}  // namespace conn::rdma
