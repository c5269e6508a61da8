// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The steps by which a connection with the option resume loses its network path and continues over
// another one (docs/resume.md). Session stores what both ends need meanwhile. The functions, in
// order:
//
//   lose_path()                     stops the queue pair; only completions that the device still
//                                   reports are counted after that
//   go_on() -> leave_path()         when the device has reported all: copies bytes out of the
//                                   memory of the path, and destroys its objects
//   dial_again()                    connecting side: requests a new path, until a request succeeds
//   on_resume_request() -> accept_again()
//                                   accepting side: answers the peer's request. (A request that
//                                   comes before ESTABLISHED shows that the path was set up.)
//   on_new_path() -> resend()       both sides: sends the bytes that the peer has not received,
//                                   before all others
//
// close() without a path (path_recovery_forget.cc):
//
//   close_later()    if unsent bytes are left: waits for a new path, at most for the time of the
//                    option linger, and closes there
//   ask_to_forget()  connecting side, if no bytes are left: the request asks the peer to end the
//                    session, not for a path, and states how many bytes our stream has
//   forget()         accepting side: ends the session at such a request
//
// Invariant: while lost() is true, the phase is kLost, a phase of an attempt to find a new path, or
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

/// Interface through which PathRecovery calls the connection.
class PathRecoveryUser {
 public:
  /// Called when a handler of the program may be due.
  virtual void on_progress() noexcept = 0;
  /// Ends the connection with `failure`; later calls do nothing.
  virtual void end_with(Failure failure, Unread unread = Unread::kKeep) noexcept = 0;
  /// Called when the peer has closed while there was no network path, and every byte of its stream
  /// has arrived. `missed`: the failure to report after the program has read these bytes, because
  /// the peer has not received all of ours; empty if it has.
  virtual void on_peer_closed_without_path(Failure missed) noexcept = 0;
  // The functions that end the connection: begin_disconnect() notifies the peer, begin_abort()
  // first tells it that our stream is aborted, finish() waits for no answer.
  virtual void begin_disconnect(ae::Duration time_limit) noexcept = 0;
  virtual void begin_abort() noexcept = 0;
  virtual void finish() noexcept = 0;

 protected:
  ~PathRecoveryUser() = default;
};

class PathRecovery final : public HelloExchange, private SessionTable::User {
 public:
  struct Around {  ///< references to objects of the connection that PathRecovery uses
    Link& link;
    Deadline& deadline;
    Ending& ending;
    Posting& posting;
    Reader& reader;
    std::unique_ptr<Setup>& setup;  ///< the present attempt to connect; null if there is none
    const CarrierBase& carrier;     ///< the connection (class LinkedCarrier)
    AddressBook& book;
    SetupUser& setup_user;
    PathRecoveryUser& user;
  };
  /// Connecting side: makes the connection request ask the peer for a session, by which both ends
  /// can continue over another network path. `to`: the URL, which is also used to find new paths.
  PathRecovery(const Around& around, const Endpoint& to);
  /// Accepting side: creates an object without a session, the state that a new network path needs.
  /// Call grant() next, which begins a session.
  explicit PathRecovery(const Around& around) noexcept;
  PathRecovery(const PathRecovery&) = delete;
  PathRecovery& operator=(const PathRecovery&) = delete;

  // --- the session with the peer -----------------------------------------------------------------
  /// Returns the session that both ends have agreed on; null: there is none, so the connection ends
  /// with its network path.
  Session* session() const noexcept { return session_.get(); }
  /// Returns true from the loss of the network path until there is a new one.
  bool lost() const noexcept { return session_ != nullptr && session_->lost(); }
  /// Accepting side: begins a session (the connection can then continue over another network path)
  /// and returns the private data of the answer. `asked`: the hello (description of the peer) in
  /// the request. `ours`: our hello, to which the number, key and duration of the session are
  /// added. Throws VerbsError, Error or std::bad_alloc.
  PrivateData grant(const Hello& asked, Hello& ours);
  /// Call when the connection ends: ends the session, so that the peer cannot ask for a new path.
  void end() noexcept;

  // Overrides of HelloExchange: called by Setup for the private data that it sends and receives.
  void renew_stream() override;
  PrivateData request(Hello hello) override;
  std::optional<Hello> take_answer(std::span<const std::byte> data) override;

  // --- the loss of the path, and the new path ----------------------------------------------------
  /// Handles the loss of the network path: stops the queue pair and schedules reap(), which then
  /// destroys the objects of the path. Adds the peer's address to `failure`. Returns false if the
  /// connection cannot continue over another path: it has no session, it is being aborted, its
  /// stream has failed, or too many connections have no path.
  bool lose_path(Failure& failure) noexcept;
  /// Call, instead of lose_path(), when an attempt to find a new network path has failed: plans the
  /// next attempt, or ends the connection. It may be called from a function of `setup`, which is
  /// therefore destroyed later.
  void on_attempt_failed(Failure why) noexcept;
  /// Does the next step towards a new network path: destroys the objects of the lost path, begins
  /// an attempt, or gives up. Call it from reap() in phase kLost, and at the time
  /// Session::next_at().
  void go_on();
  /// Call when a new network path is established, in phase kResending: records it and begins to
  /// resend bytes. Returns false if there is no memory; the connection must then end.
  [[nodiscard]] bool on_new_path();
  /// Call in phase kResending (on a new network path): moves the unsent bytes to the send buffer as
  /// far as memory allows. When all are moved, the connection returns to the phase that it had
  /// before the loss of the old path.
  void resend();
  /// Call with a copy of unread bytes that Reader::exchange_copy() has returned: the copy is kept
  /// as long as the program has a view of it (from peek()).
  void keep_viewed(std::unique_ptr<std::byte[]> copy) noexcept;

  // --- calls of the program while there is no path -----------------------------------------------
  /// Returns true from the loss of the network path until all unsent bytes are in the send buffer
  /// of the new path. Meanwhile write() appends what the program writes to the unsent bytes.
  bool keeps_unsent() const noexcept {
    return session_ != nullptr && !link_.stage.ended() &&
           (session_->lost() || link_.stage.phase() == Phase::kResending);
  }
  ssize_t write(const iovec* vectors, int count);
  bool has_room() const noexcept;
  /// Implements close() while keeps_unsent() is true. If unsent bytes are left, the connection
  /// waits for a new network path and closes there. If none are left, the connecting side may ask
  /// the peer to end the session, which needs no path.
  void close_later() noexcept;
  /// Returns true if a connection request may ask the peer to end the session instead of asking for
  /// a new network path.
  bool can_ask_to_forget() const noexcept;
  /// Call when the event loop is about to end and thus delivers no more results of name look-ups.
  /// Gives up an attempt that waits for such a result, and begins one that blocks for its look-ups.
  void ask_without_loop() noexcept;

  // --- moving the connection to another loop -----------------------------------------------------
  /// Leaves the network path and then the loop. Blocks until the device has reported its last
  /// completions, which takes microseconds (at most 50 ms). The program must have no view of
  /// received bytes and no reservation of memory. Returns false if the connection cannot continue
  /// over another path.
  bool leave_loop();
  /// Returns true while the connection moves from one loop to another. Neither loop may be used
  /// then.
  bool moving() const noexcept { return moving_; }
  /// Continues the connection on `loop`, where it looks or waits for a new network path. The Link
  /// must use that loop already.
  void join_loop(ae::EventLoop& loop) noexcept;

 private:
  /// Interval at which the deadlines of an attempt to find a new network path are checked.
  static constexpr ae::Duration kAttemptTick = std::chrono::milliseconds(100);
  /// Greatest number of connections of a loop that may be without a network path at a time. A
  /// further one that loses its path ends.
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
  std::unique_ptr<const Endpoint> target_;  // connecting side: the peer's URL; accepting side: null
  std::unique_ptr<Session> session_;
  bool moving_ = false;
};

}}}  // namespace conn::rdma
