// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The sending side of one queue pair: plans the requests that are due, posts them, and records
// their completions. The bytes that the user writes pass through these states:
//
//   SendBuffer --> staged --post()--> in flight --retire()--> confirmed
//
// A chain of requests is posted in three steps. First it is planned: the receive windows, the
// stream and the send buffer say what is due, and none of them changes. Then the chain is posted.
// Finally these three record the requests that the device has accepted; a request that the device
// has refused is still due.
//
// Invariant: the sizes recorded for the requests in flight add up to the bytes in flight. This does
// not hold after a request has failed: then nothing more is posted, and the bytes in flight are
// dropped with the queue pair.

#include <arpa/inet.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "ae/abi.h"
#include "ae/time.h"
#include "conn/rdma/config/settings.h"
#include "conn/rdma/memory/staging_queue.h"
#include "conn/rdma/protocol/stream.h"
#include "conn/rdma/requests_in_flight.h"
#include "conn/rdma/send_buffer.h"
#include "conn/rdma/send_chain.h"
#include "conn/rdma/window_memory.h"

namespace conn { inline namespace AECONN_ABI { namespace rdma {

class Sender {
 public:
  /// Stores a reference to `stream`, which must outlive this object.
  Sender(Stream& stream, const Settings& settings) : stream_(stream), buffer_(settings) {}

  /// Returns the send buffer: the bytes that were accepted and are not confirmed.
  SendBuffer& buffer() noexcept { return buffer_; }
  const SendBuffer& buffer() const noexcept { return buffer_; }
  StagingQueue& queue() noexcept { return buffer_.queue(); }
  const StagingQueue& queue() const noexcept { return buffer_.queue(); }
  const RequestsInFlight& requests() const noexcept { return requests_; }

  // --- creation and end of the queue pair --------------------------------------------------------
  /// Limits of the queue pair: requests on its send queue, pieces of a request, inline bytes.
  struct Limits {
    std::uint32_t requests = 0, pieces = 1, inline_bytes = 0;
  };
  /// Call when a new queue pair was created: nothing is posted on it yet. Throws VerbsError if
  /// `pool` has no memory for control messages, which is needed if they are too long to be sent
  /// inline.
  void begin(const Limits& limits, RegisteredPool* pool, const MemoryLimit& memory);
  /// Drops all staged bytes and all bytes in flight; memory that the user has reserved stays valid.
  /// Call it after the queue pair was destroyed, when the device no longer reads the memory.
  void drop_all() noexcept { queue().clear(); }
  void release_control(RegisteredPool& pool) noexcept;
  /// Makes the sender keep all bytes until they are confirmed, so that they can be sent again over
  /// another network path: bytes are then not sent inline, because their memory would be freed at
  /// once. Call it after begin(), before anything is posted. Throws VerbsError like begin().
  void keep_until_confirmed(RegisteredPool* pool, const MemoryLimit& memory);

  // --- posting chains of requests ----------------------------------------------------------------
  struct Posted {
    enum class How : std::uint8_t {
      kNothing,  ///< no request was due, so nothing was posted
      kDone,     ///< all due requests are posted, or the send queue is full
      kMore,     ///< one chain of requests is posted, and more requests are due for another chain
      kKeyRefused,  ///< the device refused the request to bind or invalidate the key of `window`
      kFailed,      ///< posting failed with errno `error`; no request is recorded as posted
    };
    How how = How::kNothing;
    /// With kFailed: true if the refused request may be one that binds or invalidates the key of a
    /// receive window.
    bool maybe_key = false;
    /// True if ask_at(), the time for a later request of a completion, was not set before this call
    /// and is set now.
    bool asks = false;
    int error = 0;
    ReceiveWindow* window = nullptr;
    /// Number of requests that were posted, and number of control messages among them.
    std::size_t requests = 0, control = 0;
    std::size_t inlined = 0;  ///< number of posted requests that contain their data (inline)
    std::uint32_t bytes = 0;  ///< number of bytes of the user that were posted
  };
  /// Posts one chain with one doorbell: key changes (binds and invalidations), then control
  /// messages, then the bytes that fit into the peer's receive window. `keys_alone`: a key change
  /// must be alone on the send queue. `prove`: completions must prove that everything is delivered.
  Posted post(ibv_qp* qp, WindowMemory& windows, bool keys_alone, bool prove, ae::TimePoint now);
  /// Posts the staged bytes (written and not posted yet) as one request, if nothing else has to be
  /// posted: they are contiguous, they do not fill the peer's receive window, there is no control
  /// message, and a completion is asked for only because of the number of requests since the last
  /// one. Returns the number of bytes posted; 0: none, and post() must be called. The caller
  /// ensures that no memory key must be bound or invalidated.
  std::uint32_t post_straight(ibv_qp* qp, ae::TimePoint now) noexcept;
  /// Call before the queue pair is stopped: requests that were carried out and asked for no
  /// completion would otherwise not be reported. Posts a write of zero bytes that asks for a
  /// completion, unless the last request has asked for one or the send queue is full.
  void post_last(ibv_qp* qp) noexcept;
  /// Posts the due requests that bind and invalidate keys of receive windows, and nothing else.
  SendChain::Result post_keys(ibv_qp* qp, WindowMemory& windows);
  /// Returns true if on_idle() has something to do: bytes are left to post, or the buffer was full.
  bool has_idle_work() const noexcept {
    return buffer_.was_short_of_room() || queue().staged() != 0;
  }
  /// Call when post() has posted everything that can be posted for now. If staged bytes are left
  /// for lack of a receive window, the next write reports that to the peer; if none are left
  /// although the send buffer was full, the buffer may grow. Returns the reason for which staged
  /// bytes wait; kNone if an earlier call has returned it already and no byte was posted since.
  Stall on_idle(ae::TimePoint now) noexcept;
  /// Returns true if the device reported a full send queue although fewer requests are in flight
  /// than it should hold: post again soon.
  bool was_refused() const noexcept { return post_again_; }
  /// Returns the time at which the device must be asked for a completion of the last work requests,
  /// so that their memory is freed even if none follows; TimePoint::max() if that is not needed.
  ae::TimePoint ask_at() const noexcept { return ask_at_; }

  // --- recording completions ---------------------------------------------------------------------
  /// Records that the requests up to number `sequence` are complete. Returns true if memory of the
  /// send buffer was freed.
  bool retire(std::uint32_t sequence, ae::TimePoint now, const MemoryLimit& limit) noexcept;
  /// Records that request number `sequence` has failed and that those before it were carried out.
  /// The data of the failed and of later requests stays in the send buffer until the queue pair is
  /// destroyed. Returns true if memory of the send buffer was freed.
  bool retire_failed(std::uint32_t sequence, ae::TimePoint now, const MemoryLimit& limit) noexcept;
  std::uint32_t inline_limit() const noexcept { return limits_.inline_bytes; }

 private:
  // The planned contents of a chain: first key changes, then control messages, then one batch of
  // data. Each member `..._end` is the number of requests up to the end of that part.
  struct ChainPlan {
    std::size_t keys_end = 0, control_end = 0, data_end = 0;
    // If at least this many requests of the chain are posted, the last of them serves as the probe
    // of the peer's device; 0: no probe is wanted.
    std::size_t probe_end = 0;
    // For each planned key change, the receive window whose key it binds or invalidates.
    std::array<ReceiveWindow*, SendChain::kLimit> window{};
    // For each planned request, the number of bytes of the user that it sends.
    std::array<std::uint32_t, SendChain::kLimit> bytes_of{};
    // Number of bytes of the user that the whole chain sends: the sum of all elements of bytes_of.
    std::uint32_t bytes = 0;
    std::uint32_t control = 0;  // number of control messages in the planned chain
    bool copied = false;        // true if the bytes of the last write are copied into the request
    bool signal_last = false;
    bool prove = false;
    ae::TimePoint now{};
  };
  // Least and greatest length in bytes of a batch of data; within these limits, a batch is a
  // quarter of the send buffer. So while one batch is in flight, the user can write the next one,
  // and the peer can read the previous one.
  static constexpr std::uint32_t kShortBatch = 64 * 1024, kLongBatch = 256 * 1024;

  void plan_keys(SendChain& chain, ChainPlan& plan, WindowMemory& windows);
  void plan_keys_alone(SendChain& chain, ChainPlan& plan, WindowMemory& windows);
  void plan_control(SendChain& chain, ChainPlan& plan);
  void plan_data(SendChain& chain, ChainPlan& plan);
  void plan_probe(SendChain& chain, ChainPlan& plan);
  std::uint32_t plan_signals(SendChain& chain, const ChainPlan& plan);
  void commit(ChainPlan& plan, std::size_t posted);
  Stall find_stall(ae::TimePoint now) noexcept;
  bool ask_later(ae::TimePoint now) noexcept;
  void get_control(RegisteredPool* pool, const MemoryLimit& memory);
  // Returns true if the fast path may post one request now, unless the staged bytes or the stream
  // forbid it. (The conditions are joined with | where that saves a branch.)
  bool may_post_straight() const noexcept {
    const int waits =
        int{buffer_.wants_memory()} | int{buffer_.was_short_of_room()} | int{post_again_};
    return waits == 0 && requests_.count() + flow::kControlSlots < limits_.requests;
  }
  std::uint32_t post_block_straight(ibv_qp* qp, ae::TimePoint now) noexcept;
  bool post_write(ibv_qp* qp, StagingQueue::Segment from, unsigned flags,
                  ae::TimePoint now) noexcept;

  Stream& stream_;
  SendBuffer buffer_;
  RequestsInFlight requests_;
  // Memory for control messages; null if they are short enough to be sent inline.
  Block* control_ = nullptr;
  Limits limits_;
  std::uint32_t signal_every_ = 1;  // greatest number of requests per requested completion
  ae::TimePoint ask_at_ = ae::TimePoint::max();
  // True if the device reported a full send queue although fewer requests are in flight than it
  // should hold; the connection then posts again soon.
  bool post_again_ = false;
  // Error of a request of the fast path which the driver may have taken nevertheless; 0: none.
  std::uint16_t unsure_error_ = 0;
  // Total number of bytes written to the peer, modulo 2^32, when on_idle() last returned a reason
  // to wait. (32 bits, because they fit into the padding behind the members above.)
  std::uint32_t stalled_at_ = UINT32_MAX;
};

[[gnu::always_inline]] inline std::uint32_t Sender::post_straight(ibv_qp* qp,
                                                                  ae::TimePoint now) noexcept {
  if (!may_post_straight()) return 0;
  if (!queue().is_cell()) return post_block_straight(qp, now);
  // The usual message: a few bytes, which are copied into the request, while no others are in
  // flight.
  const StagingQueue::Segment from = queue().in_cell();
  if (from.length - 1 >= buffer_.size() / 2 || !stream_.takes_straight(from.length) ||
      !post_write(qp, from, IBV_SEND_INLINE, now))
    return 0;
  queue().on_cell_copied();
  requests_.add_data(0);
  if (ask_at_ != ae::TimePoint::max()) (void)ask_later(now);
  return from.length;
}

// Posts the bytes `from` as one RDMA write with immediate; Stream::takes_straight() must allow it.
// The caller then adds the request to requests_. Returns false if the device has refused it: post()
// then posts the bytes again and handles the failure. It posts nothing if the driver does not say
// what it has refused: rxe has then put the request on its queue and failed to tell the kernel, and
// the bytes would be sent twice.
[[gnu::always_inline]] inline bool Sender::post_write(ibv_qp* qp, StagingQueue::Segment from,
                                                      unsigned flags, ae::TimePoint now) noexcept {
  StreamSender& outbound = stream_.outbound();
  const std::uint32_t sequence = requests_.posted() + 1;
  const bool signaled = sequence - requests_.last_signaled() >= signal_every_;
  ibv_sge piece{reinterpret_cast<std::uintptr_t>(from.data), from.length, from.lkey};
  ibv_send_wr request;  // only the members that this opcode uses are set
  request.wr_id = sequence;
  request.next = nullptr;
  request.sg_list = &piece;
  request.num_sge = 1;
  request.opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
  request.send_flags = signaled ? flags | IBV_SEND_SIGNALED : flags;
  request.imm_data = htonl(outbound.immediate(from.length));
  request.wr.rdma.remote_addr = outbound.peer_windows().position();
  request.wr.rdma.rkey = outbound.peer_windows().current().key;
  ibv_send_wr* bad = nullptr;
  if (const int result = ibv_post_send(qp, &request, &bad); result != 0) [[unlikely]] {
    if (bad == nullptr) unsure_error_ = static_cast<std::uint16_t>(post_error(result));
    return false;
  }
  outbound.on_straight_posted(from.length, now);
  if (signaled) requests_.set_last_signaled(sequence);
  return true;
}

}}}  // namespace conn::rdma
