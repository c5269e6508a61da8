// SPDX-License-Identifier: BSD-3-Clause
// The receive windows of a connection: memory for the windows that the stream wants, their keys,
// and the return of both.

#include <poll.h>

#include <algorithm>
#include <cerrno>

#include "conn/rdma/carrier.h"

namespace conn { inline namespace AECONN_ABI { namespace rdma {

void RdmaCarrier::manage_windows() {
  while (provide_window()) {
  }
  // The next tick may be earlier now: to detect that windows are quiet, or to retry one.
  if (in_wheel() && stream_.next_tick() < due()) state_->look_at(*this, stream_.next_tick());
}

// True: another may be wanted.
bool RdmaCarrier::provide_window() {
  while (const WindowBuffer old = stream_.take_discarded()) free_window(old.owner);
  if (domain_ == nullptr) return false;
  const std::uint32_t length = stream_.wanted_window();
  if (length == 0) return false;
  const auto is_free = [](const ReceiveWindow& window) {
    return window.state() == ReceiveWindow::State::kFree;
  };
  const auto window = std::find_if(windows_.begin(), windows_.end(), is_free);
  if (window == windows_.end()) return false;  // until a key is invalidated
  // Without another window the stream continues with what it has, so a quarter of the memory is
  // left for the first windows of new connections.
  const bool first = std::all_of(windows_.begin(), windows_.end(), is_free);
  const MemoryLimit limit = first ? settings_.limit() : settings_.limit().but_a_quarter();
  try {
    window->open(*domain_, length, limit);
    key_to_change_ = true;
    ++state_->statistics().windows;
    stream_.provide_window(window->buffer());
    return true;
  } catch (const VerbsError& error) {
    window_failure_ = error.failure();
    if (live_ && is_memory_limit(window_failure_)) ++state_->statistics().memory_refusals;
    stream_.no_window(state_->now());
  } catch (const std::exception& error) {
    window_failure_ = out_of_memory();
    stream_.no_window(state_->now());
  }
  return false;
}

void RdmaCarrier::free_window(void* owner) noexcept {
  auto& window = *static_cast<ReceiveWindow*>(owner);
  if (window.retire()) return;
  key_to_change_ = true;  // the key must be invalidated first
  state_->want_flush(*this);
}

void RdmaCarrier::look_at_keys() noexcept {
  key_to_change_ = std::any_of(windows_.begin(), windows_.end(), [](const ReceiveWindow& window) {
    return window.waits_for_key() || window.key_under_way();
  });
}

// All sends up to `sequence` are complete.
void RdmaCarrier::on_keys_changed(std::uint32_t sequence) {
  if (!key_to_change_) return;
  bool changed = false;
  for (ReceiveWindow& window : windows_) {
    if (!window.key_under_way() || !window.completed(sequence, *domain_)) continue;
    if (window.state() == ReceiveWindow::State::kUsable) context_->device().prove_binding();
    changed = true;
  }
  if (changed) manage_windows();  // there may be a place for another window now
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
  proving_ = device.binding() == Device::Binding::kUnsure && key_to_change_;
  const ae::TimePoint until = std::chrono::steady_clock::now() + kBindPatience;
  while (proving_ && device.binding() == Device::Binding::kUnsure) {
    context_->drain(*lease_.queue());
    if (!proving_ || device.binding() != Device::Binding::kUnsure) break;
    if (std::chrono::steady_clock::now() >= until) break;  // a later failure ends the connection
    (void)::poll(nullptr, 0, 1);
  }
  const bool failed = device.binding() == Device::Binding::kNo && sends_failed_;
  proving_ = false;
  if (failed) context_->on_async_event();  // events of this queue pair must not hit the next one
  return !failed;
}

// The device refused to bind or invalidate a key. True if the connection continues.
bool RdmaCarrier::on_key_refused(ReceiveWindow& window) {
  if (window.state() == ReceiveWindow::State::kToInvalidate) {
    window.drop();  // slow, but it removes the key as well
    manage_windows();
    return true;
  }
  if (context_->device().binding() == Device::Binding::kUnsure && go_on_without_binding())
    return true;
  end_with(bind_failure(EOPNOTSUPP));
  return false;
}

Failure RdmaCarrier::bind_failure(int err) const {
  if (context_->device().binding() == Device::Binding::kNo &&
      settings_.isolation == Isolation::kWindow)
    return context_->no_windows();
  return errno_failure(err, "binding a key to the queue pair");
}

// While no bind has worked, this connection is the only one in its domain (Context::domain()), and
// no window has been announced. So the windows are made again with the key of the region, which for
// that reason can reach this queue pair only.
bool RdmaCarrier::go_on_without_binding() {
  const auto bound = [](const ReceiveWindow& window) {
    return window.state() != ReceiveWindow::State::kFree &&
           window.state() != ReceiveWindow::State::kToBind;
  };
  if (std::any_of(windows_.begin(), windows_.end(), bound)) return false;
  if (settings_.isolation == Isolation::kWindow) {
    context_->device().give_up_binding();
    return false;
  }
  const ReceiveQueue* shared = domain_->shared_receives();
  try {
    std::uint32_t length = 0;
    for (ReceiveWindow& window : windows_)
      if (window.state() == ReceiveWindow::State::kToBind) {
        length = window.length();
        window.drop();
      }
    context_->give_up_binding(*domain_);
    // Our receives no longer count for other queue pairs, so our lease must include them.
    if (shared != nullptr) lease_.enlarge(shared->depth());
    windows_.front().open(*domain_, length, settings_.limit());
    stream_.replace_window(windows_.front().buffer());
    return true;
  } catch (const std::exception& error) {
    return false;
  }
}

}}}  // namespace conn::rdma
