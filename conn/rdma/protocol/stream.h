// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The byte stream of one RDMA connection, without RDMA: windows offered and received, the peer's
// receive credits, keepalive, end of stream, and every check of what a peer sends. It uses no
// verbs, no descriptors, no clock and no allocation: the connection passes in completions and the
// current time, and carries out what next_control(), sendable() and wanted_window() return.
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
  std::uint32_t window = 64 * 1024;        ///< length of the first window we offer
  std::uint32_t max_window = 1024 * 1024;  ///< windows double up to this, where they may change
  /// Most windows of ours that may exist, where the peer takes them ahead: 2 to
  /// ReceiveWindowQueue::kSlots.
  std::uint32_t max_windows = 8;
  std::uint32_t max_peer_window = 16u << 20;  ///< a longer window of the peer is refused
  /// Receives that a peer keeps posted, unless it announces a number.
  std::uint32_t peer_receives = flow::kPlainReceives;
  std::uint32_t receives = 0;  ///< number of our receives that we announce; 0: none
  /// A completed message was taken by a receive of the peer (not so on iWARP).
  bool completions_prove = true;
  /// Requests that the peer's device does not answer fail in the end; false: the device may retry
  /// them for ever.
  bool device_gives_up = true;
  /// Control messages that the peer may send without having earned them: per second, and at once.
  std::uint32_t control_rate = flow::kControlRate, control_burst = flow::kControlBurst;
  ae::Duration keepalive = std::chrono::seconds(3);  ///< 0: none
  std::uint64_t connection = 0;                      ///< its id, for tracing probes
};

/// What a peer sent too much of, where that ended its connection.
enum class Excess : std::uint8_t {
  kNone,
  kMessages,  ///< control_rate and control_burst, or probes faster than answers can leave
  kWindow,    ///< max_peer_window
};

class Stream {
 public:
  Stream(const StreamConfig& config, ae::TimePoint now);

  /// Takes the peer's hello; to be called before anything else arrives.
  void on_hello(const Hello& hello);
  Hello hello() const;  ///< ours
  /// To be called before hello(): how many receives the peer can count on, and whether a completed
  /// message was taken by one of the peer's receives (not so on iWARP).
  void on_receives(std::uint32_t ours, bool completions_prove) noexcept {
    config_.receives = ours;
    proof_.set_completions_prove(completions_prove);
    liveness_.set_completions_prove(completions_prove);
  }
  /// Sets the id for tracing probes (StreamConfig::connection).
  void set_connection(std::uint64_t id) noexcept { config_.connection = id; }

  // --- its parts ---------------------------------------------------------------------------------
  StreamReceiver& inbound() noexcept { return inbound_; }
  const StreamReceiver& inbound() const noexcept { return inbound_; }
  const PeerWindows& peer_windows() const noexcept { return peer_windows_; }
  const PeerFacts& peer() const noexcept { return peer_; }
  const Proof& proof() const noexcept { return proof_; }
  Liveness& liveness() noexcept { return liveness_; }
  const Liveness& liveness() const noexcept { return liveness_; }

  // --- receiving ---------------------------------------------------------------------------------
  /// The stream continues with the windows it has and asks again a second later; without any window
  /// it fails.
  void no_window(ae::TimePoint now);
  /// A WRITE_WITH_IMM arrived; `immediate` is in host order.
  void on_data(std::uint32_t immediate, ae::TimePoint now);
  /// A SEND arrived. `bytes` is a private copy of the receive buffer, as long as the SEND was.
  void on_control(std::span<const std::byte> bytes, ae::TimePoint now);
  /// The peer closed. Bytes that have arrived or are still passed in stay readable; nothing is
  /// sent.
  void on_peer_closed() noexcept {
    peer_closed_ = true;
    inbound_.end();
  }

  /// The peer aborted the stream (kAborted).
  bool peer_aborted() const noexcept { return peer_aborted_; }

  bool at_end() const noexcept { return peer_closed_ && !inbound_.has_unread(); }
  bool peer_closed() const noexcept { return peer_closed_; }

  // --- sending -----------------------------------------------------------------------------------
  /// How many of `staged` bytes may be sent now as one message, after `planned` control messages
  /// that will be posted just before it.
  std::uint32_t sendable(std::size_t staged, ae::TimePoint now,
                         std::uint32_t planned = 0) const noexcept;
  /// The immediate, in host order, for a message of `length` bytes.
  std::uint32_t immediate(std::uint32_t length) const noexcept {
    return waited_ ? length | kWaited : length;
  }
  /// `length` bytes were posted, ending in one WRITE_WITH_IMM.
  void on_write_posted(std::uint32_t length, ae::TimePoint now);
  /// Staged bytes could not be sent. If they wait for a window, the next write tells the peer so.
  void on_staged_left() noexcept;
  /// `count` more messages (control messages, and writes with an immediate) have completed.
  void on_messages_done(std::uint32_t count) noexcept { proof_.on_completed(count); }
  /// Aborts the stream: no more data is sent, and a control message tells the peer. False: the peer
  /// would not understand that message, and none is sent.
  bool abort() noexcept;
  bool aborted() const noexcept { return aborted_; }
  /// The control message to send once the first `planned` of those that are due now are posted, or
  /// none: next_control(now, 0), next_control(now, 1) ... are the due messages in order. They stay
  /// the same until on_control_posted() or new input.
  std::optional<ControlMessage> next_control(ae::TimePoint now,
                                             std::uint32_t planned = 0) const noexcept;
  /// `message`, which was next_control(now), has been posted.
  void on_control_posted(const ControlMessage& message, ae::TimePoint now);
  /// With bytes staged: the stream holds them back because the peer may lack receives, and must be
  /// tried again at this time even if nothing arrives.
  std::optional<ae::TimePoint> retry_at(std::size_t staged) const noexcept;

  // --- time --------------------------------------------------------------------------------------
  /// Call it when next_tick() has come. Queues keepalives, probes the device of a peer that
  /// promised keepalives and is silent, and releases spare memory. Keepalives of one interval are
  /// due at the same moments on all connections. `loop_was_stopped`: this call comes much later
  /// than planned, so silence proves nothing yet.
  void tick(ae::TimePoint now, bool loop_was_stopped);
  ae::TimePoint next_tick() const noexcept;
  /// The path may have failed: requests a proof of it now.
  void ask_path() noexcept {
    if (failure_ == nullptr && !peer_closed_) liveness_.ask_path();
  }

  // --- facts -------------------------------------------------------------------------------------
  /// Why the peer broke the protocol (or is considered dead), or null.
  const char* failure() const noexcept { return failure_; }
  Excess excess() const noexcept { return excess_; }

  /// Asserts the invariants; tests and the fuzzer call it after every step.
  void check() const;

 private:
  void fail(const char* why, Excess excess = Excess::kNone) noexcept;
  bool spend_control(ae::TimePoint now) noexcept;
  void on_register(const ControlMessage& message, ae::TimePoint now);
  void on_feature(const ControlMessage& message, ae::TimePoint now);
  std::optional<ControlMessage> due_after_answers(std::uint32_t planned,
                                                  std::uint32_t place) const noexcept;

  StreamConfig config_;
  const char* failure_ = nullptr;
  PeerFacts peer_;
  Excess excess_ = Excess::kNone;
  bool peer_closed_ = false, peer_aborted_ = false;
  StreamReceiver inbound_;
  Proof proof_;
  Liveness liveness_;
  ControlBudget budget_;

  // sending
  PeerWindows peer_windows_;
  std::uint32_t earned_ = 0;  // windows that were filled and whose successor has not arrived
  std::array<std::uint16_t, flow::kMostAnswers> replies_{};  // selects to answer, a ring
  std::size_t reply_head_ = 0, reply_count_ = 0;
  bool aborted_ = false, abort_due_ = false;
  bool mark_due_ = false;  // we left a window of the peer that was not full
  bool waited_ = false;    // bytes lacked a window since the last write
};

}}}  // namespace conn::rdma
