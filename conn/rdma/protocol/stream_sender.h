// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The sending side of a stream: how many bytes may be written now, and which control messages are
// due. Bytes are written into the peer's current receive window, in order, until it is full; then
// into the next window that the peer announced. If there is none, they wait.
//
// Its parts: PeerWindows (the peer's receive windows), Proof (which of our messages the peer has
// handled), OurEnd (how our stream ends). Class Stream checks what the peer sends, and then calls
// the functions of this class.

#include <cstddef>
#include <cstdint>
#include <optional>

#include "ae/abi.h"
#include "ae/time.h"
#include "conn/rdma/protocol/our_end.h"
#include "conn/rdma/protocol/peer_facts.h"
#include "conn/rdma/protocol/peer_windows.h"
#include "conn/rdma/protocol/proof.h"
#include "conn/rdma/protocol/wire.h"

namespace conn { inline namespace AECONN_ABI { namespace rdma {

/// The reason for which bytes cannot be sent now.
enum class Stall : std::uint8_t {
  kNone,       ///< none of the reasons below
  kWindow,     ///< the peer's windows are full, and it has announced no other
  kReceives,   ///< the peer may have no free receive for one more message
  kSendQueue,  ///< our send queue has no free slot
};

class StreamSender {
 public:
  /// Creates the sending side of a stream. `proof`: must not have counted a message yet.
  /// `connection`: number of the connection that static trace points report.
  StreamSender(const Proof& proof, std::uint64_t connection) noexcept
      : proof_(proof), connection_(connection) {}
  /// Sets the number of the connection that static trace points report.
  void set_connection(std::uint64_t id) noexcept { connection_ = id; }
  std::uint64_t connection() const noexcept { return connection_; }

  /// Records what the peer stated in its hello (private data of rdma_cm).
  void on_hello(const Hello& hello) noexcept {
    peer_.set(hello);
    proof_.on_hello(peer_.receives(), peer_.said(Hello::kAnswersProbes));
  }
  /// Records that the stream can continue over another network path.
  void set_resumes() noexcept { resumes_ = true; }
  bool resumes() const noexcept { return resumes_; }
  /// Makes the sending side use a new network path. Forgets the peer's windows and receives of the
  /// old path. `written`: number of bytes at the start of our stream that need not be sent again.
  /// `proof`: a new object that has counted no message. Our stream must not be aborted.
  void begin_path(std::uint64_t written, const Proof& proof) noexcept;
  /// Replaces the argument `written` of begin_path(): number of bytes at the start of our stream
  /// that need not be sent again. Nothing may have been written on this network path yet.
  void set_written(std::uint64_t written) noexcept { peer_windows_ = PeerWindows(written); }
  /// Stops sending on this network path, because the stream has failed or the peer has closed.
  void stop() noexcept { stopped_ = true; }
  bool stopped() const noexcept { return stopped_; }

  // --- parts of the sending side -----------------------------------------------------------------
  const PeerFacts& peer() const noexcept { return peer_; }
  const PeerWindows& peer_windows() const noexcept { return peer_windows_; }
  Proof& proof() noexcept { return proof_; }
  const Proof& proof() const noexcept { return proof_; }
  const OurEnd& end() const noexcept { return end_; }

  // --- how much data may be sent -----------------------------------------------------------------
  /// Returns how many of `staged` bytes (accepted from the user, not yet posted) may be sent now as
  /// one message. `planned`: number of control messages that will be posted just before it, each of
  /// which consumes a receive of the peer.
  std::uint32_t sendable(std::size_t staged, ae::TimePoint now,
                         std::uint32_t planned = 0) const noexcept;
  /// Returns the immediate value, in host byte order, for a WRITE_WITH_IMM of `length` bytes.
  std::uint32_t immediate(std::uint32_t length) const noexcept {
    return waited_ ? length | kWaited : length;
  }
  /// Records that one message of `length` bytes was posted: one or more RDMA writes, the last of
  /// them a WRITE_WITH_IMM.
  void on_write_posted(std::uint32_t length, ae::TimePoint now) noexcept;
  /// Returns true if `staged` bytes (not yet posted) may be sent now as one message that does not
  /// fill the peer's window, and neither a mark (of a change to a new window) nor a probe is due.
  bool takes_straight(std::uint32_t staged) const noexcept {
    // Operands are joined with | instead of || where that saves a branch.
    return peer_windows_.left() > staged && !(stopped_ | mark_due_ | end_.aborted()) &&
           proof_.has_plenty();
  }
  /// Does what on_write_posted() does, but faster; only for a message that Stream::takes_straight()
  /// allowed.
  void on_straight_posted(std::uint32_t length, ae::TimePoint now) noexcept {
    proof_.on_posted(now);
    waited_ = false;
    peer_windows_.use_some(length);
  }
  /// Records that staged bytes (accepted from the user, not yet posted) could not be sent. If they
  /// wait for a window of the peer, the next write reports that to the peer (kWaited).
  void on_staged_left() noexcept;
  /// Returns what bytes that are accepted from the user must wait for now: kWindow, kReceives, or
  /// kNone if they need not wait.
  Stall waits_for(ae::TimePoint now) const noexcept;
  /// Returns the time at which sending `staged` bytes must be tried again even if nothing arrives;
  /// no value if that is not needed. It is needed if the peer cannot prove that it has free
  /// receives.
  std::optional<ae::TimePoint> retry_at(std::size_t staged) const noexcept;

  // --- ending our stream -------------------------------------------------------------------------
  /// Ends our stream after the bytes posted so far: a control message tells the peer their number.
  /// Call it when no accepted byte is left to be posted. `leaves`: we also read no more; if the
  /// stream can resume, the peer is told this, too, in a second message if necessary. Returns true
  /// if a message has become due now. Requires PeerFacts::tells_end().
  bool finish(bool leaves) noexcept;
  /// Aborts our stream: no more data is sent, and the control message kAborted becomes due. Returns
  /// false if the peer does not understand this message; then it is not sent.
  bool abort() noexcept;

  // --- control messages: for Stream only ---------------------------------------------------------
  /// Returns true if we must send a mark (kWindowMark): the peer has replaced a window that was not
  /// full, and from this message on our data goes into the new window.
  bool mark_is_due() const noexcept { return mark_due_; }
  /// A cheap test: if it returns false, the sending side has no due control message: no mark
  /// (change to a new window), no end of the stream and no probe.
  bool may_have_control() const noexcept {
    return mark_due_ || end_.may_have_message() || proof_.probe_is_due(0);
  }
  /// Records that a mark (of our change to a new window), or a message that ends or aborts our
  /// stream, was posted. `select`: the field of that name in the message.
  void on_notice_posted(std::uint16_t select) noexcept;

  /// How a window that the peer offers relates to the windows that it has offered before.
  enum class Offer : std::uint8_t {
    kNext,  ///< the new window replaces all others; offered when the current one is full
    /// The new window replaces all others although the current one is not full, and we must send a
    /// mark (kWindowMark).
    kMarked,
    kAhead,  ///< the new window is used after the others are full
  };
  /// Returns true if this offer is the successor of a window that we filled, so that it is not
  /// charged to the peer's ControlBudget. Each window that we filled counts once.
  bool take_earned(Offer offer) noexcept;
  /// Adds a window that the peer offers. `earned`: the result of take_earned(). Returns null, or a
  /// text that says why the window cannot be added.
  [[nodiscard]] const char* on_offer(Offer offer, bool earned,
                                     const PeerWindows::Window& window) noexcept;
  /// Frees the memory that describes receive windows of the peer after the current one, if there is
  /// no such window.
  void trim() noexcept { peer_windows_.trim(); }

  /// Asserts the invariants of the sending side of the stream and of its parts.
  void check() const;

 private:
  Proof proof_;
  PeerFacts peer_;
  PeerWindows peer_windows_;
  std::uint64_t connection_;
  // Number of windows that we filled and for which the peer has not offered a successor yet: that
  // many offers are not charged to the peer's ControlBudget.
  std::uint8_t earned_ = 0;
  static_assert(kMostAnnounced <= 0xff);
  OurEnd end_;
  bool stopped_ = false;
  bool mark_due_ = false;
  // True if bytes accepted from the user have had to wait for a window of the peer since the last
  // write.
  bool waited_ = false;
  bool resumes_ = false;
};

}}}  // namespace conn::rdma
