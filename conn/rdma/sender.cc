// SPDX-License-Identifier: BSD-3-Clause
#include "conn/rdma/sender.h"

#include <algorithm>
#include <utility>

namespace conn { inline namespace AECONN_ABI { namespace rdma {

// --- creation and end of the queue pair ----------------------------------------------------------

void Sender::begin(const Limits& limits, RegisteredPool* pool, const MemoryLimit& memory) {
  limits_ = limits;
  signal_every_ = flow::signal_every(limits.requests);
  if (queue().held() == 0) queue().use_cell(limits.inline_bytes);
  requests_.begin(limits.requests);
  if (limits.inline_bytes < kControlSize) get_control(pool, memory);
}

void Sender::keep_until_confirmed(RegisteredPool* pool, const MemoryLimit& memory) {
  if (limits_.inline_bytes >= kControlSize) get_control(pool, memory);
  limits_.inline_bytes = 0;
  if (queue().held() == 0) queue().use_cell(0);
}

void Sender::get_control(RegisteredPool* pool, const MemoryLimit& memory) {
  Failure why;
  control_ = pool->acquire(requests_.places() * kControlSize, memory, &why);
  if (control_ == nullptr) throw VerbsError(std::move(why));
}

void Sender::release_control(RegisteredPool& pool) noexcept {
  if (control_ != nullptr) pool.release(std::exchange(control_, nullptr));
}

// --- posting chains of requests ------------------------------------------------------------------

// The part of post_straight() for bytes that are in a registered block, not in the small array of
// the queue (the "cell").
std::uint32_t Sender::post_block_straight(ibv_qp* qp, ae::TimePoint now) noexcept {
  const std::size_t staged = queue().staged();
  if (staged - 1 >= kShortBatch || queue().referred() != 0 || queue().held() > buffer_.size() / 2)
    return 0;
  const StagingQueue::Segment from = queue().only_segment();
  if (from.data == nullptr || !stream_.takes_straight(from.length)) return 0;
  const bool copied = from.length <= limits_.inline_bytes;
  if (!post_write(qp, from, copied ? static_cast<unsigned>(IBV_SEND_INLINE) : 0, now)) return 0;
  const bool gone = copied && queue().in_flight() == 0;
  if (gone)
    queue().on_all_copied();
  else
    queue().on_posted(from.length);
  requests_.add_data(gone ? 0 : from.length);
  if (!gone || ask_at_ != ae::TimePoint::max()) (void)ask_later(now);
  return from.length;
}

Sender::Posted Sender::post(ibv_qp* qp, WindowMemory& windows, bool keys_alone, bool prove,
                            ae::TimePoint now) {
  Posted posted;
  if (unsure_error_ != 0) {
    posted.how = Posted::How::kFailed;
    posted.error = std::exchange(unsure_error_, std::uint16_t{0});
    return posted;
  }
  SendChain chain(limits_.requests - requests_.count(), requests_.posted());
  ChainPlan plan;
  plan.prove = prove;
  plan.now = now;
  if (keys_alone && windows.has_key_to_change()) {
    plan_keys_alone(chain, plan, windows);
  } else {
    plan_keys(chain, plan, windows);
    if (stream_.may_have_control()) plan_control(chain, plan);
    plan_data(chain, plan);
    plan_probe(chain, plan);
  }
  post_again_ = false;
  if (chain.size() == 0) return posted;
  const std::uint32_t last_signaled = plan_signals(chain, plan);
  const SendChain::Result result = chain.post(qp);
  post_again_ = result.error == ENOMEM;
  posted.requests = result.posted;
  posted.inlined = chain.inlined(result.posted);
  const bool key_refused =
      result.error != 0 && result.error != ENOMEM && result.known && result.posted < plan.keys_end;
  if (result.error != 0 && (result.error != ENOMEM || !result.known) && !key_refused) {
    posted.how = Posted::How::kFailed;
    posted.error = result.error;
    posted.maybe_key = !result.known && plan.keys_end != 0;
    return posted;
  }
  // The last write of a batch carries the immediate value. If it was not posted, the peer does not
  // learn of the bytes, so all bytes of the batch count as not sent.
  if (result.posted < plan.data_end) plan.bytes = 0;
  posted.bytes = plan.bytes;
  posted.control =
      std::min(result.posted, plan.control_end) - std::min(result.posted, plan.keys_end);
  commit(plan, result.posted);
  // If only a part of the chain was posted, the requests that ask for a completion may not be in
  // it, so the number of the last such request is not changed.
  if (result.posted == chain.size()) requests_.set_last_signaled(last_signaled);
  if (key_refused) {
    posted.how = Posted::How::kKeyRefused;
    posted.window = plan.window[result.posted];
    return posted;
  }
  posted.asks = ask_later(now);
  // A chain contains only one batch of data. If more bytes can be sent, for example because the
  // peer has offered another receive window, or because messages have left no place for any,
  // another chain is needed.
  const bool had_no_place = chain.size() + flow::kControlSlots >= SendChain::kLimit;
  const bool more =
      (plan.bytes != 0 || had_no_place) && stream_.outbound().sendable(queue().staged(), now) != 0;
  posted.how = result.error == 0 && (more || chain.size() == SendChain::kLimit)
                   ? Posted::How::kMore
                   : Posted::How::kDone;
  return posted;
}

void Sender::post_last(ibv_qp* qp) noexcept {
  if (requests_.failed() || requests_.last_is_signaled() || requests_.count() == 0) return;
  SendChain chain(limits_.requests - requests_.count(), requests_.posted());
  if (chain.full()) return;
  chain.write_nothing(stream_.outbound().peer_windows().position(),
                      stream_.outbound().peer_windows().current().key);
  chain.signal(0);
  if (chain.post(qp).posted == 0) return;
  requests_.add(0, false);
  requests_.set_last_signaled(requests_.posted());
}

SendChain::Result Sender::post_keys(ibv_qp* qp, WindowMemory& windows) {
  SendChain chain(limits_.requests, requests_.posted());
  ChainPlan plan;
  plan_keys(chain, plan, windows);
  if (chain.size() == 0) return {0, 0, true};
  const std::uint32_t last_signaled = plan_signals(chain, plan);
  const SendChain::Result result = chain.post(qp);
  commit(plan, result.posted);
  if (result.posted == chain.size()) requests_.set_last_signaled(last_signaled);
  return result;
}

Stall Sender::on_idle(ae::TimePoint now) noexcept {
  const bool left = queue().staged() != 0;
  if (left) stream_.outbound().on_staged_left();
  buffer_.on_idle(now);
  return left ? find_stall(now) : Stall::kNone;
}

Stall Sender::find_stall(ae::TimePoint now) noexcept {
  const auto written = static_cast<std::uint32_t>(stream_.outbound().peer_windows().total());
  if (stalled_at_ == written) return Stall::kNone;
  Stall stall = stream_.outbound().waits_for(now);
  const bool full = requests_.count() + flow::kControlSlots >= limits_.requests;
  if (stall == Stall::kNone && stream_.outbound().sendable(queue().staged(), now) != 0 &&
      (full || post_again_))
    stall = Stall::kSendQueue;
  if (stall != Stall::kNone) stalled_at_ = written;
  return stall;
}

// Sets ask_at_, the time at which to request a completion, unless it is set already. Clears it if
// the last request has asked for a completion, or if no memory depends on a completion. Returns
// true if this call has set ask_at_.
bool Sender::ask_later(ae::TimePoint now) noexcept {
  constexpr ae::Duration kLater = std::chrono::seconds(5);
  if (requests_.last_is_signaled() || queue().held() == 0) {
    ask_at_ = ae::TimePoint::max();
    return false;
  }
  if (ask_at_ != ae::TimePoint::max()) return false;
  ask_at_ = now + kLater;
  return true;
}

void Sender::plan_keys(SendChain& chain, ChainPlan& plan, WindowMemory& windows) {
  const std::size_t keys = windows.waiting_for_key(std::span(plan.window).first(chain.room()));
  for (std::size_t i = 0; i < keys; ++i) chain.change_key(*plan.window[i]);
  plan.keys_end = plan.control_end = plan.data_end = chain.size();
  // Requests a completion for the key changes: after it, another receive window can be created in
  // place of one whose key was invalidated. It also shows that the device can bind keys.
  if (plan.keys_end != 0) plan.signal_last = true;
}

// Plans key changes that must be alone in the send queue (Device::binds_alone()). Earlier requests
// must complete first; if none of them requests a completion, a write of zero bytes does. Later
// requests wait for the key changes.
void Sender::plan_keys_alone(SendChain& chain, ChainPlan& plan, WindowMemory& windows) {
  if (requests_.count() == 0) return plan_keys(chain, plan, windows);
  if (windows.key_under_way() || requests_.last_is_signaled() || chain.full()) return;
  chain.write_nothing(stream_.outbound().peer_windows().position(),
                      stream_.outbound().peer_windows().current().key);
  plan.signal_last = true;
}

void Sender::plan_control(SendChain& chain, ChainPlan& plan) {
  for (; !chain.full(); ++plan.control) {
    const std::optional<ControlMessage> message = stream_.next_control(plan.now, plan.control);
    if (!message) break;
    const ControlBytes bytes = encode(*message);
    if (control_ == nullptr) {
      chain.send_inline(bytes);
    } else {
      const std::size_t slot = requests_.place_of(chain.next_sequence());
      std::byte* at = control_->data + slot * kControlSize;
      std::copy(bytes.begin(), bytes.end(), at);
      chain.send(at, RegisteredPool::lkey(*control_));
    }
    if (message->opcode == Opcode::kKeepalive) plan.signal_last = true;
  }
  plan.control_end = chain.size();
}

void Sender::plan_data(SendChain& chain, ChainPlan& plan) {
  plan.data_end = chain.size();
  // Data in the user's memory uses no space of the send buffer, so its batch may be long. This is
  // not done for a Valkey peer: for each reply that it parses, Valkey's client moves the rest of
  // the received bytes, which takes long in a long batch.
  const bool many_in_place = stream_.peer().is_aeconn() && queue().referred() >= kLongBatch;
  const std::uint32_t batch =
      many_in_place ? kLongBatch : std::clamp(buffer_.size() / 4, kShortBatch, kLongBatch);
  std::uint32_t n = stream_.outbound().sendable(queue().staged(), plan.now, plan.control);
  // All `n` bytes are sent in one batch, even if it gets up to a quarter longer than planned,
  // because that saves a message.
  if (n > batch + batch / 4) n = batch;
  if (n == 0 || chain.room() <= flow::kControlSlots) return;
  std::array<StagingQueue::Segment, SendChain::kLimit * kMostPieces> segments;
  const std::size_t most = (chain.room() - flow::kControlSlots) * limits_.pieces;
  std::span<const StagingQueue::Segment> left(segments.data(),
                                              queue().segments(n, segments.data(), most));
  // Bytes in the cell (a small array that is not registered) must be sent in a request of their
  // own, so the first request has only this piece then.
  if (!left.empty() && queue().is_in_cell(left.front()))
    left = left.first(std::min(left.size(), most - limits_.pieces + 1));
  while (!left.empty()) {
    const std::size_t pieces = queue().is_in_cell(left.front()) ? 1 : limits_.pieces;
    const auto together = left.first(std::min(left.size(), pieces));
    left = left.subspan(together.size());
    std::uint32_t bytes = 0;
    for (const StagingQueue::Segment& each : together) bytes += each.length;
    plan.copied = together.size() == 1 && bytes <= limits_.inline_bytes;
    chain.write(together, stream_.outbound().peer_windows().position() + plan.bytes,
                stream_.outbound().peer_windows().current().key, plan.copied);
    plan.bytes_of[chain.size() - 1] = bytes;
    plan.bytes += bytes;
  }
  chain.with_immediate(stream_.outbound().immediate(plan.bytes));
  plan.data_end = chain.size();
}

// Requests a completion, if one is wanted, that proves that the network path works and that all
// earlier requests are delivered. If the chain is empty, adds a write of zero bytes for this.
void Sender::plan_probe(SendChain& chain, ChainPlan& plan) {
  const bool prove = plan.prove && queue().staged() == 0;
  const bool waits_for_proof =
      stream_.outbound().proof().is_exceeded(plan.control) && queue().staged() != 0;
  const bool asks = buffer_.wants_memory() || plan.now >= ask_at_;
  const bool nobody_asked =
      chain.size() == 0 && requests_.count() != 0 && !requests_.last_is_signaled();
  if (stream_.liveness().wants_probe() && requests_.count() != 0 && requests_.last_is_signaled())
    // A completion is already requested for the last request in flight; that completion serves as
    // the probe of the peer's device.
    stream_.liveness().on_probe_posted();
  if (!stream_.liveness().wants_probe() && !((prove || waits_for_proof || asks) && nobody_asked))
    return;
  if (chain.full()) return;
  // If the chain has a request already, the completion of its last request is used instead of a
  // write of zero bytes. (Such a write must not follow another request in a chain: bnxt_re before
  // rdma-core 50 gives it the length of that request.)
  if (chain.size() == 0)
    chain.write_nothing(stream_.outbound().peer_windows().position(),
                        stream_.outbound().peer_windows().current().key);
  plan.signal_last = true;
  plan.probe_end = chain.size();
}

// Requests completions for some of the requests, often enough that slots of the send queue and
// memory of the send buffer are freed in time. Returns the sequence number of the last request that
// asks for one.
std::uint32_t Sender::plan_signals(SendChain& chain, const ChainPlan& plan) {
  const bool signal_last = plan.signal_last || plan.prove ||
                           stream_.outbound().proof().is_exceeded(plan.control) ||
                           buffer_.wants_memory() || queue().referred() != 0 ||
                           queue().held() > buffer_.size() / 2 || queue().staged() > plan.bytes;
  std::uint32_t signaled = requests_.last_signaled();
  for (std::size_t i = 0; i < chain.size(); ++i) {
    const std::uint32_t sequence = requests_.posted() + static_cast<std::uint32_t>(i) + 1;
    const bool last = i + 1 == chain.size();
    if (sequence - signaled < signal_every_ && !(last && signal_last)) continue;
    chain.signal(i);
    signaled = sequence;
  }
  return signaled;
}

void Sender::commit(ChainPlan& plan, std::size_t posted) {
  if (plan.probe_end != 0 && posted >= plan.probe_end) stream_.liveness().on_probe_posted();
  for (std::size_t i = 0; i < std::min(plan.keys_end, posted); ++i)
    plan.window[i]->posted(requests_.posted() + static_cast<std::uint32_t>(i) + 1);
  for (std::size_t i = plan.keys_end; i < std::min(posted, plan.control_end); ++i)
    if (const auto message = stream_.next_control(plan.now))
      stream_.on_control_posted(*message, plan.now);
  if (plan.bytes != 0) {
    const bool nothing_in_flight = queue().in_flight() == 0;
    stream_.outbound().on_write_posted(plan.bytes, plan.now);
    queue().on_posted(plan.bytes);
    // The bytes of a single inline write were copied into the request. If no older bytes are in
    // flight, the memory of the copied bytes is freed at once; otherwise later, because memory is
    // freed in order.
    const bool one_request = plan.data_end - plan.control_end == 1;
    if (nothing_in_flight && one_request && plan.copied) {
      queue().on_completed(plan.bytes);
      plan.bytes_of[plan.control_end] = 0;
    }
  }
  for (std::size_t i = 0; i < posted; ++i) {
    const std::uint32_t bytes = plan.bytes != 0 ? plan.bytes_of[i] : 0;
    if (plan.bytes != 0 && i + 1 == plan.data_end)
      requests_.add_data(bytes);
    else
      requests_.add(bytes, i >= plan.keys_end && i < plan.control_end);
  }
}

// --- recording completions -----------------------------------------------------------------------

bool Sender::retire(std::uint32_t sequence, ae::TimePoint now, const MemoryLimit& limit) noexcept {
  const RequestsInFlight::Retired retired = requests_.retire(sequence);
  stream_.outbound().proof().on_completed(retired.messages);
  if (retired.bytes == 0) return false;
  buffer_.on_confirmed(retired.bytes, now, limit);
  return true;
}

bool Sender::retire_failed(std::uint32_t sequence, ae::TimePoint now,
                           const MemoryLimit& limit) noexcept {
  if (!requests_.has(sequence)) return false;
  const bool came_back = retire(sequence - 1, now, limit);
  requests_.fail(sequence);
  return came_back;
}

}}}  // namespace conn::rdma
