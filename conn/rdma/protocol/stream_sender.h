// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The sending side of a stream: how many bytes may be written now, and what of this side the peer
// must be told. Bytes go into the peer's window, in order, to its very last byte; then into the
// next one that it announced, or they wait for one.
//
// Its parts: PeerWindows (where bytes go), Proof (our messages and the peer's receives), OurEnd
// (how our stream ends). Stream passes in what the peer sends, after it has checked it.

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

/// What a connection with bytes to send waits for.
enum class Stall : std::uint8_t {
  kNone,       ///< for none of these
  kWindow,     ///< the peer's windows are full, and it has announced no other
  kReceives,   ///< a proof that the peer has a receive for one more message
  kSendQueue,  ///< a free place on the send queue
};

class StreamSender {
 public:
  /// `proof`: begins with no message sent. `connection`: id that tracing probes report.
  StreamSender(const Proof& proof, std::uint64_t connection) noexcept
      : proof_(proof), connection_(connection) {}
  /// Sets the id of the connection that tracing probes report.
  void set_connection(std::uint64_t id) noexcept { connection_ = id; }
  std::uint64_t connection() const noexcept { return connection_; }

  /// Records what the peer's hello stated.
  void on_hello(const Hello& hello) noexcept {
    peer_.set(hello);
    proof_.on_hello(peer_.receives(), peer_.said(Hello::kAnswersProbes));
  }
  /// Records that the stream can go on over another path.
  void set_resumes() noexcept { resumes_ = true; }
  bool resumes() const noexcept { return resumes_; }
  /// Makes this side use a new path, with `proof` in place of the old one; `written` of our bytes
  /// need not be sent again. Nothing else of the old path is used. It must not be aborted.
  void begin_path(std::uint64_t written, const Proof& proof) noexcept;
  /// Replaces the number `written` of begin_path(). Nothing may have been written since.
  void set_written(std::uint64_t written) noexcept { peer_windows_ = PeerWindows(written); }
  /// Call when the stream has failed or the peer has closed: nothing more is sent on this path.
  void stop() noexcept { stopped_ = true; }
  bool stopped() const noexcept { return stopped_; }

  // --- parts of this side ------------------------------------------------------------------------
  const PeerFacts& peer() const noexcept { return peer_; }
  const PeerWindows& peer_windows() const noexcept { return peer_windows_; }
  Proof& proof() noexcept { return proof_; }
  const Proof& proof() const noexcept { return proof_; }
  const OurEnd& end() const noexcept { return end_; }

  // --- data --------------------------------------------------------------------------------------
  /// Returns how many of `staged` bytes may be sent now as one message, after `planned` control
  /// messages that will be posted just before it.
  std::uint32_t sendable(std::size_t staged, ae::TimePoint now,
                         std::uint32_t planned = 0) const noexcept;
  /// Returns the immediate value, in host order, that a WRITE_WITH_IMM of `length` bytes must
  /// carry.
  std::uint32_t immediate(std::uint32_t length) const noexcept {
    return waited_ ? length | kWaited : length;
  }
  /// Records that writes of `length` bytes in total were posted, the last of them as
  /// WRITE_WITH_IMM.
  void on_write_posted(std::uint32_t length, ae::TimePoint now) noexcept;
  /// Returns true if `staged` bytes may be sent now as one message that does not fill the peer's
  /// window, and this side has no control message for the peer.
  bool takes_straight(std::uint32_t staged) const noexcept {
    return peer_windows_.left() > staged && !stopped_ && !end_.aborted() && !mark_due_ &&
           proof_.has_plenty();
  }
  /// Does what on_write_posted() does for a message that Stream::takes_straight() allowed.
  void on_straight_posted(std::uint32_t length, ae::TimePoint now) noexcept {
    proof_.on_posted(now);
    waited_ = false;
    peer_windows_.use_some(length);
  }
  /// Call when staged bytes (accepted from the user, not yet posted) could not be sent. If they
  /// wait for a window, the next write tells the peer so.
  void on_staged_left() noexcept;
  /// Returns which of the peer's means staged bytes wait for: kWindow, kReceives, or kNone.
  Stall waits_for(ae::TimePoint now) const noexcept;
  /// Returns the time at which the `staged` bytes must be tried again even if nothing arrives,
  /// because the peer may lack receives for them; no value if no such time is needed.
  std::optional<ae::TimePoint> retry_at(std::size_t staged) const noexcept;

  // --- the end of our stream ---------------------------------------------------------------------
  /// Ends our stream after the bytes posted so far: a control message tells the peer how many they
  /// are. Call it once nothing is staged. `leaves`: we read no more, either. If the stream resumes,
  /// the peer is told that too, in a second message if need be. Returns true if a message has
  /// become due now. Requires PeerFacts::tells_end().
  bool finish(bool leaves) noexcept;
  /// Aborts the stream: no more data is sent, and a control message tells the peer. Returns false
  /// if the peer would not understand that message; then none is sent.
  bool abort() noexcept;

  // --- control messages: for Stream only ---------------------------------------------------------
  /// Returns true if we must send a mark, because we left a window of the peer that was not full.
  bool mark_is_due() const noexcept { return mark_due_; }
  /// Returns false only if no control message of this side is due, be it a mark, the end or a
  /// probe.
  bool may_have_control() const noexcept {
    return mark_due_ || end_.may_have_message() || proof_.probe_is_due(0);
  }
  /// Records that the message posted last was a mark, or told the peer of the end of our stream.
  void on_notice_posted(std::uint16_t select) noexcept;

  /// How a window that the peer offers relates to those that it has given us.
  enum class Offer : std::uint8_t {
    kNext,    ///< it takes the place of all; offered once the current one is full
    kMarked,  ///< it takes the place of all, although the current one is not full, and we mark that
    kAhead,   ///< it follows the others
  };
  /// Returns true if we have earned this offer, because we filled a window for which none has come
  /// yet; that window counts no more.
  bool take_earned(Offer offer) noexcept;
  /// Adds a window that the peer offers. `earned`: what take_earned() returned. Returns null, or a
  /// text that says why it cannot be added.
  [[nodiscard]] const char* on_offer(Offer offer, bool earned,
                                     const PeerWindows::Window& window) noexcept;
  /// Frees the memory for windows ahead, if there are none.
  void trim() noexcept { peer_windows_.trim(); }

  /// Asserts the invariants of this side and its parts.
  void check() const;

 private:
  Proof proof_;
  PeerFacts peer_;
  PeerWindows peer_windows_;
  std::uint64_t connection_;
  // Number of the peer's windows that we filled and for which the peer has not announced a
  // successor yet.
  std::uint8_t earned_ = 0;
  static_assert(kMostAnnounced <= 0xff);
  OurEnd end_;
  bool stopped_ = false;
  bool mark_due_ = false;
  // True if staged bytes had to wait for a window of the peer since the last write.
  bool waited_ = false;
  bool resumes_ = false;
};

}}}  // namespace conn::rdma
