// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The byte stream of one RDMA connection, without RDMA: windows offered and received, the peer's
// receive credits, keepalive, end of stream, and every check of what a peer sends. It uses no
// verbs, no descriptors and no clock: the connection passes in completions and the current time,
// and carries out what next_control(), sendable() and wanted_window() return. It allocates memory
// only for a record of each of our windows, and for the windows that the peer announces ahead; both
// are limited in number, and a lack of memory is an error of this stream only.
//
// These three only say what is due. The connection builds a chain of requests from their answers,
// posts it, and then reports what the device took, with on_control_posted() and on_write_posted();
// what the device refused stays due, unchanged.
//
// Input from the peer is never trusted and never asserted on: a bad value sets failure(), after
// which the stream takes no more input. Asserts in this class check our own code.
//
// Its parts: StreamReceiver (our windows), PeerWindows (the peer's), Proof (our messages and the
// peer's receives), Liveness (keepalives and silence), ControlBudget (what the peer may send).
// Stream connects them: it takes the peer's messages apart, and decides what is sent next.
//
// Sending. Bytes go into the peer's window, in order, to its very last byte; then into the next one
// it announced, or the stream waits for one.

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "ae/abi.h"
#include "ae/time.h"
#include "conn/rdma/protocol/control_budget.h"
#include "conn/rdma/protocol/flow_control.h"
#include "conn/rdma/protocol/liveness.h"
#include "conn/rdma/protocol/peer_facts.h"
#include "conn/rdma/protocol/peer_windows.h"
#include "conn/rdma/protocol/proof.h"
#include "conn/rdma/protocol/receive_window_queue.h"
#include "conn/rdma/protocol/stream_receiver.h"
#include "conn/rdma/protocol/wire.h"

namespace conn { inline namespace AECONN_ABI { namespace rdma {

struct StreamConfig {
  Role role = Role::kServer;
  std::uint32_t window = 64 * 1024;  ///< length in bytes of the first receive window that we offer
  /// Greatest length of a receive window in bytes. New windows get twice the length of the last
  /// one, up to this, if the peer allows windows of different lengths.
  std::uint32_t max_window = 1024 * 1024;
  /// Most receive windows of ours that may exist if the peer accepts several offers at a time: 2 to
  /// ReceiveWindowQueue::kSlots.
  std::uint32_t max_windows = 8;
  /// Greatest length in bytes of a window that the peer may offer; a longer one ends the
  /// connection.
  std::uint32_t max_peer_window = 16u << 20;
  /// Number of receives that a peer is assumed to keep posted if it announces no number.
  std::uint32_t peer_receives = flow::kPlainReceives;
  /// Number of our posted receives that our hello announces; 0: it announces none.
  std::uint32_t receives = 0;
  /// True if the completion of a message proves that one of the peer's receives took it (not so on
  /// iWARP).
  bool completions_prove = true;
  /// Budget for those control messages of the peer that no action of ours has earned: number per
  /// second, and number at once.
  std::uint32_t control_rate = flow::kControlRate, control_burst = flow::kControlBurst;
  /// Interval at which we send keepalives; 0: none.
  ae::Duration keepalive = std::chrono::seconds(3);
  /// Id of the connection that tracing probes (static trace points) report.
  std::uint64_t connection = 0;
};

/// What a connection with bytes to send waits for.
enum class Stall : std::uint8_t {
  kNone,       ///< for none of these
  kWindow,     ///< the peer's windows are full, and it has announced no other
  kReceives,   ///< a proof that the peer has a receive for one more message
  kSendQueue,  ///< a free place on the send queue
};

/// Which limit the peer exceeded, if the stream failed for that reason.
enum class Excess : std::uint8_t {
  kNone,  ///< the peer exceeded no limit
  /// The peer sent more control messages than StreamConfig::control_rate and control_burst allow,
  /// or probes faster than answers can be sent.
  kMessages,
  kWindow,  ///< the peer offered a window longer than StreamConfig::max_peer_window
};

class Stream {
 public:
  Stream(const StreamConfig& config, ae::TimePoint now);

  /// Records what the peer's hello states. Must be called before any other input from the peer is
  /// passed in.
  void on_hello(const Hello& hello);
  Hello hello() const;  ///< returns the hello that we send to the peer
  /// Sets how many receives the peer can count on (`ours`), and whether a completed message was
  /// taken by one of the peer's receives (not so on iWARP). `retries`: how long the device
  /// repeats a request (Liveness::set_device()). Call it before hello().
  void on_queue_pair(std::uint32_t ours, bool completions_prove,
                     std::chrono::milliseconds retries) noexcept {
    config_.receives = ours;
    proof_.set_completions_prove(completions_prove);
    liveness_.set_device(completions_prove, retries);
  }
  /// Sets the id of the connection that tracing probes report (StreamConfig::connection).
  void set_connection(std::uint64_t id) noexcept { config_.connection = id; }

  /// Makes the stream use a new path. Call it after inbound().leave_windows() and before any other
  /// input: windows, credits and keepalives begin anew, and nothing of the old path is used.
  /// `written`: the number of our bytes that need not be sent again.
  void begin_path(std::uint64_t written, ae::TimePoint now);
  /// Replaces the number `written` that begin_path() was given; nothing may have been written
  /// since. Then takes what the peer states about the new path, in place of on_hello().
  void go_on(std::uint64_t written, Hello hello);

  // --- parts of the stream -----------------------------------------------------------------------
  StreamReceiver& inbound() noexcept { return inbound_; }
  const StreamReceiver& inbound() const noexcept { return inbound_; }
  const PeerWindows& peer_windows() const noexcept { return peer_windows_; }
  const PeerFacts& peer() const noexcept { return peer_; }
  const Proof& proof() const noexcept { return proof_; }
  Liveness& liveness() noexcept { return liveness_; }
  const Liveness& liveness() const noexcept { return liveness_; }

  // --- receiving ---------------------------------------------------------------------------------
  /// Call if there is no memory for a window that is wanted. The stream continues with the windows
  /// it has and wants one again after a second; without any window it fails.
  void no_window(ae::TimePoint now);
  /// Call when a WRITE_WITH_IMM of the peer arrived: its bytes are in our receive window.
  /// `immediate`: the immediate value, in host order.
  void on_data(std::uint32_t immediate, ae::TimePoint now);
  /// Does what on_data() does for a message that neither begins nor ends a window. Returns false,
  /// and changes nothing, if it is another one: call on_data() instead.
  bool take_straight(std::uint32_t immediate, ae::TimePoint now) noexcept {
    if (!takes_data_ || !inbound_.take_straight(immediate, now)) return false;
    liveness_.on_heard(now);
    proof_.on_received();  // what the offer of this window proves, its first message has proved
    return true;
  }
  /// Call when a SEND arrived. `bytes`: a private copy of the receive buffer, as long as the SEND
  /// was.
  void on_control(std::span<const std::byte> bytes, ae::TimePoint now);
  /// Call when the peer has closed. Bytes that have arrived, or that are still passed in, stay
  /// readable; nothing more is sent.
  void on_peer_closed() noexcept {
    peer_closed_ = input_over_ = true;
    inbound_.end();
  }

  /// Returns true if the peer has said, in a message with `select` kAborted, that it aborts the
  /// stream.
  bool peer_aborted() const noexcept { return peer_aborted_; }

  /// Returns true if the peer has ended its stream (kFinished, kShutDown): all its bytes have
  /// arrived.
  bool peer_finished() const noexcept { return peer_finished_; }
  /// Returns true if the peer has also said that it reads no more, so that it closes (kFinished).
  bool peer_leaves() const noexcept { return peer_leaves_; }
  /// Returns true if no more bytes of the peer will arrive.
  bool input_over() const noexcept { return input_over_; }
  bool at_end() const noexcept { return input_over() && !inbound_.has_unread(); }
  bool peer_closed() const noexcept { return peer_closed_; }

  // --- sending -----------------------------------------------------------------------------------
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
  void on_write_posted(std::uint32_t length, ae::TimePoint now);
  /// Returns true if `staged` bytes may be sent now as one message that does not fill the peer's
  /// window, and no control message and no probe is due, so that this message is all there is to
  /// send.
  bool takes_straight(std::uint32_t staged) const noexcept {
    return peer_windows_.left() > staged && failure_ == nullptr && !peer_closed_ && !aborted_ &&
           !mark_due_ && inbound_.line().unannounced() == 0 && reply_count_ == 0 &&
           liveness_.has_nothing_due() && proof_.has_plenty();
  }
  /// Does what on_write_posted() does for a message that takes_straight() allowed.
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
  /// Records that `count` more messages (control messages, and writes with an immediate) have
  /// completed.
  void on_messages_done(std::uint32_t count) noexcept { proof_.on_completed(count); }
  /// Aborts the stream: no more data is sent, and a control message tells the peer. Returns false
  /// if the peer would not understand that message; then none is sent.
  bool abort() noexcept;
  bool aborted() const noexcept { return aborted_; }
  /// Returns true if the ends of this stream tell each other where it ends (Hello::kFinishes).
  bool can_finish() const noexcept { return peer_.said(Hello::kFinishes); }
  /// Ends our stream after the bytes posted so far: a control message tells the peer how many they
  /// are. Call it once nothing is staged. `leaves`: we read no more, either. If the stream resumes,
  /// the peer is told that too, in a second message if need be. Returns true if a message has
  /// become due now. Requires can_finish().
  bool finish(bool leaves) noexcept;
  bool finish_is_due() const noexcept { return finish_ == Finish::kDue; }
  /// Returns true once the message of finish(leaves) was posted.
  bool finished(bool leaves) const noexcept {
    return finish_ == Finish::kPosted && (leaves_ || !leaves || !resumes_);
  }
  /// Returns false only if next_control() would return no message. For most messages of the peer
  /// this is the answer, and it costs little.
  bool may_have_control() const noexcept {
    return mark_due_ || aborted_ || finish_ == Finish::kDue || inbound_.line().unannounced() != 0 ||
           reply_count_ != 0 || liveness_.keepalive_is_due() || proof_.probe_is_due(0);
  }
  /// Returns the control message that is due after the first `planned` due ones, or no value if
  /// there are no more: next_control(now, 0), next_control(now, 1) ... are the due messages in
  /// order. They stay the same until on_control_posted() or new input.
  std::optional<ControlMessage> next_control(ae::TimePoint now,
                                             std::uint32_t planned = 0) const noexcept;
  /// Records that `message`, which next_control(now) returned, has been posted.
  void on_control_posted(const ControlMessage& message, ae::TimePoint now);
  /// Returns the time at which the `staged` bytes must be tried again even if nothing arrives,
  /// because the peer may lack receives for them; no value if no such time is needed.
  std::optional<ae::TimePoint> retry_at(std::size_t staged) const noexcept;

  // --- time-outs and ticks -----------------------------------------------------------------------
  /// Call when next_tick() has come. Makes keepalives due, probes the device of a peer that
  /// promised keepalives and is silent, and frees spare windows. Connections with the same
  /// keepalive interval are due at the same moments. `loop_was_stopped`: this call comes much later
  /// than planned, so that silence of the peer proves nothing yet.
  void tick(ae::TimePoint now, bool loop_was_stopped);
  ae::TimePoint next_tick() const noexcept;
  /// Call when the network path to the peer may have failed: makes a probe of the peer's device due
  /// now.
  void ask_path() noexcept {
    if (failure_ == nullptr && !peer_closed_) liveness_.ask_path();
  }

  // --- facts about the stream --------------------------------------------------------------------
  /// Returns why the stream failed: the peer broke the protocol or is considered dead, or there was
  /// no memory for a window. Null if it has not failed.
  const char* failure() const noexcept { return failure_; }
  Excess excess() const noexcept { return excess_; }
  /// Returns true if the stream failed because there was no memory for the windows that the peer
  /// announces.
  bool lacks_memory() const noexcept { return failure_ == PeerWindows::kNoMemory; }

  static constexpr const char* kSilent = "the peer has been silent for three keepalive intervals";
  static constexpr const char* kUnconfirmed =
      "the peer is heard, but its device confirms nothing of what is sent to it";
  /// Records that the stream can go on over another path. A dead path is then reported by
  /// path_dead(), and is no failure.
  void set_resumes() noexcept { resumes_ = true; }
  /// Says why the path counts as dead, for example kSilent; null while it does not.
  const char* path_dead() const noexcept { return why(path_dead_); }

  /// Asserts the invariants of the stream and its parts. Tests and the fuzzer call it after every
  /// step.
  void check() const;

 private:
  static const char* why(Liveness::Peer peer) noexcept {
    if (peer == Liveness::Peer::kAlive) return nullptr;
    return peer == Liveness::Peer::kSilent ? kSilent : kUnconfirmed;
  }
  void fail(const char* why, Excess excess = Excess::kNone) noexcept;
  bool spend_control(ae::TimePoint now) noexcept;
  void on_register(const ControlMessage& message, ae::TimePoint now);
  void on_feature(const ControlMessage& message, ae::TimePoint now);
  void on_finished(const ControlMessage& message, ae::TimePoint now);
  std::optional<ControlMessage> due_after_answers(std::uint32_t planned,
                                                  std::uint32_t place) const noexcept;

  StreamConfig config_;
  const char* failure_ = nullptr;
  PeerFacts peer_;
  Excess excess_ = Excess::kNone;
  bool peer_closed_ = false, peer_aborted_ = false;
  bool peer_finished_ = false, peer_leaves_ = false;
  bool input_over_ = false;  // peer_closed_ || peer_finished_
  // False once the stream has failed or the peer has ended its stream: data breaks the protocol
  // then.
  bool takes_data_ = true;
  StreamReceiver inbound_;
  Proof proof_;
  Liveness liveness_;
  ControlBudget budget_;

  // The members from here on are the state of the sending direction.
  PeerWindows peer_windows_;
  // Number of the peer's windows that we filled and for which the peer has not announced a
  // successor yet.
  std::uint32_t earned_ = 0;
  // Ring of the `select` fields of the peer's probes that we have not answered yet.
  std::array<std::uint16_t, flow::kMostAnswers> replies_{};
  std::size_t reply_head_ = 0, reply_count_ = 0;
  bool aborted_ = false, abort_due_ = false;
  // State of the message that ends our stream.
  enum class Finish : std::uint8_t { kNone, kDue, kPosted };
  Finish finish_ = Finish::kNone;
  bool leaves_ = false;  // what the last call of finish() was given
  // True if we must send a mark: we left a window of the peer that was not full.
  bool mark_due_ = false;
  // True if staged bytes had to wait for a window of the peer since the last write.
  bool waited_ = false;
  bool resumes_ = false;
  Liveness::Peer path_dead_ = Liveness::Peer::kAlive;
};

}}}  // namespace conn::rdma
