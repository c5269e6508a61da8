// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The byte stream of one RDMA connection, without RDMA: windows given and received, the peer's
// receive credits, keepalive, end of stream, and every rule about what a peer may claim.
// No verbs, no descriptors, no clock, no allocation: the connection feeds in what completed and
// what time it is, and carries out what next_control(), sendable() and wanted_window() say.
//
// What the peer sends is never trusted and never asserted on: a bad value sets failure(), after
// which the stream takes no more input. Asserts here are for our own mistakes.
//
// Receiving. The peer fills the windows in the order in which they were offered (WindowLine). One
// is offered; when its last byte has come, another is offered at once, before the first is read, so
// that a transfer never waits for the reader as long as it keeps up with one window. A peer whose
// hello allows it is offered more than one at a time once it says that it had to wait for them.
//
// Windows that grew and are idle now are replaced by a short one where the peer's hello allows it:
// the short one is offered although the long ones are not full, and the peer marks in the stream
// where it changes over (docs/valkey-over-rdma.md, "Windows: receiving").
//
// Sending. Bytes go into the peer's window, in order, to its very last byte; then into the next one
// it announced, or we wait for that. Each message (a control SEND or a WRITE_WITH_IMM) takes one of
// the peer's posted receives, which nobody announces: so we count messages the peer has not
// provably handled.

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "ae/abi.h"
#include "ae/time.h"
#include "conn/rdma/protocol/flow_control.h"
#include "conn/rdma/protocol/peer_windows.h"
#include "conn/rdma/protocol/window_line.h"
#include "conn/rdma/protocol/wire.h"

namespace conn { inline namespace AECONN_ABI { namespace rdma {

enum class Role : std::uint8_t { kClient, kServer };

struct StreamConfig {
  Role role = Role::kServer;
  std::uint32_t window = 64 * 1024;        ///< length of the first window we offer
  std::uint32_t max_window = 1024 * 1024;  ///< they double up to this, where they may change
  /// So many of ours exist at most, where the peer takes them ahead: 2 to WindowLine::kSlots.
  std::uint32_t max_windows = 8;
  std::uint32_t max_peer_window = 16u << 20;  ///< a longer one is refused
  /// Receives a peer keeps posted, unless it says so.
  std::uint32_t peer_receives = flow::kPlainReceives;
  std::uint32_t receives = 0;  ///< what we tell the peer of ours; 0: nothing
  /// A message that completed was taken by a receive of the peer (not so on iWARP).
  bool completions_prove = true;
  /// What the peer's device does not answer fails at last; false: it may be tried again for ever.
  bool device_gives_up = true;
  /// Control messages that nothing earned: a second, and at once.
  std::uint32_t control_rate = flow::kControlRate, control_burst = flow::kControlBurst;
  ae::Duration keepalive = std::chrono::seconds(3);  ///< 0: none
  std::uint64_t connection = 0;                      ///< whose it is, for probes
};

/// What a peer made too much of, where that is what ended its connection.
enum class Excess : std::uint8_t {
  kNone,
  kMessages,  ///< control_rate and control_burst, or questions that nobody can answer
  kWindow,    ///< max_peer_window
};

class Stream {
 public:
  Stream(const StreamConfig& config, ae::TimePoint now);

  /// The peer's hello, before anything else arrives.
  void on_hello(const Hello& hello);
  Hello hello() const;  ///< ours
  /// Before hello(): how many receives the peer can count on, and whether a message that completed
  /// was taken by one of the peer's (not so on iWARP).
  void on_receives(std::uint32_t ours, bool completions_prove) noexcept {
    config_.receives = ours;
    config_.completions_prove = completions_prove;
  }
  /// From now on the peer can speak, and its silence counts.
  void on_open(ae::TimePoint now) noexcept;

  // --- receiving ---------------------------------------------------------------------------------
  /// The length of the window the stream would like to have now, or 0. The answer is
  /// provide_window() with exactly that length, or no_window() if there is no memory, or neither:
  /// it stands.
  /// Ask after on_data(), read() and tick(), each time after take_discarded(), which makes room.
  std::uint32_t wanted_window() const noexcept;
  void provide_window(const WindowBuffer& buffer);
  /// Another in place of the one that was provided last, whose announcement has not been posted.
  void replace_window(const WindowBuffer& buffer);
  /// The stream goes on with the windows it has, and asks again a second later; without any window
  /// it fails.
  void no_window(ae::TimePoint now);
  /// A window to free: spare and of no more use. Empty `data` if there is none.
  WindowBuffer take_discarded() noexcept;
  /// For the end of the connection: no window is used any more. What was not read is copied to
  /// `into` (unread_bytes() long, which stays), and read() goes on there; null: it is lost. From
  /// now on the stream wants no windows and offers none.
  void leave_windows(std::byte* into) noexcept;

  /// A WRITE_WITH_IMM arrived; its immediate in host order.
  void on_data(std::uint32_t immediate, ae::TimePoint now);
  /// A SEND arrived. `bytes` is a private copy of the receive buffer, as long as the SEND was.
  void on_control(std::span<const std::byte> bytes, ae::TimePoint now);
  /// The peer closed; what has arrived, or is still handed in, stays readable. Nothing is sent.
  void on_peer_closed() noexcept { peer_closed_ = true; }

  /// The peer cut the stream (kAborted).
  bool peer_aborted() const noexcept { return peer_aborted_; }

  bool has_unread() const noexcept { return line_.has_unread(); }
  bool at_end() const noexcept { return peer_closed_ && !has_unread(); }
  bool peer_closed() const noexcept { return peer_closed_; }
  /// Copies out up to `size` bytes. 0 if there are none now.
  std::size_t read(std::byte* into, std::size_t size, ae::TimePoint now);
  /// What read() would give, where it lies: the oldest pieces, as many as `pieces` has room for.
  /// How many there are. They stay until they are read or consumed, or leave_windows().
  std::size_t peek(std::span<std::span<const std::byte>> pieces) const noexcept;
  /// As read(), without the copy.
  std::size_t consume(std::size_t size, ae::TimePoint now) { return read(nullptr, size, now); }
  /// With unread bytes: no more can come before some of them were read, as things stand.
  bool is_full() const noexcept { return line_.outstanding() == 0; }
  std::uint64_t unread_bytes() const noexcept { return line_.unread_bytes(); }
  /// Counts windows that became full or were read to their end. While it stands still, on_data()
  /// and read() have changed nothing about wanted_window(), take_discarded() and next_control(),
  /// but for windows that wait until more receives are proven: the answer to our question brings
  /// them.
  std::uint32_t window_turns() const noexcept { return window_turns_; }

  // --- sending -----------------------------------------------------------------------------------
  /// How many of `staged` bytes may leave as one message now.
  std::uint32_t sendable(std::size_t staged, ae::TimePoint now) const noexcept;
  std::uint64_t remote_address() const noexcept { return peer_.current().address + peer_.used(); }
  std::uint32_t remote_key() const noexcept { return peer_.current().key; }
  /// The immediate, in host order, that says so.
  std::uint32_t immediate(std::uint32_t length) const noexcept {
    return waited_ ? length | kWaited : length;
  }
  /// `length` bytes were posted, ending in one WRITE_WITH_IMM.
  void on_write_posted(std::uint32_t length, ae::TimePoint now);
  /// Bytes are staged for which there was no room: if it is a window that they wait for, the peer
  /// is told with the next that leave.
  void on_staged_left() noexcept;
  /// The device has confirmed something that was posted. Where that proves more than that it left
  /// (not so on iWARP), the peer's device is there, and the path to it, whatever its software does.
  void on_confirmed(ae::TimePoint now) noexcept {
    if (!config_.completions_prove) return;
    confirmed_at_ = now;
    asked_at_ = {};
  }
  /// So many more messages (control messages, and writes with an immediate) have completed.
  void on_messages_done(std::uint32_t count) noexcept { completed_ += count; }
  /// The next message goes beyond what is proven: its completion has to be asked for, the one after
  /// it waits for that.
  bool beyond_proof() const noexcept { return few_receives() && !can_probe(); }
  /// Cuts the stream: no more data leaves, and a control message tells the peer. False: the peer
  /// would not understand it, and none is sent.
  bool abort() noexcept;
  bool aborted() const noexcept { return aborted_; }
  /// The control message to send next, or none. It stays until on_control_posted().
  std::optional<ControlMessage> next_control(ae::TimePoint now) const noexcept;
  void on_control_posted(const ControlMessage& message, ae::TimePoint now);
  bool has_peer_window() const noexcept { return peer_.any(); }
  /// A window of ours is the peer's to write into.
  bool has_announced() const noexcept { return line_.outstanding() != 0 && !line_.to_announce(); }
  /// Of the one that is written; others may follow it.
  std::uint32_t peer_window_left() const noexcept { return peer_.left(); }
  /// With bytes staged: the stream holds them back for want of the peer's receives, and asks to be
  /// tried again at this time even if nothing arrives.
  std::optional<ae::TimePoint> retry_at(std::size_t staged) const noexcept;

  // --- time --------------------------------------------------------------------------------------
  /// Call when next_tick() has come: queues keepalives, asks the device for the peer that promised
  /// to speak and does not, lets spare memory go. Keepalives of one interval are due at the same
  /// moments, whichever connection they are for. `loop_was_stopped`: this call comes much later
  /// than planned, so silence proves nothing yet.
  void tick(ae::TimePoint now, bool loop_was_stopped);
  ae::TimePoint next_tick() const noexcept;
  /// The peer has more than one window of the first length, for which that may come at some time.
  bool has_long_window() const noexcept {
    return line_.outstanding() > 1 || line_.longest_outstanding() > config_.window;
  }
  /// A keepalive is due but the peer may have no receive for it, or is silent: prove the path with
  /// a write of no bytes instead, which takes none and which its device confirms by itself.
  bool wants_silent_probe() const noexcept { return silent_probe_; }
  /// The path may have gone: it is to be proven now.
  void ask_path() noexcept {
    if (failure_ == nullptr && !peer_closed_ && config_.completions_prove) silent_probe_ = true;
  }
  void on_silent_probe_posted() noexcept { silent_probe_ = false; }

  // --- facts -------------------------------------------------------------------------------------
  /// Why the peer broke the protocol (or died), or null.
  const char* failure() const noexcept { return failure_; }
  Excess excess() const noexcept { return excess_; }
  bool peer_is_aeconn() const noexcept { return peer_hello_.has_value(); }
  /// "aeconn 0.3.1", "aeconn" of a release that does not say which, "valkey" without a hello.
  std::string peer_kind() const;
  /// It waits where it would use more receives than it was told of.
  bool peer_counts_receives() const noexcept { return peer_said(Hello::kTellsReceives); }
  bool heard_from_peer() const noexcept { return heard_; }
  std::uint32_t peer_window_length() const noexcept { return peer_.current().length; }
  std::size_t peer_windows_ahead() const noexcept { return peer_.ahead(); }
  std::uint32_t window_length() const noexcept { return desired_; }
  /// So many are to be with the peer.
  std::size_t windows_wanted() const noexcept { return wanted_; }
  std::uint64_t pinned_bytes() const noexcept { return line_.bytes(); }
  std::uint64_t unproven_messages() const noexcept { return sent_ - proven_; }
  std::uint64_t messages_sent() const noexcept { return sent_; }
  std::uint64_t messages_received() const noexcept { return received_; }

  /// Asserts the invariants; tests and the fuzzer call it after every step.
  void check() const;

 private:
  void fail(const char* why, Excess excess = Excess::kNone) noexcept;
  bool spend_control(ae::TimePoint now) noexcept;
  bool question_is_due() noexcept;
  bool keepalive_is_due(ae::TimePoint now) noexcept;
  void heard(ae::TimePoint now) noexcept;
  void on_register(const ControlMessage& message, ae::TimePoint now);
  void on_feature(const ControlMessage& message, ae::TimePoint now);
  void grow() noexcept;
  void offer_spares() noexcept;
  void on_mark() noexcept;
  bool was_idle(std::uint32_t length, ae::TimePoint now) const noexcept;
  void on_peer_waited(ae::TimePoint now) noexcept;
  bool may_recall() const noexcept;
  bool wants_another() const noexcept {
    return !line_.leaving() && line_.outstanding() < wanted_ && line_.count() <= wanted_;
  }
  std::uint32_t most_wanted() const noexcept;
  bool peer_said(std::uint32_t flag) const noexcept {
    return peer_hello_ && (peer_hello_->flags & flag) == flag;
  }
  std::uint64_t peer_receives() const noexcept;
  ae::Duration promised_interval() const noexcept;
  ae::Duration silence_allowed() const noexcept;
  ae::TimePoint last_sign() const noexcept { return std::max(heard_at_, confirmed_at_); }
  void watch_silence(ae::TimePoint now) noexcept;
  ae::TimePoint next_look_at_silence() const noexcept;
  ae::Duration long_quiet() const noexcept;
  bool window_may_change() const noexcept;
  bool can_probe() const noexcept {
    return config_.role == Role::kClient || peer_said(Hello::kAnswersProbes);
  }
  std::uint64_t reserve() const noexcept;
  bool few_receives() const noexcept;
  bool offer_waits() const noexcept;
  bool starved(ae::TimePoint now) const noexcept;

  StreamConfig config_;
  const char* failure_ = nullptr;
  std::optional<Hello> peer_hello_;
  Excess excess_ = Excess::kNone;

  // receiving
  bool reader_late_ = false;    // no window was left because we had not read those that are full
  bool recall_ = false;         // a short one is to replace those that are outstanding
  bool window_failed_ = false;  // no memory for another window
  bool drop_spare_ = false;     // nothing has filled a window for a while
  bool peer_closed_ = false, peer_aborted_ = false;
  bool released_ = false;  // take_any() was called
  bool heard_ = false;
  WindowLine line_;
  std::uint32_t desired_;     // length of the next window
  std::uint32_t useful_ = 0;  // the longest that was filled fast in the last burst
  // Of the window that became full last: its length, and what came after its first bytes.
  std::uint32_t last_length_ = 0, last_rest_ = 0;
  std::uint32_t window_turns_ = 0;
  std::uint32_t wanted_ = 1;       // so many are to be outstanding
  std::uint32_t wanted_next_ = 2;  // and so many when the peer waited for the first time in a burst
  std::uint32_t earned_ = 0;       // windows that were filled, and whose successor has not come
  ae::TimePoint window_failed_until_{};
  ae::TimePoint more_since_{};  // wanted_ grew
  ae::Duration last_rest_took_{};
  ae::TimePoint last_full_at_, last_data_at_;
  double tokens_;
  ae::TimePoint tokens_at_;
  ae::TimePoint keepalives_paid_{};  // as if each took flow::kKeepalivePrice
  ae::TimePoint heard_at_;           // the peer's software
  ae::TimePoint confirmed_at_{};     // its device, for what we posted
  ae::TimePoint asked_at_{};         // the device, since either was heard
  std::uint64_t received_ = 0;
  std::uint64_t received_at_question_ = 0;  // of the peer's, the last: itself among them

  // sending
  PeerWindows peer_;
  std::uint64_t sent_ = 0;          // messages posted, each takes a receive of the peer
  std::uint64_t proven_ = 0;        // of these, provably handled by the peer's software
  std::uint64_t sent_at_full_ = 0;  // sent_ when the window was exhausted
  std::uint64_t completed_ = 0;     // of sent_
  ae::TimePoint last_write_at_;
  ae::TimePoint keepalive_at_;
  std::uint64_t probe_covers_ = 0;
  std::array<std::uint16_t, flow::kMostAnswers> replies_{};  // selects to answer, a ring
  std::size_t reply_head_ = 0, reply_count_ = 0;
  std::uint16_t probe_select_ = 0;
  bool probe_outstanding_ = false;
  bool aborted_ = false, abort_due_ = false;
  bool mark_due_ = false;  // we left a window that was not full
  bool waited_ = false;    // bytes had no window since the last that left
  bool keepalive_due_ = false, silent_probe_ = false;
};

}}}  // namespace conn::rdma
