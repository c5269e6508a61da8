// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The sending half of a connection on its loop: when what is due is posted to the send queue, what
// it waits for, and what is still to be delivered. Sender, which knows nothing of the loop, plans
// and records the requests.
//
// Invariants: if the timer is set, the next call of post_due() is planned for pace_at(). On iWARP
// nothing is posted by an accepting side before the connecting side's first message.

#include <cstddef>
#include <cstdint>
#include <optional>

#include "ae/abi.h"
#include "ae/event_loop.h"
#include "ae/time.h"
#include "conn/error.h"
#include "conn/kit/probes.h"
#include "conn/rdma/link.h"
#include "conn/rdma/straight_path.h"
#include "conn/spi/carrier.h"

namespace conn { inline namespace AECONN_ABI { namespace rdma {

class Posting {
 public:
  /// Stores a reference to `link`, which must outlive this object.
  explicit Posting(Link& link) noexcept : link_(link) {}
  Posting(const Posting&) = delete;
  Posting& operator=(const Posting&) = delete;

  // --- who may post ------------------------------------------------------------------------------
  /// Whether operations may take the straight path (conn/rdma/straight_path.h).
  bool goes_straight() const noexcept { return straight_; }
  /// Accepting side: call when a queue pair was made for the peer's request. On iWARP the
  /// connecting side must send the first message (RFC 5044, 7.1).
  void on_accepting() noexcept {
    waits_for_first_message_ = link_.path.iwarp();
    straight_ = may_go_straight_ && !waits_for_first_message_;
  }
  /// Call when a message of the peer has arrived.
  void on_first_message() noexcept;

  // --- posting -----------------------------------------------------------------------------------
  /// Posts what is staged, if nothing else is due and the phase is kOpen. Returns false if nothing
  /// was posted: then post_due() decides.
  bool post_straight(const CarrierHost& host) noexcept;
  struct Refusal {
    Failure why;
    /// Whether the queue pair can send no more: the device has stopped it, or is gone. Only the
    /// path is lost then. False: the device cannot do what the connection needs.
    bool stopped = false;
  };
  /// Posts all that is due, and plans the next call. Returns the reason if the device refused a
  /// request; the connection, or its path, must then end. Throws std::bad_alloc.
  [[nodiscard]] std::optional<Refusal> post_due(CarrierHost& host);
  /// When post_due() must be called even if no event occurs; no value: no such call is needed.
  std::optional<ae::TimePoint> pace_at() const noexcept {
    return pace_at_ == ae::TimePoint::max() ? std::nullopt : std::optional(pace_at_);
  }
  /// Cancels the call at pace_at(). `loop`: the loop that has the timer; null: it is gone.
  void clear_pace(ae::EventLoop* loop) noexcept;

  // --- what is to be delivered -------------------------------------------------------------------
  /// Returns true if the end of our stream is a message of its own, which must be delivered as
  /// bytes are; false towards a peer that knows only the end of the connection.
  bool finishes() const noexcept {
    return link_.stream.peer().tells_end() && !link_.stream.outbound().end().aborted();
  }
  bool has_undelivered() const noexcept;
  /// From now on completions are requested that prove that all bytes are delivered.
  void prove_delivery() noexcept { delivering_ = true; }

  // --- memory to send from -----------------------------------------------------------------------
  /// Call if there is no memory to send `size` bytes from. Arranges that the loop calls on_memory()
  /// of the connection once memory may be available again.
  void wait_for_memory(std::size_t size);
  /// Allocates the memory that the program's write handler waits for. Returns false if there is
  /// still not enough memory.
  bool secure_memory(const CarrierHost& host) noexcept;
  /// Call when completed requests have given memory back. Returns true if the connection waited for
  /// memory and has it now: a handler may be due.
  [[nodiscard]] bool on_memory_back(CarrierHost& host) noexcept;
  /// Reports to the program that the device has read those pieces of its memory that were sent
  /// without a copy.
  void tell_references(CarrierHost& host) noexcept {
    if (const std::size_t count = link_.sender.queue().take_done(); count != 0)
      host.references_done(count, {});
  }

 private:
  bool post_chain(CarrierHost& host, std::optional<Refusal>& refusal);
  void keep_pace();

  Link& link_;
  ae::TimePoint pace_at_ = ae::TimePoint::max();  // max(): no call is planned
  ae::TimerId timer_ = 0;
  const bool may_go_straight_ = StraightPath::on;
  // iWARP, accepting side: true until the connecting side has sent the first message.
  bool waits_for_first_message_ = false;
  bool straight_ = may_go_straight_;  // may_go_straight_ && !waits_for_first_message_
  bool delivering_ = false;           // see prove_delivery()
};

[[gnu::always_inline]] inline bool Posting::post_straight(const CarrierHost& host) noexcept {
  if (!straight_ || link_.stage.phase() != Phase::kOpen || delivering_ ||
      link_.windows.may_have_key_to_change())
    return false;
  const std::uint32_t bytes = link_.sender.post_straight(link_.queue_pair(), link_.state().now());
  if (bytes == 0) return false;
  LoopStatistics& statistics = link_.state().statistics();
  ++statistics.doorbells;
  ++statistics.work_requests;
  statistics.inline_sends += bytes <= link_.sender.inline_limit() ? 1 : 0;
  AECONN_PROBE(post, host.id(), bytes, std::size_t{1});
  pace_at_ = ae::TimePoint::max();
  const ae::TimePoint ask_at = link_.sender.ask_at();
  if (link_.user().due() > ask_at) link_.state().look_at(link_.user(), ask_at);
  return true;
}

}}}  // namespace conn::rdma
