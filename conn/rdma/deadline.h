// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The one time-out of a connection: what it is waited for depends on the phase.

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
    kAddress,     ///< an answer from the address being tried, or from the name service
    kAccept,      ///< the peer finishes the handshake and offers a window
    kLinger,      ///< what was written is delivered after close()
    kDisconnect,  ///< the peer answers a disconnect
    kStreamOver,  ///< iWARP: rdma_cm says why the queue pair ended
    kQuiet,       ///< the device's last reports of a stopped queue pair
  };

  Deadline(LoopState& state, DeadlineUser& user) noexcept : state_(&state), user_(user) {}
  Deadline(const Deadline&) = delete;
  Deadline& operator=(const Deadline&) = delete;

  /// Replaces the present one. False if there is no memory for a timer: there is none then.
  [[nodiscard]] bool set(ae::Duration delay, Of what) noexcept;
  /// `loop`: null after the end of the loop, with which its timers are gone.
  void clear(ae::EventLoop* loop) noexcept;

 private:
  ae::Duration on_timer(Of what, ae::TimePoint due);
  LoopState* state_;
  DeadlineUser& user_;
  ae::TimerId timer_ = 0;
};

class DeadlineUser {
 public:
  /// The deadline has passed, and what has arrived meanwhile was handled without setting another.
  virtual void on_deadline(Deadline::Of what) = 0;
  /// There was no memory to handle it.
  virtual void on_no_memory() noexcept = 0;

 protected:
  ~DeadlineUser() = default;
};

}}}  // namespace conn::rdma
