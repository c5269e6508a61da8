// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The end of one connection: the queue pair is stopped, the peer is notified with a disconnect, and
// the device must report its last completions before the queue pair may be destroyed. The steps,
// and what is true in each, are listed in conn/rdma/protocol/end_step.h. The connection sets the
// deadlines and passes events in; this class decides when there is nothing left to wait for.
//
// Invariants: the step fits the connection's phase (fits()); from step kUnsent on the queue pair is
// stopped, except after a clean end on iWARP.

#include <chrono>

#include "ae/abi.h"
#include "ae/time.h"
#include "conn/rdma/link.h"
#include "conn/rdma/protocol/end_step.h"

namespace conn { inline namespace AECONN_ABI { namespace rdma {

/// What happens to received bytes that are unread when the connection ends: kept so that the
/// program can still read them, or dropped.
enum class Unread : bool { kKeep, kDrop };

class Ending {
 public:
  /// How long we wait, after a failure, for the peer to answer our disconnect.
  static constexpr ae::Duration kFailureTimeout = std::chrono::milliseconds(500);

  /// Stores a reference to `link`, which must outlive this object.
  explicit Ending(Link& link) noexcept : link_(link) {}
  Ending(const Ending&) = delete;
  Ending& operator=(const Ending&) = delete;

  EndStep at() const noexcept { return at_; }
  /// Time at which phase kClosing ends, even if not all bytes are delivered.
  ae::TimePoint close_by() const noexcept { return close_by_; }
  void set_close_by(ae::TimePoint at) noexcept { close_by_ = at; }

  // --- facts about the reason for the end --------------------------------------------------------
  /// Records that the peer has received all bytes that the user wrote, without an error.
  void set_delivered() noexcept { delivered_ = true; }
  /// Records that the peer seems to be unreachable. stop() then first asks the device whether its
  /// port is up, and sends no disconnect if it is down.
  void set_unreachable() noexcept { unreachable_ = true; }
  /// iWARP: records that the device has ended the queue pair. Returns false if that was recorded
  /// before.
  [[nodiscard]] bool stream_over() noexcept;

  // --- phase kDisconnecting ----------------------------------------------------------------------
  /// Enters kDisconnecting without stopping the queue pair, because this iteration of the loop has
  /// no time left: stop() follows in a later iteration.
  void queue_stop() noexcept;
  /// Stops the queue pair and, if rdma_cm knows the connection already, sends the disconnect.
  /// Returns true if the peer will send no answer: call finish().
  [[nodiscard]] bool stop() noexcept;
  /// Call when rdma_cm reports ESTABLISHED: only now can a disconnect be sent. Sends it if the
  /// queue pair is stopped. Returns true if the peer will send no answer: call finish().
  [[nodiscard]] bool on_known() noexcept;
  /// Call when the deadline for the peer's answer to our disconnect has passed.
  void on_no_answer() noexcept;
  /// Returns true if nothing more can be learned about whether the peer received all bytes. It
  /// matters on iWARP, where a completion only means that the local stream has taken the bytes:
  /// only the end of the stream shows that they arrived. True once that end has come, or will not
  /// come.
  bool delivery_settled() const noexcept;

  // --- phase kDead -------------------------------------------------------------------------------
  /// Enters phase kDead: nothing more is expected of the peer.
  void finish() noexcept;
  /// Stops the queue pair if that has not been done yet. Returns true if the device still has
  /// completions to report: call wait() next. If false, tear the connection down and then call
  /// gone().
  [[nodiscard]] bool has_reports_to_come() noexcept;
  void wait() noexcept { step(EndStep::kQuieting); }
  /// Returns true if wait() was called and the device has since reported the last completion of the
  /// queue pair.
  bool is_over() const noexcept { return at_ == EndStep::kQuieting && link_.quiet(); }
  void gone() noexcept { step(EndStep::kGone); }
  /// Ends the connection from any phase because the loop ends: sends a disconnect if that is
  /// possible, and waits for no answer. `undelivered`: written bytes will be lost, so the end must
  /// not look clean.
  void abandon(bool undelivered) noexcept;

 private:
  void step(EndStep next) noexcept;
  bool disconnect() noexcept;

  Link& link_;
  ae::TimePoint close_by_{};
  EndStep at_ = EndStep::kNone;
  bool delivered_ = false, unreachable_ = false;
};

}}}  // namespace conn::rdma
