// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The end of one connection: its queue pair is stopped, the peer is told, and the device has to
// become quiet before the queue pair may be destroyed. The steps and what holds in each are in
// conn/rdma/protocol/end_step.h. The connection sets the deadlines and reports the events; this
// class says when there is nothing left to wait for.
//
// Holds at all times: the step fits the phase; the queue pair is stopped from kUntold on, except
// after a clean end on iWARP.

#include "ae/abi.h"
#include "conn/rdma/link.h"
#include "conn/rdma/protocol/end_step.h"

namespace conn { inline namespace AECONN_ABI { namespace rdma {

class Ending {
 public:
  /// Borrows `link`.
  explicit Ending(Link& link) noexcept : link_(link) {}
  Ending(const Ending&) = delete;
  Ending& operator=(const Ending&) = delete;

  EndStep at() const noexcept { return at_; }

  // --- what is known of the reason ---------------------------------------------------------------
  /// Everything was delivered, without an error.
  void set_delivered() noexcept { delivered_ = true; }
  /// The peer seems to be unreachable: the port is asked before anything is sent to it.
  void set_unreachable() noexcept { unreachable_ = true; }
  /// iWARP: the device has ended the queue pair. False: that was known.
  [[nodiscard]] bool stream_over() noexcept;

  // --- disconnecting -----------------------------------------------------------------------------
  // True: nothing will be answered, so finish() is due.
  /// Enters kDisconnecting. Leaves the stop to a later iteration, for want of time, or does it now.
  void queue_stop() noexcept;
  [[nodiscard]] bool stop() noexcept;
  /// rdma_cm knows the connection now.
  [[nodiscard]] bool on_known() noexcept;
  /// The peer did not answer in time.
  void on_no_answer() noexcept;
  /// On iWARP a completion only means that the stream has taken the bytes, and only its end shows
  /// that they arrived: that end has come, or is not to be expected.
  bool delivery_settled() const noexcept;

  // --- dead --------------------------------------------------------------------------------------
  /// Enters kDead.
  void finish() noexcept;
  /// Stops the queue pair, if that is still to be done. True: the device's last reports must be
  /// waited for; the next step is wait() or gone().
  [[nodiscard]] bool has_reports_to_come() noexcept;
  void wait() noexcept { step(EndStep::kQuieting); }
  /// It waits, and the last report has come.
  bool is_over() const noexcept { return at_ == EndStep::kQuieting && link_.quiet(); }
  void gone() noexcept { step(EndStep::kGone); }
  /// The end of the loop, from any phase: best effort, and no answer is awaited. `undelivered`:
  /// bytes are lost by it.
  void abandon(bool undelivered) noexcept;

 private:
  void step(EndStep next) noexcept;
  bool disconnect() noexcept;

  Link& link_;
  EndStep at_ = EndStep::kNone;
  bool delivered_ = false, unreachable_ = false;
};

}}}  // namespace conn::rdma
