// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// How a connection with option resume loses its path, and goes on over another one. Session has
// what is kept meanwhile; this class takes the steps (docs/resume.md):
//
//   lose_path()                     the queue pair is stopped: nothing more is counted but what the
//                                   device still reports of it
//   go_on() -> leave_path()         the device has reported all; bytes are copied out of the path's
//                                   memory, and its objects are destroyed
//   dial_again()                    connecting end: a request for a new path, until one is answered
//   on_resume_request() -> accept_again()
//                                   accepting end: the peer's request
//   on_new_path() -> resend()       both ends: the bytes that the peer has not counted go first
//
// close() without a path (path_recovery_forget.cc):
//
//   close_later()    if bytes are left: waits for a new path, at most for option linger, and closes
//                    on it as usual
//   ask_to_forget()  connecting end, no bytes are left: its request is not for a path, but asks the
//                    peer to end the session, and says how many bytes the stream has
//   forget()         accepting end: does what the peer's close would have done over a path
//
// Invariant: while lost() is true, the phase is kLost, or that of an attempt to find a new path, or
// one in which the connection has ended.

#include <sys/uio.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "ae/abi.h"
#include "ae/time.h"
#include "conn/endpoint.h"
#include "conn/kit/address_choice.h"
#include "conn/rdma/deadline.h"
#include "conn/rdma/ending.h"
#include "conn/rdma/link.h"
#include "conn/rdma/posting.h"
#include "conn/rdma/reader.h"
#include "conn/rdma/session.h"
#include "conn/rdma/setup.h"
#include "conn/spi/carrier.h"

namespace conn { inline namespace AECONN_ABI { namespace rdma {

/// Interface of the connection whose path is recovered, as PathRecovery calls it.
class PathRecoveryUser {
 public:
  /// Called when a handler of the program may be due.
  virtual void on_progress() noexcept = 0;
  /// Ends the connection with `failure`; later calls do nothing.
  virtual void end_with(Failure failure, Unread unread = Unread::kKeep) noexcept = 0;
  /// Called when the peer has closed without a path, and every byte that it sent has arrived.
  /// `missed`: what the program is told after the last of them; empty: the peer has all of ours.
  virtual void on_peer_closed_without_path(Failure missed) noexcept = 0;
  // The steps of the end of the connection.
  virtual void begin_disconnect(ae::Duration time_limit) noexcept = 0;
  virtual void begin_abort() noexcept = 0;
  virtual void finish() noexcept = 0;

 protected:
  ~PathRecoveryUser() = default;
};

class PathRecovery final : public HelloExchange, private SessionTable::User {
 public:
  struct Around {  ///< objects that PathRecovery works with; it owns none of them
    Link& link;
    Deadline& deadline;
    Ending& ending;
    Posting& posting;
    Reader& reader;
    std::unique_ptr<Setup>& setup;  ///< the present attempt to connect; null: there is none
    const CarrierBase& carrier;     ///< the connection's carrier, which has its host
    AddressBook& book;
    SetupUser& setup_user;
    PathRecoveryUser& user;
  };
  /// Connecting side: the request for a connection to `to` asks for a session.
  PathRecovery(const Around& around, const Endpoint& to);
  /// Accepting side: call grant() next.
  explicit PathRecovery(const Around& around) noexcept;
  PathRecovery(const PathRecovery&) = delete;
  PathRecovery& operator=(const PathRecovery&) = delete;

  // --- the session -------------------------------------------------------------------------------
  /// What both ends have agreed on; null: nothing, so the connection ends with its path.
  Session* session() const noexcept { return session_.get(); }
  /// Returns true from the loss of the path until there is another one.
  bool lost() const noexcept { return session_ != nullptr && session_->lost(); }
  /// Accepting side: begins a session with the peer that asked for one, and returns the answer.
  /// `ours`: what our stream and path state. Throws VerbsError, Error or std::bad_alloc.
  PrivateData grant(const Hello& asked, Hello& ours);
  /// Forgets the session, because the connection ends.
  void end() noexcept;

  // Overrides of HelloExchange: what Setup sends and receives.
  void renew_stream() override;
  PrivateData request(Hello hello) override;
  std::optional<Hello> take_answer(std::span<const std::byte> data) override;

  // --- the loss of the path, and another one -----------------------------------------------------
  /// Stops the queue pair, and has reap() leave the path. Returns false if the connection cannot go
  /// on over another one: it was not handed to the program yet, or is being aborted. Adds the
  /// peer's address to `failure`.
  bool lose_path(Failure& failure) noexcept;
  /// Call instead of lose_path() while lost() is true. May be called from functions of the present
  /// attempt, which is therefore destroyed later.
  void on_attempt_failed(Failure why) noexcept;
  /// Call after reap() in phase kLost, and when a step of Session::next_at() is due.
  void go_on();
  /// Call in phase kResending: there is a new path. Returns false if memory is lacking; the
  /// connection must then end.
  [[nodiscard]] bool on_new_path();
  /// Phase kResending: moves the unsent bytes to the send buffer, then returns to the phase from
  /// before the loss.
  void resend();
  /// The end of a copy of unread bytes (Reader::exchange_copy()): it is kept while the program has
  /// a view of it.
  void keep_viewed(std::unique_ptr<std::byte[]> copy) noexcept;

  // --- what the program does without a path ------------------------------------------------------
  /// Returns true from the loss of the path until the bytes that were unsent then are in the send
  /// buffer of a new path. What the program writes meanwhile is kept behind them (write()).
  bool keeps_unsent() const noexcept {
    return session_ != nullptr && !link_.stage.ended() &&
           (session_->lost() || link_.stage.phase() == Phase::kResending);
  }
  ssize_t write(const iovec* vectors, int count);
  bool has_room() const noexcept;
  /// The close() of a connection for which keeps_unsent() is true. If bytes are left, the end
  /// follows them on a new path. If none are left, the connecting end may ask the peer to end the
  /// session.
  void close_later() noexcept;
  /// Returns true if the peer may be asked to end the session instead of for a new path.
  bool can_ask_to_forget() const noexcept;
  /// Call while the loop ends: it answers no more look-ups of names, so an attempt that waits for
  /// one is begun anew.
  void ask_without_loop() noexcept;

  // --- moving to another loop --------------------------------------------------------------------
  /// Leaves the path at once, waiting for the device's last reports, which takes microseconds, and
  /// then the loop. No view and no reservation may exist. Returns false if the connection cannot go
  /// on over another path.
  bool leave_loop();
  /// True while the connection moves from one loop to another: neither loop may be used.
  bool moving() const noexcept { return moving_; }
  /// Continues on `loop`, which the link uses already.
  void join_loop(ae::EventLoop& loop) noexcept;

 private:
  /// Interval at which an attempt to find a new path is looked at.
  static constexpr ae::Duration kAttemptTick = std::chrono::milliseconds(100);
  /// Most connections of a loop that may be without a path; the next one that loses its path ends.
  static constexpr std::uint64_t kMostLost = 1024;

  void on_resume_request(std::unique_ptr<RdmaPending> request,
                         const ResumeMessage& message) override;
  CarrierHost& host() const noexcept { return carrier_.host(); }
  LoopState& state() const noexcept { return link_.state(); }
  void leave_path();
  void begin_session(const Grant& grant, std::uint32_t peers_milliseconds);
  void dial_again();
  void accept_again(std::unique_ptr<RdmaPending> request);
  void give_up_attempt() noexcept;
  std::size_t room() const noexcept;
  bool asks_to_forget() const noexcept;
  void ask_to_forget(ResumeMessage& message) noexcept;
  void forget(RdmaPending& request, const ResumeMessage& asked);

  Link& link_;
  Deadline& deadline_;
  Ending& ending_;
  Posting& posting_;
  Reader& reader_;
  std::unique_ptr<Setup>& setup_;
  const CarrierBase& carrier_;
  AddressBook& book_;
  SetupUser& setup_user_;
  PathRecoveryUser& user_;
  std::unique_ptr<const Endpoint> target_;  // connecting side: the peer's URL; else null
  std::unique_ptr<Session> session_;
  bool moving_ = false;
};

}}}  // namespace conn::rdma
