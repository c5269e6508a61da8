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
// posts it, and then reports what the device took, with on_control_posted() and
// StreamSender::on_write_posted(); what the device refused stays due, unchanged.
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
    outbound_.proof().set_completions_prove(completions_prove);
    liveness_.set_device(completions_prove, retries);
  }
  /// Records that the stream can go on over another path. A dead path is then reported by
  /// Liveness::dead(), and is no failure.
  void set_resumes() noexcept { outbound_.set_resumes(); }

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
  StreamSender& outbound() noexcept { return outbound_; }
  const StreamSender& outbound() const noexcept { return outbound_; }
  const PeerFacts& peer() const noexcept { return outbound_.peer(); }
  const PeerEnd& peer_end() const noexcept { return peer_end_; }
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
    if (!peer_end_.takes_data() || !inbound_.take_straight(immediate, now)) return false;
    liveness_.on_heard(now);
    // What the offer of this window proves, its first message has proved.
    outbound_.proof().on_received();
    return true;
  }
  /// Call when a SEND arrived. `bytes`: a private copy of the receive buffer, as long as the SEND
  /// was.
  void on_control(std::span<const std::byte> bytes, ae::TimePoint now);
  /// Call when the peer has closed. Bytes that have arrived, or that are still passed in, stay
  /// readable; nothing more is sent.
  void on_peer_closed() noexcept {
    peer_end_.on_closed();
    inbound_.end();
    outbound_.stop();
  }
  /// Returns true if every byte of the peer's stream was read.
  bool at_end() const noexcept { return peer_end_.input_over() && !inbound_.has_unread(); }

  // --- sending -----------------------------------------------------------------------------------
  /// Returns true if `staged` bytes may be sent now as one message that does not fill the peer's
  /// window, and no control message and no probe is due, so that this message is all there is to
  /// send.
  bool takes_straight(std::uint32_t staged) const noexcept {
    return outbound_.takes_straight(staged) && inbound_.line().unannounced() == 0 &&
           answers_.empty() && liveness_.has_nothing_due();
  }
  /// Returns false only if next_control() would return no message. For most messages of the peer
  /// this is the answer, and it costs little.
  bool may_have_control() const noexcept {
    return outbound_.may_have_control() || inbound_.line().unannounced() != 0 ||
           !answers_.empty() || liveness_.keepalive_is_due();
  }
  /// Returns the control message that is due after the first `planned` due ones, or no value if
  /// there are no more: next_control(now, 0), next_control(now, 1) ... are the due messages in
  /// order. They stay the same until on_control_posted() or new input.
  std::optional<ControlMessage> next_control(ae::TimePoint now,
                                             std::uint32_t planned = 0) const noexcept;
  /// Records that `message`, which next_control(now) returned, has been posted.
  void on_control_posted(const ControlMessage& message, ae::TimePoint now);

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
    if (!outbound_.stopped()) liveness_.ask_path();
  }

  // --- facts about the stream --------------------------------------------------------------------
  /// Returns why the stream failed: the peer broke the protocol or is considered dead, or there was
  /// no memory for a window. Null if it has not failed.
  const char* failure() const noexcept { return failure_; }
  Excess excess() const noexcept { return excess_; }
  /// Returns true if the stream failed because there was no memory for the windows that the peer
  /// announces.
  bool lacks_memory() const noexcept { return failure_ == PeerWindows::kNoMemory; }

  /// Asserts the invariants of the stream and its parts. Tests and the fuzzer call it after every
  /// step.
  void check() const;

 private:
  void fail(const char* why, Excess excess = Excess::kNone) noexcept;
  bool spend_control(ae::TimePoint now) noexcept;
  void on_register(const ControlMessage& message, ae::TimePoint now);
  void on_feature(const ControlMessage& message, ae::TimePoint now);
  void on_finished(const ControlMessage& message, ae::TimePoint now);
  std::optional<ControlMessage> due_after_answers(std::uint32_t planned,
                                                  std::uint32_t place) const noexcept;

  StreamConfig config_;
  const char* failure_ = nullptr;
  StreamReceiver inbound_;
  StreamSender outbound_;
  Liveness liveness_;
  ControlBudget budget_;
  AnswerQueue answers_;
  Excess excess_ = Excess::kNone;
  PeerEnd peer_end_;
};

}}}  // namespace conn::rdma
