// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Class Deadline: the only timer of an RDMA connection, which limits the time that it waits for an
// event. Which event that is depends on the phase of the connection (Deadline::Of).

#include <cstdint>

#include "ae/abi.h"
#include "ae/event_loop.h"
#include "ae/time.h"
#include "conn/rdma/loop/loop_state.h"

namespace conn { inline namespace AECONN_ABI { namespace rdma {

class DeadlineUser;

class Deadline {
 public:
  enum class Of : std::uint8_t {
    kAddress,  ///< waiting for an answer of the address that is being tried, or of the name service
    /// Waiting for the peer to finish the handshake and to offer its first receive window (memory
    /// for our data).
    kAccept,
    /// After close(): waiting until all bytes that the user wrote are delivered to the peer.
    kLinger,
    kDisconnect,  ///< waiting for the peer's answer to the disconnect that we sent
    kStreamOver,  ///< iWARP: waiting for rdma_cm to report why the queue pair ended
    /// Waiting for the device's last completions of the stopped queue pair.
    kQuiet,
  };

  Deadline(LoopState& state, DeadlineUser& user) noexcept : state_(&state), user_(user) {}
  Deadline(const Deadline&) = delete;
  Deadline& operator=(const Deadline&) = delete;

  /// Makes this object use the timers of another event loop. No deadline may be set at that time.
  void move_to(LoopState& state) noexcept { state_ = &state; }

  /// Sets the deadline to `delay` from now, in place of an earlier one. Returns false if there is
  /// no memory for a timer; then no deadline is set.
  [[nodiscard]] bool set(ae::Duration delay, Of what) noexcept;
  /// Cancels the deadline, if one is set. `loop`: the event loop that has the timer; null if the
  /// loop, and thus its timer, was destroyed.
  void clear(ae::EventLoop* loop) noexcept;

 private:
  ae::Duration on_timer(Of what, ae::TimePoint due);
  LoopState* state_;
  DeadlineUser& user_;
  ae::TimerId timer_ = 0;
};

/// The object that is called when a Deadline has expired.
class DeadlineUser {
 public:
  /// Called when the deadline for the event `what` has passed. Before this call, events that had
  /// arrived were processed as far as time allowed, and none of them has set a new deadline.
  virtual void on_deadline(Deadline::Of what) = 0;
  /// Called if there was not enough memory to handle an expired deadline.
  virtual void on_no_memory() noexcept = 0;

 protected:
  ~DeadlineUser() = default;
};

}}}  // namespace conn::rdma
