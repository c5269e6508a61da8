// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The byte stream of one RDMA connection as a pure state machine: receive windows, the peer's
// receive credits, keepalives, end of stream, and every check of what a peer sends. It calls no
// verbs, uses no descriptors and reads no clock: the connection passes in completions and the
// current time, and carries out what next_control(), sendable() and wanted_window() return. It
// allocates memory only for a record of each of our windows, and for additional windows that the
// peer announces; both are limited in number, and a lack of memory is an error of this stream only.
//
// The functions next_control(), sendable() and wanted_window() change nothing. The connection
// builds a chain of work requests from their results, posts it, and then reports which requests the
// device accepted, with on_control_posted() and StreamSender::on_write_posted(). Requests that the
// device refused stay due.
//
// Input from the peer is never trusted and never asserted on: a bad value sets failure(), after
// which the stream takes no more input. Asserts in this class check our own code.
//
// Its parts: StreamReceiver (our windows), StreamSender (the peer's windows and receives, and our
// end), PeerEnd (how the peer's stream ends), Liveness (keepalives and silence), AnswerQueue (the
// peer's probes), ControlBudget (what the peer may send). Stream connects them: it takes the peer's
// messages apart, and decides which message is sent next.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "ae/abi.h"
#include "ae/time.h"
#include "conn/rdma/protocol/answer_queue.h"
#include "conn/rdma/protocol/control_budget.h"
#include "conn/rdma/protocol/flow_control.h"
#include "conn/rdma/protocol/liveness.h"
#include "conn/rdma/protocol/peer_end.h"
#include "conn/rdma/protocol/peer_facts.h"
#include "conn/rdma/protocol/peer_windows.h"
#include "conn/rdma/protocol/proof.h"
#include "conn/rdma/protocol/stream_receiver.h"
#include "conn/rdma/protocol/stream_sender.h"
#include "conn/rdma/protocol/wire.h"

namespace conn { inline namespace AECONN_ABI { namespace rdma {

struct StreamConfig {
  Role role = Role::kServer;
  std::uint32_t window = 64 * 1024;  ///< length in bytes of the first receive window that we offer
  /// Greatest length of a receive window in bytes. New windows get twice the length of the last
  /// one, up to this, if the peer allows windows of different lengths.
  std::uint32_t max_window = 1024 * 1024;
  /// Greatest number of our receive windows if the peer accepts several at a time: 2 to
  /// ReceiveWindowQueue::kSlots.
  std::uint32_t max_windows = 8;
  /// Greatest length in bytes of a receive window of the peer; the offer of a longer one ends the
  /// connection.
  std::uint32_t max_peer_window = 16u << 20;
  /// Number of receives that a peer is assumed to keep posted if it announces no number.
  std::uint32_t peer_receives = flow::kPlainReceives;
  /// Number of our posted receives that is announced to the peer at connection set-up; 0: none is
  /// announced.
  std::uint32_t receives = 0;
  /// True if the completion of a message proves that it has consumed one of the peer's receives;
  /// false on iWARP.
  bool completions_prove = true;
  /// Budget for those control messages of the peer that follow from no action of ours
  /// (ControlBudget): number per second, and number at once.
  std::uint32_t control_rate = flow::kControlRate, control_burst = flow::kControlBurst;
  /// Interval at which we send keepalives; 0: none.
  ae::Duration keepalive = std::chrono::seconds(3);
  /// Number of the connection that static trace points report.
  std::uint64_t connection = 0;
};

/// The limit that the peer exceeded, if the stream failed for that reason.
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

  /// Records what the peer states in its hello (private data of rdma_cm). Call it before any
  /// message of the peer is passed in.
  void on_hello(const Hello& hello);
  Hello hello() const;  ///< returns what to tell the peer about us at connection set-up
  /// Sets properties of the queue pair; call it before hello(). `ours`: number of our posted
  /// receives, to be announced to the peer. `completions_prove`: StreamConfig::completions_prove.
  /// `retries`: how long the device repeats a request (Liveness::set_device()).
  void on_queue_pair(std::uint32_t ours, bool completions_prove,
                     std::chrono::milliseconds retries) noexcept {
    receives_ = ours;
    outbound_.proof().set_completions_prove(completions_prove);
    liveness_.set_device(completions_prove, retries);
  }
  /// Records that the stream can continue over another network path. A dead path is then reported
  /// by Liveness::dead() only, and does not make the stream fail.
  void set_resumes() noexcept { outbound_.set_resumes(); }

  /// Makes the stream use a new network path: windows, credits and keepalives begin anew. Call it
  /// after inbound().leave_windows() and before any input from the new path. `written`: number of
  /// bytes at the start of our stream that need not be sent again.
  void begin_path(std::uint64_t written, ae::TimePoint now);
  /// Completes the change to a new network path (begin_path()) when the peer's resume message has
  /// arrived: replaces the number `written`, and records the hello (properties of the peer) in that
  /// message. Call it instead of on_hello(). Nothing may have been written on the new path yet.
  void go_on(std::uint64_t written, Hello hello);

  // --- parts of the stream -----------------------------------------------------------------------
  StreamReceiver& inbound() noexcept { return inbound_; }
  const StreamReceiver& inbound() const noexcept { return inbound_; }
  StreamSender& outbound() noexcept { return outbound_; }
  const StreamSender& outbound() const noexcept { return outbound_; }
  const PeerFacts& peer() const noexcept { return outbound_.peer(); }
  const PeerEnd& peer_end() const noexcept { return peer_end_; }
  Liveness& liveness() noexcept { return liveness_; }
  const Liveness& liveness() const noexcept { return liveness_; }

  // --- input from the peer -----------------------------------------------------------------------
  /// Reports that there is no memory for the receive window that StreamReceiver::wanted_window()
  /// asked for. The stream continues with the windows it has, and asks again after a second; if it
  /// has no window, it fails.
  void no_window(ae::TimePoint now);
  /// Handles a WRITE_WITH_IMM of the peer that has arrived; its bytes are in our receive window.
  /// `immediate`: the immediate value, in host byte order.
  void on_data(std::uint32_t immediate, ae::TimePoint now);
  /// Handles data as on_data() does, but faster, if it is neither the first nor the last of its
  /// window. Otherwise returns false and changes nothing: call on_data() then.
  bool take_straight(std::uint32_t immediate, ae::TimePoint now) noexcept {
    if (!peer_end_.takes_data() || !inbound_.take_straight(immediate, now)) return false;
    liveness_.on_heard(now);
    // The first write into this window has already proved that the peer handled our offer of it.
    outbound_.proof().on_received();
    return true;
  }
  /// Handles a SEND of the peer that has arrived. `bytes`: the message, copied out of the receive
  /// buffer.
  void on_control(std::span<const std::byte> bytes, ae::TimePoint now);
  /// Records that the peer has closed the connection. Received bytes stay readable, also those that
  /// are still passed in by on_data() afterwards; nothing more is sent.
  void on_peer_closed() noexcept {
    peer_end_.on_closed();
    inbound_.end();
    outbound_.stop();
  }
  /// Returns true if the peer's stream has ended and every byte of it was read.
  bool at_end() const noexcept { return peer_end_.input_over() && !inbound_.has_unread(); }

  // --- choosing what to send ---------------------------------------------------------------------
  /// Returns true if `staged` bytes (accepted from the user, not yet posted) may be sent now as one
  /// message that does not fill the peer's window, and nothing else is due: no control message and
  /// no probe. Then the caller may post that message without a call of next_control().
  bool takes_straight(std::uint32_t staged) const noexcept {
    return outbound_.takes_straight(staged) && inbound_.line().unannounced() == 0 &&
           answers_.empty() && liveness_.has_nothing_due();
  }
  /// A cheap test: if it returns false, next_control() would return no message. If it returns true,
  /// call next_control() to find out.
  bool may_have_control() const noexcept {
    return outbound_.may_have_control() || inbound_.line().unannounced() != 0 ||
           !answers_.empty() || liveness_.keepalive_is_due();
  }
  /// Returns the control message at index `planned` in the list of the messages that are due now;
  /// no value if the list is shorter. The list stays the same until on_control_posted() is called
  /// or new input arrives.
  std::optional<ControlMessage> next_control(ae::TimePoint now,
                                             std::uint32_t planned = 0) const noexcept;
  /// Records that `message`, the result of next_control(now), has been posted.
  void on_control_posted(const ControlMessage& message, ae::TimePoint now);

  // --- periodic checks ---------------------------------------------------------------------------
  /// Call at the time next_tick(). Makes keepalives due, makes a probe (zero-length write) due if
  /// the peer promised keepalives and is silent, and lets unused receive windows be freed.
  /// Connections with the same keepalive interval are due at the same times. `loop_was_stopped`:
  /// this call comes much later than planned, so the peer's silence up to now proves nothing.
  void tick(ae::TimePoint now, bool loop_was_stopped);
  ae::TimePoint next_tick() const noexcept;
  /// Call when the network path to the peer may have failed: makes a probe of the peer's device (a
  /// zero-length write) due now.
  void ask_path() noexcept {
    if (!outbound_.stopped()) liveness_.ask_path();
  }

  // --- failure of the stream ---------------------------------------------------------------------
  /// Returns a text that says why the stream failed: the peer broke the protocol or counts as dead,
  /// or there was no memory for a window. Null if the stream has not failed.
  const char* failure() const noexcept { return failure_; }
  Excess excess() const noexcept { return excess_; }
  /// Returns true if the stream failed because there was no memory to store the addresses of the
  /// receive windows that the peer announces.
  bool lacks_memory() const noexcept { return failure_ == PeerWindows::kNoMemory; }

  /// Asserts the invariants of the stream and its parts. Tests and the fuzzer call it after every
  /// step.
  void check() const;

 private:
  Proof new_proof(ae::TimePoint now) const noexcept;
  void fail(const char* why, Excess excess = Excess::kNone) noexcept;
  bool spend_control(ae::TimePoint now) noexcept;
  void on_register(const ControlMessage& message, ae::TimePoint now);
  void on_feature(const ControlMessage& message, ae::TimePoint now);
  void on_finished(const ControlMessage& message, ae::TimePoint now);
  std::optional<ControlMessage> due_after_answers(std::uint32_t planned,
                                                  std::uint32_t place) const noexcept;

  const char* failure_ = nullptr;
  // Of StreamConfig; its other members are kept by the parts below.
  Role role_;
  bool completions_prove_;
  std::uint32_t max_peer_window_, peer_receives_, receives_;
  StreamReceiver inbound_;
  StreamSender outbound_;
  Liveness liveness_;
  ControlBudget budget_;
  AnswerQueue answers_;
  Excess excess_ = Excess::kNone;
  PeerEnd peer_end_;
};

}}}  // namespace conn::rdma
