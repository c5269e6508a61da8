// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// once() makes an object when it is first used. A static variable of a function would do the same,
// but the compiler guards its initialization by a lock: if another thread holds that lock while
// fork() copies the process, it stays locked in the child, which then waits for ever.

#include <atomic>
#include <memory>
#include <type_traits>

#include "ae/abi.h"

namespace ae { inline namespace AECONN_ABI {

/// Returns the object that `make`, a lambda without captures, returned in the first call from this
/// place in the source. The object is never destroyed, because other threads may use it while the
/// process exits. Thread-safe, and takes no lock: threads that call it at the same time may each
/// call `make`, and then all but one of the objects are destroyed at once, before any thread has
/// used them. Throws std::bad_alloc or what `make` throws; the next call then tries again.
template <class Make>
auto& once(Make make) {
  static_assert(std::is_empty_v<Make>, "each place in the source must have a type of its own");
  using Object = decltype(make());
  static constinit std::atomic<Object*> known{nullptr};
  Object* object = known.load(std::memory_order_acquire);
  if (object == nullptr) [[unlikely]] {
    std::unique_ptr<Object> made(new Object(make()));
    if (known.compare_exchange_strong(object, made.get(), std::memory_order_acq_rel))
      object = made.release();
  }
  return *object;
}

}}  // namespace ae
