// SPDX-License-Identifier: BSD-3-Clause
#include "conn/rdma/posting.h"

#include <chrono>
#include <system_error>
#include <utility>

namespace conn { inline namespace AECONN_ABI { namespace rdma {
namespace {

// Pause before requests are posted again if the device reports a full send queue although fewer
// requests are in flight than the queue should be able to hold.
constexpr ae::Duration kFullQueueRetry = std::chrono::milliseconds(1);

void count(Stall stall, LoopStatistics& statistics) noexcept {
  statistics.stalls_window += stall == Stall::kWindow ? 1 : 0;
  statistics.stalls_receives += stall == Stall::kReceives ? 1 : 0;
  statistics.stalls_send_queue += stall == Stall::kSendQueue ? 1 : 0;
}

// Returns the result of post_due() for a queue pair that the device has stopped. `what`: the
// operation that failed.
Posting::Refusal stopped(const char* what, const DeviceContext& context) {
  return {stopped_failure(what, context), true};
}

}  // namespace

void Posting::on_first_message() noexcept {
  if (!std::exchange(waits_for_first_message_, false)) return;
  straight_ = may_go_straight_;
  link_.state().want_flush(link_.user());
}

// --- posting the due requests --------------------------------------------------------------------

std::optional<Posting::Refusal> Posting::post_due(CarrierHost& host) {
  std::optional<Refusal> refusal;
  if (waits_for_first_message_) return refusal;
  while (post_chain(host, refusal)) {
  }
  // The message that ends our stream must follow the last byte of the stream.
  if (!refusal && link_.stage.phase() != Phase::kOpen && link_.stage.phase() != Phase::kResending &&
      finishes() && link_.sender.queue().staged() == 0 && !link_.sender.queue().reserving() &&
      link_.stream.outbound().finish(link_.stage.phase() == Phase::kClosing))
    while (post_chain(host, refusal)) {
    }
  if (!refusal) keep_pace();
  return refusal;
}

void Posting::keep_pace() {
  LoopState& state = link_.state();
  if (link_.sender.has_idle_work()) count(link_.sender.on_idle(state.now()), state.statistics());
  // While a key change (a bind or invalidation) must be alone on the send queue, all other requests
  // wait for it. No timer is needed then: the completion of the key change leads to the next call
  // of post_due().
  const bool key_goes_alone = link_.keys_go_alone() && link_.windows.has_key_to_change();
  const std::optional<ae::TimePoint> retry =
      key_goes_alone ? std::nullopt
                     : link_.stream.outbound().retry_at(link_.sender.queue().staged());
  pace_at_ = retry.value_or(ae::TimePoint::max());
  if (link_.sender.was_refused()) pace_at_ = std::chrono::steady_clock::now() + kFullQueueRetry;
  if (pace_at_ == ae::TimePoint::max() || timer_ != 0) return;
  state.keep_pace_of(link_.user());
  timer_ = state.loop().add_time_event(pace_at_, [this] {
    timer_ = 0;
    link_.state().want_flush(link_.user());
    return ae::kNoMore;
  });
}

// Posts one chain of the requests that are due. Returns true if another chain should be posted at
// once; sets `refusal` if the device refused a request.
bool Posting::post_chain(CarrierHost& host, std::optional<Refusal>& refusal) {
  using How = Sender::Posted::How;
  const bool prove = link_.stage.phase() != Phase::kOpen || delivering_;
  const Sender::Posted posted = link_.sender.post(
      link_.queue_pair(), link_.windows, link_.keys_go_alone(), prove, link_.state().now());
  if (posted.how == How::kNothing) return false;
  LoopStatistics& statistics = link_.state().statistics();
  ++statistics.doorbells;
  statistics.work_requests += posted.requests;
  statistics.inline_sends += posted.inlined;
  statistics.control_sent += posted.control;
  AECONN_PROBE(post, host.id(), posted.bytes, posted.requests);
  tell_references(host);
  const ae::TimePoint ask_at = link_.sender.ask_at();
  if (posted.asks && link_.user().due() > ask_at) link_.state().look_at(link_.user(), ask_at);
  switch (posted.how) {
    case How::kNothing:
    case How::kDone:
      return false;
    case How::kMore:
      return true;
    case How::kKeyRefused:
      if (link_.on_key_refused(*posted.window)) return true;
      if (can_send(link_.queue_pair()))
        refusal = {bind_failure(*link_.context(), link_.settings(), EOPNOTSUPP)};
      else
        refusal = stopped("binding a key to the queue pair", *link_.context());
      return false;
    case How::kFailed:
      break;
  }
  constexpr const char* kWhat = "posting to the send queue";
  Device& device = link_.context()->device();
  if (!can_send(link_.queue_pair())) {
    refusal = stopped(kWhat, *link_.context());
    return false;
  }
  // The driver has not said which request failed. If it may have been one that changes a key, the
  // device counts as unable to bind keys. (A stopped queue pair does not show that: the peer may be
  // the cause.)
  if (posted.maybe_key && device.binding() == Device::Binding::kUnsure) device.give_up_binding();
  refusal = {errno_failure(posted.error, kWhat)};
  return false;
}

void Posting::clear_pace(ae::EventLoop* loop) noexcept {
  if (timer_ != 0 && loop != nullptr) loop->remove_time_event(timer_);
  timer_ = 0;
  pace_at_ = ae::TimePoint::max();
}

bool Posting::has_undelivered() const noexcept {
  if (!link_.stage.open()) return false;
  if (link_.stage.phase() == Phase::kResending) return true;
  if (link_.stream.outbound().end().aborted())
    return link_.sender.requests().count() != 0 || link_.stream.next_control(link_.state().now());
  if (link_.stage.phase() != Phase::kOpen && finishes() &&
      (!link_.stream.outbound().end().finished(link_.stage.phase() == Phase::kClosing) ||
       link_.sender.requests().count() != 0))
    return true;
  return link_.sender.queue().staged() != 0 || link_.sender.requests().data_under_way();
}

// --- memory for the send buffer ------------------------------------------------------------------

void Posting::wait_for_memory(std::size_t size) {
  link_.sender.buffer().wait_for_memory(size, link_.state().now());
  link_.state().wait_for_memory(link_.user());
  if (link_.sender.requests().count() != 0)
    // Requests of this connection that are in flight use memory. The loop therefore calls
    // post_due(), which may request a completion that frees this memory.
    link_.state().want_flush(link_.user());
}

bool Posting::secure_memory(const CarrierHost& host) noexcept {
  return link_.sender.buffer().secure(link_.stage.phase() == Phase::kOpen && host.wants_write(),
                                      link_.settings().limit());
}

bool Posting::on_memory_back(CarrierHost& host) noexcept {
  tell_references(host);
  const bool secured = link_.sender.buffer().waits_for_memory() && secure_memory(host);
  link_.state().memory_came_back();
  return secured;
}

}}}  // namespace conn::rdma
