// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The memory of the receive windows of one connection, and the keys (rkeys) with which the peer may
// write into it. Provides windows that the stream wants, and frees those that it no longer uses. A
// key is bound and invalidated by requests on the send queue, which Sender posts.
//
// Invariants: the stream uses only windows of this object, and none that is free or whose key must
// be invalidated. A free window is kept only if it has a key. key_to_change_ is true if a key
// change is due or in flight; it may be true also if there is none.

#include <cstddef>
#include <cstdint>
#include <forward_list>
#include <memory>
#include <span>
#include <utility>

#include "ae/abi.h"
#include "ae/time.h"
#include "conn/rdma/config/settings.h"
#include "conn/rdma/loop/device_context.h"
#include "conn/rdma/loop/loop_state.h"
#include "conn/rdma/memory/receive_window.h"
#include "conn/rdma/protocol/stream.h"

namespace conn { inline namespace AECONN_ABI { namespace rdma {

class WindowMemory {
 public:
  /// Stores a reference to `stream`, which must outlive this object.
  explicit WindowMemory(Stream& stream) noexcept : stream_(stream) {}

  /// The source of memory for receive windows, and the statistics in which its use is counted.
  struct Source {
    /// Protection domain from which the memory is taken; null: no receive window can be created.
    Domain* domain;
    MemoryLimit limit;
    LoopStatistics& statistics;
    /// True if the connection is established: manage() then counts a lack of memory in
    /// `statistics`. Before, Link::make() counts it.
    bool established;
  };
  /// Frees the receive windows that the stream no longer uses, and provides those that it wants.
  /// Call it after every input to the stream. Returns true if a request must be posted to
  /// invalidate a key.
  bool manage(const Source& from, ae::TimePoint now);
  /// Returns the last failure to get memory for a receive window; empty if there was none.
  Failure failure() const;

  // --- binding and invalidating keys of windows --------------------------------------------------
  /// A cheap test: if it returns false, no key change (bind or invalidation) is due or in flight.
  bool may_have_key_to_change() const noexcept { return key_to_change_; }
  bool has_key_to_change() noexcept {
    if (key_to_change_) look_at_keys();
    return key_to_change_;
  }
  /// Stores in `out` the receive windows for which a request must be posted to bind or invalidate
  /// the key, as many as fit. Returns their number.
  std::size_t waiting_for_key(std::span<ReceiveWindow*> out) noexcept {
    return key_to_change_ ? find_waiting(out) : 0;
  }
  bool key_under_way() const noexcept;
  /// Returns true if the request with this sequence number is in flight and binds the key of a
  /// receive window.
  bool is_bound_by(std::uint32_t sequence) const noexcept;
  enum class Changed : std::uint8_t {
    kNone,
    /// The device has invalidated the key of a receive window: another one may be created in its
    /// place.
    kFreed,
    kBound,  ///< the device has bound the key of a receive window to the queue pair
  };
  /// Records that the requests on the send queue up to number `sequence` are complete. Returns what
  /// they did to keys of receive windows; kBound if they have bound one and invalidated another.
  Changed on_done(std::uint32_t sequence, Domain* domain) noexcept {
    return key_to_change_ ? complete(sequence, domain) : Changed::kNone;
  }
  /// Call when the device has refused to bind or invalidate the key of `window`. Refused
  /// invalidation: frees the window with its key and returns true; `window` must not be used
  /// afterwards. Refused bind: returns false.
  bool drop_refused(ReceiveWindow& window) noexcept;
  /// For a device that turns out to be unable to bind keys: creates the only receive window again,
  /// with the key of its memory region. Returns false if that is not possible.
  bool go_on_without_binding(DeviceContext& context, Domain& domain, CqLease& lease,
                             const Settings& settings) noexcept;

  // --- end of the queue pair ---------------------------------------------------------------------
  /// Frees the keys of all receive windows, so that the peer can no longer write into them. Call it
  /// before the queue pair is destroyed.
  void drop_keys() noexcept {
    for (ReceiveWindow& window : windows_) window.drop_key();
  }
  /// Frees the memory of all receive windows. Call it after the queue pair was destroyed. The
  /// stream must not use the windows afterwards.
  void drop() noexcept { drop(windows_); }
  using Windows = std::forward_list<ReceiveWindow>;
  static void drop(Windows& windows) noexcept {
    for (ReceiveWindow& window : windows) window.drop();
    windows.clear();
  }
  /// Returns all receive windows and forgets them, because their memory is still in use. Call it
  /// after drop_keys().
  Windows take() noexcept { return std::exchange(windows_, {}); }

 private:
  // Greatest number of receive windows: those that the stream uses, and two whose keys are being
  // invalidated.
  static constexpr std::size_t kMost = ReceiveWindowQueue::kSlots + 2;

  bool provide(const Source& from, ae::TimePoint now);
  void open(const Source& from, std::uint32_t length);
  static bool is_free(const ReceiveWindow& window) noexcept {
    return window.state() == ReceiveWindow::State::kFree;
  }
  // Removes the receive windows that are free, except those that have a key for their next use.
  void remove_free() noexcept {
    windows_.remove_if(
        [](const ReceiveWindow& window) { return is_free(window) && !window.has_key(); });
  }
  void record(const Failure& failure) noexcept;
  void look_at_keys() noexcept;
  std::size_t find_waiting(std::span<ReceiveWindow*> out) noexcept;
  Changed complete(std::uint32_t sequence, Domain* domain) noexcept;

  Stream& stream_;
  // The receive windows, at most kMost; usually one.
  Windows windows_;
  // True if a bind or an invalidation of a receive window's key may be due or in flight.
  bool key_to_change_ = false;
  // True if there was once no memory for a receive window. failure_ may still be null, if there was
  // no memory to store the reason either.
  bool failed_ = false;
  std::unique_ptr<Failure> failure_;
};

/// Returns the failure of a connection for which the key of a receive window could not be bound.
/// `err`: the errno value of the bind.
Failure bind_failure(const DeviceContext& context, const Settings& settings, int err);
/// Returns the failure of an operation that the device refused because it has stopped the queue
/// pair. `what`: name of the operation.
Failure stopped_failure(const char* what, const DeviceContext& context);

}}}  // namespace conn::rdma
