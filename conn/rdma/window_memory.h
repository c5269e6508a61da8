// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The receive windows of one connection: their memory, the keys that let the peer write into it,
// and their return when the stream no longer uses them. A key is bound and invalidated by requests
// on the send queue, which Sender posts.
//
// Invariants: the stream uses only windows of this object, and none that is free or whose key is to
// be invalidated; a free window is kept only if it has a key. If no window waits for a key change
// and none is in flight, key_to_change_ may be false, and has_key_to_change() then does not look at
// the windows.

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

  /// Where the memory for receive windows comes from, and where its use is counted.
  struct Source {
    /// Protection domain from which the memory is taken; null: no window can be created.
    Domain* domain;
    MemoryLimit limit;
    LoopStatistics& statistics;
    /// True once the connection is established: manage() then counts a lack of memory in
    /// `statistics`. Before that, Link::make() counts it.
    bool established;
  };
  /// Takes back the windows that the stream no longer uses, and provides those that it wants. Call
  /// it after every input to the stream. Returns true if a key must be invalidated, so that a
  /// request must be posted.
  bool manage(const Source& from, ae::TimePoint now);
  /// Returns the last failure to get memory for a receive window; an empty Failure if there was
  /// none.
  Failure failure() const;

  // --- keys of the windows -----------------------------------------------------------------------
  /// Returns false only if has_key_to_change() would.
  bool may_have_key_to_change() const noexcept { return key_to_change_; }
  bool has_key_to_change() noexcept {
    if (key_to_change_) look_at_keys();
    return key_to_change_;
  }
  /// Fills `out` with the windows whose key change is to be posted, as many as fit; returns their
  /// number.
  std::size_t waiting_for_key(std::span<ReceiveWindow*> out) noexcept {
    return key_to_change_ ? find_waiting(out) : 0;
  }
  bool key_under_way() const noexcept;
  /// Returns true if the request with this sequence number was posted to bind the key of a window.
  bool is_bound_by(std::uint32_t sequence) const noexcept;
  enum class Changed : std::uint8_t {
    kNone,
    /// The device has invalidated a window's key: another window may be created in its place.
    kFreed,
    kBound,  ///< the device has bound the key of a window to the queue pair
  };
  /// Records that the requests on the send queue up to number `sequence` are complete. Returns
  /// whether a window key was bound or invalidated by them.
  Changed on_done(std::uint32_t sequence, Domain* domain) noexcept {
    return key_to_change_ ? complete(sequence, domain) : Changed::kNone;
  }
  /// Call when the device refused to change the key of `window`. Returns true if the refused change
  /// was an invalidation: the window is then freed, and its key with it, and `window` must not be
  /// used any more. Returns false for a bind.
  bool drop_refused(ReceiveWindow& window) noexcept;
  /// Creates the windows again with the key of their memory region, for a device that cannot bind
  /// keys. Returns false if that is not possible.
  bool go_on_without_binding(DeviceContext& context, Domain& domain, CqLease& lease,
                             const Settings& settings) noexcept;

  // --- end of the queue pair ---------------------------------------------------------------------
  /// Drops the keys of all windows, so that the peer can no longer write into them. Call before the
  /// queue pair is destroyed.
  void drop_keys() noexcept {
    for (ReceiveWindow& window : windows_) window.drop_key();
  }
  /// Frees the memory of all windows. Call after the queue pair is destroyed; the stream must not
  /// use the windows afterwards.
  void drop() noexcept { drop(windows_); }
  using Windows = std::forward_list<ReceiveWindow>;
  static void drop(Windows& windows) noexcept {
    for (ReceiveWindow& window : windows) window.drop();
    windows.clear();
  }
  /// Hands over the windows, whose memory is still in use; they have no keys any more.
  Windows take() noexcept { return std::exchange(windows_, {}); }

 private:
  // Most windows: those that the stream uses, and two whose keys are being invalidated.
  static constexpr std::size_t kMost = ReceiveWindowQueue::kSlots + 2;

  bool provide(const Source& from, ae::TimePoint now);
  void open(const Source& from, std::uint32_t length);
  static bool is_free(const ReceiveWindow& window) noexcept {
    return window.state() == ReceiveWindow::State::kFree;
  }
  // Removes the free windows, except those that keep a key for their next use.
  void remove_free() noexcept {
    windows_.remove_if(
        [](const ReceiveWindow& window) { return is_free(window) && !window.has_key(); });
  }
  void record(const Failure& failure) noexcept;
  void look_at_keys() noexcept;
  std::size_t find_waiting(std::span<ReceiveWindow*> out) noexcept;
  Changed complete(std::uint32_t sequence, Domain* domain) noexcept;

  Stream& stream_;
  // The receive windows, at most kMost. Most connections have one.
  Windows windows_;
  // False: no bind or invalidation of a window's key is due or in flight. True: there may be one.
  bool key_to_change_ = false;
  // True if there was a failure; failure_ is null nevertheless if there was no memory to keep it.
  bool failed_ = false;
  std::unique_ptr<Failure> failure_;
};

/// Returns the failure to report for a connection for which the key of a window could not be bound.
/// `err`: the errno of the bind.
Failure bind_failure(const DeviceContext& context, const Settings& settings, int err);
/// Returns the failure of an operation, described by `what`, that was refused because the device
/// has stopped the queue pair.
Failure stopped_failure(const char* what, const DeviceContext& context);

}}}  // namespace conn::rdma
