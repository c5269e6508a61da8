// SPDX-License-Identifier: BSD-3-Clause
#include "conn/rdma/window_memory.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <functional>
#include <new>

#include "conn/rdma/memory/domain.h"

namespace conn { inline namespace AECONN_ABI { namespace rdma {

bool WindowMemory::manage(const Source& from, ae::TimePoint now) {
  bool to_post = false;
  do {
    bool freed = false;
    while (const WindowBuffer old = stream_.inbound().take_discarded()) {
      if (static_cast<ReceiveWindow*>(old.owner)->retire())
        freed = true;
      else
        to_post = key_to_change_ = true;
    }
    if (freed) remove_free();
  } while (provide(from, now));
  return to_post;
}

// Provides one receive window if the stream wants one. Returns true if it has done so, because the
// stream may then want another one.
bool WindowMemory::provide(const Source& from, ae::TimePoint now) {
  if (from.domain == nullptr) return false;
  const std::uint32_t length = stream_.inbound().wanted_window();
  if (length == 0) return false;
  // No more receive windows are allowed now. A later call can provide one, after the key of a
  // window was invalidated.
  if (std::count_if(windows_.begin(), windows_.end(), std::not_fn(is_free)) >=
      std::ptrdiff_t{kMost})
    return false;
  try {
    open(from, length);
    return true;
  } catch (const VerbsError& error) {
    record(error.failure());
    if (from.established && is_memory_limit(error.failure())) ++from.statistics.memory_refusals;
    stream_.no_window(now);
  } catch (const std::exception& error) {
    record(out_of_memory());
    stream_.no_window(now);
  }
  return false;
}

// Creates a receive window of `length` bytes and provides it to the stream. Throws VerbsError or
// std::bad_alloc, and then changes nothing.
void WindowMemory::open(const Source& from, std::uint32_t length) {
  // Only the first receive window of a connection may use the last quarter of the memory limit,
  // because with one window the stream can continue.
  const bool first = std::all_of(windows_.begin(), windows_.end(), is_free);
  const auto free = std::find_if(windows_.begin(), windows_.end(), is_free);
  ReceiveWindow& window = free != windows_.end() ? *free : windows_.emplace_front();
  try {
    window.open(*from.domain, length, first ? from.limit : from.limit.but_a_quarter());
    stream_.inbound().provide_window(window.buffer());
  } catch (...) {
    if (!is_free(window)) window.drop();  // the window's key is not bound yet: no invalidation
    remove_free();
    throw;
  }
  key_to_change_ = true;
  ++from.statistics.windows;
}

Failure WindowMemory::failure() const {
  if (failure_ != nullptr) return *failure_;
  return failed_ ? out_of_memory() : Failure{};
}

void WindowMemory::record(const Failure& failure) noexcept {
  failed_ = true;
  failure_.reset();
  try {
    failure_ = std::make_unique<Failure>(failure);
  } catch (const std::bad_alloc&) {  // failure() then reports this lack of memory
  }
}

// --- binding and invalidating keys of windows ----------------------------------------------------

void WindowMemory::look_at_keys() noexcept {
  key_to_change_ = std::any_of(windows_.begin(), windows_.end(), [](const ReceiveWindow& window) {
    return window.waits_for_key() || window.key_under_way();
  });
}

std::size_t WindowMemory::find_waiting(std::span<ReceiveWindow*> out) noexcept {
  std::size_t found = 0;
  for (ReceiveWindow& window : windows_)
    if (window.waits_for_key() && found < out.size()) out[found++] = &window;
  return found;
}

bool WindowMemory::key_under_way() const noexcept {
  return std::any_of(windows_.begin(), windows_.end(),
                     [](const ReceiveWindow& window) { return window.key_under_way(); });
}

bool WindowMemory::is_bound_by(std::uint32_t sequence) const noexcept {
  return key_to_change_ &&
         std::any_of(windows_.begin(), windows_.end(),
                     [&](const ReceiveWindow& window) { return window.is_bound_by(sequence); });
}

WindowMemory::Changed WindowMemory::complete(std::uint32_t sequence, Domain* domain) noexcept {
  Changed changed = Changed::kNone;
  for (ReceiveWindow& window : windows_) {
    if (!window.key_under_way() || !window.completed(sequence, *domain)) continue;
    if (window.state() == ReceiveWindow::State::kUsable)
      changed = Changed::kBound;
    else if (changed == Changed::kNone)
      changed = Changed::kFreed;
  }
  remove_free();
  look_at_keys();
  return changed;
}

bool WindowMemory::drop_refused(ReceiveWindow& window) noexcept {
  if (window.state() != ReceiveWindow::State::kToInvalidate) return false;
  // Frees the memory window instead of invalidating the key by a request. This is slower, but has
  // the same effect.
  window.drop();
  remove_free();
  return true;
}

// As long as the device has bound no key, this connection is the only one in its protection domain
// (DeviceContext::domain()), and no receive window has been announced. So the window can be created
// again with the key of the memory region: no other connection's memory can be reached with that
// key.
bool WindowMemory::go_on_without_binding(DeviceContext& context, Domain& domain, CqLease& lease,
                                         const Settings& settings) noexcept {
  const auto bound = [](const ReceiveWindow& window) {
    return !is_free(window) && window.state() != ReceiveWindow::State::kToBind;
  };
  if (std::any_of(windows_.begin(), windows_.end(), bound)) return false;
  const auto only = std::find_if_not(windows_.begin(), windows_.end(), is_free);
  if (only == windows_.end()) return false;
  if (settings.isolation == Isolation::kWindow) {
    context.device().give_up_binding();
    return false;
  }
  const ReceiveQueue* shared = domain.shared_receives();
  try {
    ReceiveWindow& window = *only;
    const std::uint32_t length = window.length();
    window.drop();
    context.give_up_binding(domain);
    // No other queue pair uses this shared receive queue any more. So the entries of the completion
    // queue that are reserved for this queue pair must include those for the queue's receives.
    if (shared != nullptr) lease.enlarge(shared->depth());
    window.open(domain, length, settings.limit());
    stream_.inbound().replace_window(window.buffer());
    return true;
  } catch (const std::exception& error) {
    return false;
  }
}

Failure bind_failure(const DeviceContext& context, const Settings& settings, int err) {
  if (context.device().binding() == Device::Binding::kNo &&
      settings.isolation == Isolation::kWindow)
    return context.no_windows();
  return errno_failure(err, "binding a key to the queue pair");
}

Failure stopped_failure(const char* what, const DeviceContext& context) {
  return {std::make_error_code(std::errc::connection_reset),
          fmt::format("{}: {} has stopped the queue pair", what, context.name())};
}

}}}  // namespace conn::rdma
