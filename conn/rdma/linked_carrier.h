// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// A carrier over a Link: what rdma_cm, the device and the loop report arrives here, changes the
// link and its parts, and at last ends the connection. What the core asks of a carrier is in the
// class derived from this one, RdmaCarrier.
//
//   Setup          finds an address and makes the link (connecting side only; freed afterwards)
//   Link           what rdma_cm and the device have of the connection
//     Stream         the protocol
//     WindowMemory   receive windows and their keys
//     Sender         staged bytes, chains of requests, completions
//     Path           addresses, device, route
//   Reader         read budget, and what is looked at in place
//   Ending         the steps after the last byte, or after a failure
//   Deadline       the time-out of the present phase
//
// The parts know nothing of this class. They return what is to be done, and it is done here; Setup
// and Deadline, which wait for something, report through SetupUser and DeadlineUser.

#include <array>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "ae/abi.h"
#include "conn/rdma/deadline.h"
#include "conn/rdma/ending.h"
#include "conn/rdma/link.h"
#include "conn/rdma/reader.h"
#include "conn/rdma/session.h"
#include "conn/rdma/setup.h"
#include "conn/spi/queued_carrier.h"

namespace conn { inline namespace AECONN_ABI { namespace rdma {

class LinkedCarrier;

/// Owns an accepted connection until it is handed over to the user.
class AcceptOwner {
 public:
  /// Called when `carrier` is established and ready to send and receive data.
  virtual void on_established(LinkedCarrier& carrier) noexcept = 0;
  /// Called when the connection failed before it was handed over to the user. The implementation
  /// closes the connection.
  virtual void on_lost(LinkedCarrier& carrier) noexcept = 0;

 protected:
  virtual ~AcceptOwner() = default;
};

class LinkedCarrier : public QueuedCarrier,
                      protected LoopConnection,
                      protected QueuePairUser,
                      protected CmUser,
                      protected DeadlineUser,
                      protected SetupUser,
                      protected SessionTable::User {
 public:
  ~LinkedCarrier() override;
  /// Call when the listener has handed this connection over, or is being destroyed: from now on
  /// this carrier does not call the listener.
  void leave_listener() noexcept { listener_ = nullptr; }

 protected:
  /// How long we wait, after a failure, for the peer to answer our disconnect.
  static constexpr ae::Duration kFailurePatience = std::chrono::milliseconds(500);
  /// Most connections of a loop that may be without a path; the next one that loses its path ends.
  static constexpr std::uint64_t kMostLost = 1024;
  /// Interval at which an attempt to find a new path is looked at.
  static constexpr ae::Duration kAttemptTick = std::chrono::milliseconds(100);

  LinkedCarrier(const ConnectionType& type, LoopState& state,
                std::shared_ptr<const Settings> settings, Role role, AcceptOwner* listener);

  // Overrides of LoopConnection: called by the loop.
  void post_due() noexcept override;
  void on_tick(ae::TimePoint now, ae::Duration late) noexcept override;
  ae::TimePoint next_tick() const noexcept override {
    if (session_ != nullptr && session_->lost()) return session_->next_at();
    return std::min(link_.stream.next_tick(), link_.sender.ask_at());
  }
  void on_memory() noexcept override;
  void reap() override;
  std::optional<ae::TimePoint> pace_at() const noexcept override { return pace_.at; }

  // Overrides of CmUser and QueuePairUser: called for events of rdma_cm and of the device, and for
  // completions.
  void on_cm_event(const CmEvent& event) override;
  void on_sends_done(std::uint32_t sequence) override;
  void on_immediate(std::uint32_t length) override;
  void on_message(std::span<const std::byte> bytes) override;
  void on_first_message() noexcept;
  void on_work_failed(ibv_wc_status status, bool was_send, std::uint32_t sequence) override;
  void on_device_event(const std::string& what) override;
  void on_no_memory() noexcept override;  // overrides DeadlineUser::on_no_memory() as well
  void on_communication_established() final;
  void on_refusal() override;
  void on_last_receive() override;
  void on_port_down(int port, ae::Duration since) override;
  void on_address_change(const std::vector<SocketAddress>& present) override;
  ReceiveQueue* receives() noexcept override { return link_.receives(); }

  // Overrides of DeadlineUser and SetupUser: called when the deadline has passed, and when the
  // set-up of an outgoing connection has ended.
  void on_deadline(Deadline::Of what) override;
  void on_set_up() override;
  void on_set_up_failed(Failure why) noexcept override;
  Request request(Hello hello) override;
  std::optional<Hello> take_answer(std::span<const std::byte> data) override;
  void renew_stream() override;

  // --- while the connection is open (linked_carrier.cc) ------------------------------------------
  /// Does what the new state of the stream requires: ends the connection if the stream has failed,
  /// provides windows, queues a flush. Call after every input to the stream.
  void after_input();
  /// Call instead of after_input() when the user has read a window to its end.
  void on_window_read();
  /// Ends the user's view of received bytes, and frees what was kept for it. Returns what
  /// Reader::end_view() returns.
  bool end_view() noexcept;
  /// Call if there is no memory to send `size` bytes from. Arranges that the loop calls on_memory()
  /// once memory may be available again.
  void wait_for_memory(std::size_t size);
  bool has_undelivered() const noexcept;
  /// Returns true until the peer has offered a window, which it must do at once on its first path.
  /// On a later one it may have none to offer: its reader is behind, or we have ended our stream.
  bool awaits_first_window() const noexcept {
    return !link_.stream.outbound().peer_windows().any() &&
           (session_ == nullptr || session_->resumes() == 0);
  }
  /// Returns true if the end of our stream is a message of its own, which must be delivered as
  /// bytes are; false towards a peer that knows only the end of the connection.
  bool finishes() const noexcept {
    return link_.stream.peer().tells_end() && !link_.stream.outbound().end().aborted();
  }

  // --- set-up (linked_carrier.cc) ----------------------------------------------------------------
  /// Begins to connect to `to`; at time `until` that is given up. Address number `first` is tried
  /// first.
  void set_up(const Endpoint& to, ae::TimePoint until, std::size_t first = 0);
  /// How an accepting end answers a request.
  struct Answer {
    std::optional<Hello> asked;  ///< what the peer states; no value: it sent no hello
    /// Returns the private data of the answer; `ours` is what our stream and path state.
    std::function<Request(Hello& ours)> data;
  };
  /// Creates the queue pair for the rdma_cm id of a connection request, and accepts. Throws
  /// VerbsError.
  void accept_path(const Answer& answer);
  Request answer_hello(const std::optional<Hello>& asked, Hello& ours);

  // --- the loss of the path, and another one (linked_carrier_resume.cc) --------------------------
  /// Ends the connection with `failure`, or leaves only its path if it can go on over another.
  void end_path(Failure failure) noexcept;
  /// Returns true from the loss of the path until the bytes that were unsent then are in the send
  /// buffer of a new path. What the program writes meanwhile is kept behind them (write_unsent()).
  bool keeps_unsent() const noexcept {
    return session_ != nullptr && !link_.stage.ended() &&
           (session_->lost() || link_.stage.phase() == Phase::kResending);
  }
  ssize_t write_unsent(const iovec* vectors, int count);
  bool has_room_for_unsent() const noexcept;
  /// The close() of a connection for which keeps_unsent() is true. If bytes are left, the end
  /// follows them on a new path. If none are left, the connecting end may ask the peer to end the
  /// session.
  void close_later() noexcept;
  /// Returns true if the peer may be asked to end the session instead of for a new path.
  bool can_ask_to_forget() const noexcept;
  /// Call while the loop ends: it answers no more look-ups of names, so an attempt that waits for
  /// one is begun anew.
  void ask_without_loop() noexcept;
  /// Call after reap() in phase kLost, and when a step of Session::next_at() is due.
  void go_on_without_path();
  /// Phase kResending: moves the unsent bytes to the send buffer, then returns to the phase from
  /// before the loss.
  void resend();
  /// Leaves the path at once, waiting for the device's last reports, which takes microseconds.
  /// Returns false if the connection cannot go on over another path.
  bool leave_path_now();
  /// Forgets the session, because the connection ends.
  void end_session() noexcept;

  // --- the end of the connection (linked_carrier_end.cc) -----------------------------------------
  // What happens to received bytes that are unread when the connection ends: kept so that the user
  // can still read them, or dropped.
  enum class Unread : bool { kKeep, kDrop };
  /// Ends the connection with `failure`; later calls do nothing. With Unread::kKeep the user can
  /// still read the bytes that arrived before, and learns of the failure after the last of them.
  void end_with(Failure failure, Unread unread = Unread::kKeep) noexcept;
  void begin_disconnect(ae::Duration patience) noexcept;
  void begin_close() noexcept;
  void begin_abort() noexcept;
  /// Disconnects, in phase kClosing, once all written bytes are delivered. Call when requests on
  /// the send queue have completed.
  void continue_close() noexcept;
  void finish() noexcept;
  void tear_down() noexcept;
  /// Ends the user's views of received bytes and reservations of memory to send from.
  void drop_kept() noexcept;

  // When to try again to post due requests even if no event occurs, and the timer for that.
  struct Pace {
    std::optional<ae::TimePoint> at;
    ae::TimerId timer = 0;
    void clear(ae::EventLoop* loop) noexcept;
  };

  Link link_;
  Ending ending_;
  Deadline deadline_;
  std::unique_ptr<Setup> setup_;  // finds an address and connects; null unless connecting
  // What lets the connection go on over another path; null if it cannot. A connecting end that asks
  // for a session keeps the peer's URL, target_, from the beginning.
  std::unique_ptr<Session> session_;
  std::unique_ptr<Endpoint> target_;
  Reader reader_;
  Pace pace_;
  // Time at which phase kClosing ends, even if not all bytes are delivered.
  ae::TimePoint close_deadline_{};
  // The failure that ended the connection but is reported only once the user has read the unread
  // bytes; empty if no failure is pending.
  Failure pending_failure_;
  // True while drain() waits at the end of the loop: completions are then requested that prove that
  // all bytes are delivered.
  bool delivering_ = false;
  // StraightPath::on when this object was created.
  const bool may_go_straight_;
  // iWARP, accepting side: true until the connecting side has sent the first message, as it must.
  bool waits_for_first_message_ = false;
  // may_go_straight_ && !waits_for_first_message_
  bool straight_ = may_go_straight_;
  // True once the program was told that the peer has ended its stream.
  bool told_of_end_ = false;
  // True while the connection moves from one loop to another: neither loop may be used.
  bool moving_ = false;
  // True once read() has returned the end of the peer's stream.
  bool read_ended_ = false;

 private:
  void on_resume_request(std::unique_ptr<RdmaPending> request,
                         const ResumeMessage& message) override;
  bool lose_path(Failure& failure) noexcept;
  void leave_path();
  void keep_left_over(std::unique_ptr<std::byte[]> unread);
  void name_peer(Failure& failure) const noexcept;
  void accept_again(std::unique_ptr<RdmaPending> request);
  bool asks_to_forget() const noexcept;
  /// Turns the request for a path into one to end the session, if the connection is closed and has
  /// no bytes left.
  void ask_to_forget(ResumeMessage& message) noexcept;
  /// Ends the connection as its peer's request asks.
  void forget(RdmaPending& request, const ResumeMessage& asked);
  void dial_again();
  void give_up_attempt() noexcept;
  void on_attempt_failed(Failure why) noexcept;
  std::size_t room_for_unsent() const noexcept;
  bool post_straight() noexcept;
  bool post_chain();
  bool secure_memory() noexcept;
  void on_memory_back() noexcept;
  /// Reports to the program that the device has read those pieces of its memory that were sent
  /// without a copy.
  void tell_references() noexcept;
  void peer_closed();

  // The listener that owns this connection; null if the connection was handed over to the user, or
  // if this side connected.
  AcceptOwner* listener_;
  // Copy of the unread bytes, made when the receive windows were freed at the end of the
  // connection; null if there is no such copy.
  std::unique_ptr<std::byte[]> left_over_;
};

}}}  // namespace conn::rdma
