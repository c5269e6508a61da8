// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Decides when the due requests of a connection are posted to the send queue, what they wait for,
// and whether all bytes are delivered. Sender, which does not use the event loop, plans and records
// the requests.
//
// Invariants: while a call of post_due() is planned (for the time pace_at()), a timer that leads to
// this call is set, perhaps for the time of an earlier plan. On iWARP the accepting side posts
// nothing before the connecting side's first message has arrived.

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

  // --- conditions for posting --------------------------------------------------------------------
  /// Returns true if the fast path for messages may be used (conn/rdma/straight_path.h).
  bool goes_straight() const noexcept { return straight_; }
  /// Accepting side: call when the queue pair was created. On iWARP we must not post before the
  /// connecting side's first message has arrived (RFC 5044, 7.1).
  void on_accepting() noexcept {
    waits_for_first_message_ = link_.path.iwarp();
    straight_ = may_go_straight_ && !waits_for_first_message_;
  }
  /// Call when a message of the peer has arrived. On iWARP, the accepting side may post from then
  /// on.
  void on_first_message() noexcept;

  // --- posting the due requests ------------------------------------------------------------------
  /// Fast path of post_due(): posts the staged bytes (written and not posted yet) if nothing else
  /// is due and the phase is kOpen. Returns false if it has posted nothing: call post_due() then.
  bool post_straight(const CarrierHost& host) noexcept;
  struct Refusal {
    Failure why;
    /// True: the device has stopped the queue pair, or is gone, so only the network path is lost.
    /// False: the device cannot do what the connection needs.
    bool stopped = false;
  };
  /// Posts all due requests, and plans the next call. If the device refused a request, returns the
  /// reason: the connection, or its network path, must then end. Throws std::bad_alloc.
  [[nodiscard]] std::optional<Refusal> post_due(CarrierHost& host);
  /// Returns the time at which post_due() must be called even if no event occurs; no value: no such
  /// call is needed.
  std::optional<ae::TimePoint> pace_at() const noexcept {
    return pace_at_ == ae::TimePoint::max() ? std::nullopt : std::optional(pace_at_);
  }
  /// Cancels the call planned for pace_at(). `loop`: the loop that has the timer; null: the loop
  /// was destroyed.
  void clear_pace(ae::EventLoop* loop) noexcept;

  // --- delivery of all bytes ---------------------------------------------------------------------
  /// Returns true if our stream ends with a control message, which must be delivered like the
  /// bytes. False if the stream was aborted, or if the peer knows only the end of the connection.
  bool finishes() const noexcept {
    return link_.stream.peer().tells_end() && !link_.stream.outbound().end().aborted();
  }
  bool has_undelivered() const noexcept;
  /// Requests completions from now on that prove that all bytes are delivered (for drain()).
  void prove_delivery() noexcept { delivering_ = true; }

  // --- memory for the send buffer ----------------------------------------------------------------
  /// Call if there is no memory for `size` bytes in the send buffer. The loop then calls
  /// on_memory() of the connection when memory may be available.
  void wait_for_memory(std::size_t size);
  /// Allocates the memory for which the program's write handler is waiting. Returns false if there
  /// is still not enough memory.
  bool secure_memory(const CarrierHost& host) noexcept;
  /// Call when completed requests have released memory, which waiting connections can use. Returns
  /// true if this connection was waiting for memory and has got it: a handler may be due.
  [[nodiscard]] bool on_memory_back(CarrierHost& host) noexcept;
  /// Tells the program how many more pieces of its own memory, which are sent without a copy, the
  /// device has finished reading.
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
  bool straight_ = may_go_straight_;  // true if the fast path for messages may be used now
  bool delivering_ = false;           // true after prove_delivery()
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
