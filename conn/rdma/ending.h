// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Class Ending, the end of one RDMA connection: the queue pair is stopped, the peer is notified
// with a disconnect, and the device must report its last completions before the queue pair may be
// destroyed. The steps, and what is true in each, are listed in conn/rdma/protocol/end_step.h. The
// connection sets the deadlines and passes in events; this class decides when nothing is left to
// wait for.
//
// Invariants: the step fits the connection's phase (fits()); from step kUnsent on the queue pair is
// stopped, except after a clean end on iWARP.

#include <chrono>

#include "ae/abi.h"
#include "ae/time.h"
#include "conn/rdma/link.h"
#include "conn/rdma/protocol/end_step.h"

namespace conn { inline namespace AECONN_ABI { namespace rdma {

/// Received bytes that are unread when the connection ends: kept so that the program can still read
/// them, or dropped.
enum class Unread : bool { kKeep, kDrop };

class Ending {
 public:
  /// Longest wait for the peer's answer to our disconnect after a failure.
  static constexpr ae::Duration kFailureTimeout = std::chrono::milliseconds(500);

  /// Stores a reference to `link`, which must outlive this object.
  explicit Ending(Link& link) noexcept : link_(link) {}
  Ending(const Ending&) = delete;
  Ending& operator=(const Ending&) = delete;

  EndStep at() const noexcept { return at_; }
  /// Returns the time at which phase kClosing (delivery of written bytes after close()) ends even
  /// if not all bytes are delivered.
  ae::TimePoint close_by() const noexcept { return close_by_; }
  void set_close_by(ae::TimePoint at) noexcept { close_by_ = at; }

  // --- the reason why the connection ends --------------------------------------------------------
  /// Records that the connection ends cleanly: the peer has received all bytes that the user wrote.
  void set_delivered() noexcept { delivered_ = true; }
  /// Records that the peer seems to be unreachable. stop() then queries the state of the device's
  /// port first, and sends no disconnect if the port is down.
  void set_unreachable() noexcept { unreachable_ = true; }
  /// iWARP: records that the device has ended the queue pair. Returns false if that was recorded
  /// before.
  [[nodiscard]] bool stream_over() noexcept;

  // --- phase kDisconnecting: the peer is notified of the end -------------------------------------
  /// Records that stop() must be called in a later iteration of the loop, because this iteration
  /// has no time left for it.
  void queue_stop() noexcept;
  /// Stops the queue pair (except after a clean end on iWARP). Sends the disconnect if rdma_cm
  /// knows that the connection is established. Returns true if no answer of the peer is expected:
  /// call finish().
  [[nodiscard]] bool stop() noexcept;
  /// Call when rdma_cm reports ESTABLISHED, before which no disconnect can be sent. Sends the
  /// disconnect if the queue pair is stopped. Returns true if no answer of the peer is expected:
  /// call finish().
  [[nodiscard]] bool on_known() noexcept;
  /// Call when the deadline for the peer's answer to our disconnect has passed: queries the state
  /// of the device's port, which may be down.
  void on_no_answer() noexcept;
  /// Used on iWARP, where only the peer's answer to our disconnect shows that the peer has received
  /// all bytes (a completion only means that the local TCP stream has accepted them). Returns true
  /// once this answer has arrived or will not arrive.
  bool delivery_settled() const noexcept;

  // --- phase kDead: nothing is expected from the peer any more -----------------------------------
  /// Enters phase kDead: nothing more is expected from the peer.
  void finish() noexcept;
  /// Stops the queue pair if it is not stopped yet. Returns true if the device still has
  /// completions to report: call wait() next. If the result is false, tear the connection down and
  /// then call gone().
  [[nodiscard]] bool has_reports_to_come() noexcept;
  void wait() noexcept { step(EndStep::kQuieting); }
  /// Returns true if wait() was called and the device has since reported the last completion of the
  /// queue pair.
  bool is_over() const noexcept { return at_ == EndStep::kQuieting && link_.quiet(); }
  void gone() noexcept { step(EndStep::kGone); }
  /// Ends the connection from any phase, because the loop ends: sends a disconnect if possible, and
  /// does not wait for the answer. `undelivered`: true if written bytes will be lost, so that the
  /// end must not look clean to the peer.
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
