// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Class LinkedCarrier, the base class of RdmaCarrier: a connection over RDMA and its parts. It
// handles what rdma_cm, the device and the loop report; RdmaCarrier handles the calls of
// ConnectionCore, the part of a connection that is common to all transports.
//
// Its parts:
//
//   Setup          tries addresses and connects (connecting side only; freed afterwards)
//   Link           the rdma_cm and verbs objects of the connection
//     Stream         the protocol of the byte stream
//     WindowMemory   receive windows and their keys
//     Sender         send buffer, chains of requests, completions
//     Path           addresses, device, route
//   Posting        when requests are posted, and what they wait for
//   Reader         read budget, views of received bytes, copies of unread bytes
//   Ending         the steps after the last byte, or after a failure
//   Deadline       the time-out of the present phase
//   PathRecovery   the loss of the network path, and a new path (with option resume only)
//     Session        what both ends store while there is no path
//
// The parts do not use this class: they return what must be done, and this class does it. Setup,
// Deadline and PathRecovery, which wait for events, call it through the interfaces SetupUser,
// DeadlineUser and PathRecoveryUser.

#include <memory>
#include <optional>

#include "ae/abi.h"
#include "conn/rdma/deadline.h"
#include "conn/rdma/ending.h"
#include "conn/rdma/link.h"
#include "conn/rdma/path_recovery.h"
#include "conn/rdma/posting.h"
#include "conn/rdma/reader.h"
#include "conn/rdma/setup.h"
#include "conn/spi/queued_carrier.h"

namespace conn { inline namespace AECONN_ABI { namespace rdma {

class LinkedCarrier;

/// The owner of an accepted connection, until the connection is handed over to the user.
class AcceptOwner {
 public:
  /// Called when `carrier` is established and ready to send and receive data.
  virtual void on_established(LinkedCarrier& carrier) noexcept = 0;
  /// Called when the connection has failed before it was handed over to the user. The
  /// implementation must close the connection.
  virtual void on_lost(LinkedCarrier& carrier) noexcept = 0;

 protected:
  virtual ~AcceptOwner() = default;
};

class LinkedCarrier : public QueuedCarrier,
                      protected LinkUser,
                      protected DeadlineUser,
                      protected SetupUser,
                      protected PathRecoveryUser {
 public:
  ~LinkedCarrier() override;
  /// Call when the listener has handed this connection over to the user, or is being destroyed:
  /// this object does not call the listener any more.
  void leave_listener() noexcept { listener_ = nullptr; }

 protected:
  LinkedCarrier(const ConnectionType& type, LoopState& state,
                std::shared_ptr<const Settings> settings, Role role, AcceptOwner* listener);

  // Overrides of LoopConnection: called by the loop.
  void post_due() noexcept override;
  void on_tick(ae::TimePoint now, ae::Duration late) noexcept override;
  ae::TimePoint next_tick() const noexcept override {
    if (lost()) return session()->next_at();
    return std::min(link_.stream.next_tick(), link_.sender.ask_at());
  }
  void on_memory() noexcept override;
  void reap() override;
  std::optional<ae::TimePoint> pace_at() const noexcept override { return posting_.pace_at(); }

  // Overrides of CmUser and QueuePairUser: called for events of rdma_cm and of the device, and for
  // completions.
  void on_cm_event(const CmEvent& event) override;
  void on_sends_done(std::uint32_t sequence) override;
  void on_immediate(std::uint32_t length) override;
  void on_message(std::span<const std::byte> bytes) override;
  void on_work_failed(ibv_wc_status status, bool was_send, std::uint32_t sequence) override;
  void on_event(const QueuePairEvent& event) override;
  void on_no_memory() noexcept override;  // overrides that of QueuePairUser and of DeadlineUser
  ReceiveQueue* receives() noexcept override { return link_.receives(); }

  // Overrides of DeadlineUser and SetupUser: called when the deadline has passed, and when the
  // set-up of an outgoing connection has ended.
  void on_deadline(Deadline::Of what) override;
  void on_set_up() override;
  void on_set_up_failed(Failure why) noexcept override;

  // Overrides of PathRecoveryUser, called by PathRecovery, which handles the loss of the network
  // path. (Further ones are below, with the end of the connection.)
  void on_progress() noexcept override { update_ready(); }
  void on_peer_closed_without_path(Failure missed) noexcept override;

  // --- while the connection is open (linked_carrier.cc) ------------------------------------------
  /// Call after every input to the byte stream (message of the peer, read by the user, periodic
  /// check): ends the connection if the stream has failed, provides receive windows that the stream
  /// wants, and schedules the posting of requests that are due.
  void after_input();
  /// Call when the user has read all bytes of a receive window (memory for the peer's data):
  /// provides another one if needed. Unread bytes of a lost network path were copied; this function
  /// also frees that copy once the user has read all of it.
  void on_window_read();
  /// Ends the user's view of received bytes (the result of peek()), and frees memory that was kept
  /// for it. Returns true if the user was waiting for more than one byte, so that the read handler
  /// may be due now.
  bool end_view() noexcept;
  /// Returns true until the peer has offered its first receive window, which it must do at once
  /// after the connection was established. On a new network path after a loss the peer may have no
  /// window to offer, because its program has not read yet or we have ended our stream; then the
  /// result is false.
  bool awaits_first_window() const noexcept {
    return !link_.stream.outbound().peer_windows().any() &&
           (session() == nullptr || session()->resumes() == 0);
  }

  // --- the network path and its loss (linked_carrier_end.cc) -------------------------------------
  /// Returns the session, the state by which the connection can continue over another network path;
  /// null: it cannot continue.
  Session* session() const noexcept {
    return recovery_ == nullptr ? nullptr : recovery_->session();
  }
  /// Returns true from the loss of the network path until there is a new one.
  bool lost() const noexcept { return recovery_ != nullptr && recovery_->lost(); }
  bool keeps_unsent() const noexcept { return recovery_ != nullptr && recovery_->keeps_unsent(); }
  /// Returns references to the objects that a PathRecovery of this connection needs.
  PathRecovery::Around around() noexcept;
  /// Ends only the network path if the connection can continue over another one; otherwise ends the
  /// connection with `failure`.
  void end_path(Failure failure) noexcept;

  // --- the end of the connection (linked_carrier_end.cc) -----------------------------------------
  /// Ends the connection with `failure`; later calls do nothing. With Unread::kKeep the user can
  /// still read the bytes that arrived before, and learns of the failure after the last of them.
  void end_with(Failure failure, Unread unread = Unread::kKeep) noexcept override;
  void begin_disconnect(ae::Duration time_limit) noexcept override;
  void begin_close() noexcept;
  void begin_abort() noexcept override;
  /// Call in phase kClosing when requests on the send queue have completed: disconnects once all
  /// written bytes are delivered.
  void continue_close() noexcept;
  void finish() noexcept override;
  void tear_down() noexcept;
  /// Ends the user's view of received bytes (the result of peek()) and the user's reservation of
  /// memory for sending.
  void drop_kept() noexcept;

  Link link_;
  Posting posting_{link_};
  Ending ending_{link_};
  Deadline deadline_;
  std::unique_ptr<Setup> setup_;  // finds an address and connects; null unless connecting
  Reader reader_;
  std::unique_ptr<PathRecovery> recovery_;  // null unless the option resume is set
  // The failure that ended the connection, if it must be reported only after the user has read the
  // unread bytes; otherwise empty.
  Failure pending_failure_;

 private:
  void peer_closed();
  void wait_for_stream_over();

  // The listener that owns this connection; null for an outgoing connection, and after the
  // connection was handed over to the user.
  AcceptOwner* listener_;
};

}}}  // namespace conn::rdma
