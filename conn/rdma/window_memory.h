// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The receive windows of one connection: memory for the windows that its stream wants, the keys
// that let the peer write there, and the return of both. A key is bound and invalidated by requests
// on the send queue, which Sender posts.
//
// Holds at all times: the stream has only windows of this list that are neither free nor waiting to
// be invalidated; if no window waits for a key change or has one in flight, has_key_to_change() may
// say so without looking at them.

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

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
  /// Borrows `stream`.
  explicit WindowMemory(Stream& stream) noexcept : stream_(stream) {}

  struct Source {    ///< where memory comes from
    Domain* domain;  ///< null: no window can be had
    MemoryLimit limit;
    LoopStatistics& statistics;
    bool established;  ///< a refusal is counted
  };
  /// Takes back the windows that the stream has finished with, and provides those that it wants.
  /// Call it after every input to the stream. True: a key must be invalidated, so there is
  /// something to post.
  bool manage(const Source& from, ae::TimePoint now);
  /// Why no memory for a window could be had last.
  const Failure& failure() const noexcept { return failure_; }

  // --- keys --------------------------------------------------------------------------------------
  bool has_key_to_change() noexcept {
    if (key_to_change_) look_at_keys();
    return key_to_change_;
  }
  /// The windows whose key change is to be posted, as many as `out` can hold; returns their number.
  std::size_t waiting_for_key(std::span<ReceiveWindow*> out) noexcept {
    return key_to_change_ ? find_waiting(out) : 0;
  }
  bool key_under_way() const noexcept;
  /// The request with this number was to bind a key.
  bool is_bound_by(std::uint32_t sequence) const noexcept;
  enum class Changed : std::uint8_t {
    kNone,
    kFreed,  ///< a key was invalidated: there may be a place for another window
    kBound,  ///< the device has carried out a bind
  };
  /// All sends up to `sequence` are complete.
  Changed on_done(std::uint32_t sequence, Domain* domain) noexcept {
    return key_to_change_ ? complete(sequence, domain) : Changed::kNone;
  }
  /// The device refused to change this key. True: it was no longer needed, and is gone now.
  bool drop_refused(ReceiveWindow& window) noexcept;
  /// Makes the windows again with the key of their region. False: that is not possible.
  bool go_on_without_binding(DeviceContext& context, Domain& domain, CqLease& lease,
                             const Settings& settings) noexcept;

  // --- the end of the queue pair -----------------------------------------------------------------
  /// Before it is destroyed.
  void drop_keys() noexcept {
    for (ReceiveWindow& window : windows_) window.drop_key();
  }
  /// After it is destroyed. The stream must not use the windows any more.
  void drop() noexcept {
    for (ReceiveWindow& window : windows_) window.drop();
  }

 private:
  bool provide(const Source& from, ae::TimePoint now);
  void look_at_keys() noexcept;
  std::size_t find_waiting(std::span<ReceiveWindow*> out) noexcept;
  Changed complete(std::uint32_t sequence, Domain* domain) noexcept;

  Stream& stream_;
  // The windows of the stream, and two whose keys are being invalidated.
  std::array<ReceiveWindow, ReceiveWindowQueue::kSlots + 2> windows_;
  bool key_to_change_ = false;  // false: no window has a key to change, or a change in flight
  Failure failure_;
};

/// The error of a connection whose key could not be bound.
Failure bind_failure(const DeviceContext& context, const Settings& settings, int err);

}}}  // namespace conn::rdma
