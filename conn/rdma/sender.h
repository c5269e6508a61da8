// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The sending side of one queue pair: the bytes that were accepted for the peer, those of them that
// are on the send queue, and those that the device has confirmed.
//
//   append(), reserve(), refer()  --> staged --post()--> in flight --retire()--> confirmed
//
// A chain of requests is posted in three steps. First it is planned: the windows, the stream and
// the queue of bytes are asked what is due, and none of them changes. Then it is handed to the
// device. Finally the windows, the stream and the queue record the requests that the device took; a
// request that the device refused is still due.
//
// Invariants: the requests after number done() up to number posted_ are on the send queue, and the
// sizes recorded for them in the ring add up to the bytes in flight. This ends when a request
// fails: from then on nothing is posted, and bytes in flight are dropped with the queue pair.

#include <arpa/inet.h>
#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "ae/abi.h"
#include "ae/time.h"
#include "conn/rdma/config/settings.h"
#include "conn/rdma/memory/send_buffer_tuning.h"
#include "conn/rdma/memory/staging_queue.h"
#include "conn/rdma/protocol/stream.h"
#include "conn/rdma/send_chain.h"
#include "conn/rdma/window_memory.h"

namespace conn { inline namespace AECONN_ABI { namespace rdma {

class Sender {
 public:
  /// Stores a reference to `stream`, which must outlive this object.
  Sender(Stream& stream, const Settings& settings)
      : stream_(stream), buffer_(settings.send_buffer, settings.max_send_buffer) {}

  // --- creation and end of the queue pair --------------------------------------------------------
  /// Replaces the sizes of the send buffer that were passed to the constructor. Must not be called
  /// after the first queue pair is created.
  void set_sizes(const Settings& settings) {
    buffer_ = SendBufferTuning(settings.send_buffer, settings.max_send_buffer);
  }
  /// Sets the pools for staged bytes and for references to the user's memory. Null: bytes cannot be
  /// staged.
  void use(RegisteredPool* pool, ReferencePool* references) noexcept { tx_.use(pool, references); }
  /// Limits of the queue pair: requests on its send queue, pieces of a request, inline bytes.
  struct Limits {
    std::uint32_t requests = 0, pieces = 1, inline_bytes = 0;
  };
  /// Call when a new queue pair was created: nothing is posted on it yet. Throws VerbsError if
  /// `pool` has no memory for control messages, which is needed if they are too long to be sent
  /// inline.
  void begin(const Limits& limits, RegisteredPool* pool, const MemoryLimit& memory);
  /// Drops all staged bytes and bytes in flight; memory that the user has reserved stays. Call
  /// after the queue pair is destroyed, when the device no longer reads the memory.
  void drop_all() noexcept { tx_.clear(); }
  void release_control(RegisteredPool& pool) noexcept;
  /// Makes the sender keep all bytes until they are confirmed: nothing is copied into requests,
  /// which would free the bytes at once. Call it after begin(), before anything is posted. Throws
  /// VerbsError like begin().
  void keep_until_confirmed(RegisteredPool* pool, const MemoryLimit& memory);

  // --- accepting bytes ---------------------------------------------------------------------------
  /// Copies bytes into the send buffer and returns their number. If it is 0, wants_memory() says
  /// whether the reason is a lack of memory or a full buffer. `now`: a function that returns the
  /// time, which is called only if nothing was held before.
  template <class Now>
  std::size_t append(const iovec* vectors, int count, const MemoryLimit& limit, Now now);
  /// Does what append() does for a few bytes that need no block (StagingQueue::append_to_cell()).
  /// Returns false, and copies nothing, if they do.
  template <class Now>
  bool append_straight(const void* bytes, std::size_t size, Now now) {
    if (!tx_.has_cell_for(size)) return false;
    if (tx_.held() == 0) buffer_.on_idle_write(now);
    if (size > room()) return false;
    tx_.append_to_cell(bytes, size);
    wants_memory_ = short_of_room_ = false;
    return true;
  }
  /// Returns memory for about `size` bytes; they are sent by the queue's commit(). Empty with errno
  /// EAGAIN if there is no space now (wants_memory() is true if memory is lacking), or with errno
  /// EOPNOTSUPP if the data should rather be written in parts, for which a smaller block may be
  /// available.
  std::span<std::byte> reserve(std::size_t size, const MemoryLimit& limit, ae::TimePoint now);
  StagingQueue& queue() noexcept { return tx_; }
  const StagingQueue& queue() const noexcept { return tx_; }
  /// Returns true if a waiting writer should be called: at least a quarter of the buffer is free,
  /// so that the writer does not send tiny pieces.
  bool has_room() const noexcept { return starved_for_ == 0 && room() >= room_to_wait_for(); }
  /// Returns true if the last append() or reserve() got less space than the buffer size allows,
  /// because memory is lacking.
  bool wants_memory() const noexcept { return wants_memory_; }
  /// Records that there is no memory to send `size` bytes from: has_room() is false until secure()
  /// finds memory.
  void starve(std::size_t size, ae::TimePoint now) noexcept;
  bool starved() const noexcept { return starved_for_ != 0; }
  /// Call when memory may have been freed. If `writer_waits`, allocates the memory at once, so that
  /// the write handler is never called in vain; returns false if there is still none. If nothing is
  /// staged or in flight, memory for one byte suffices: a reservation then uses a chunk lent by the
  /// connection core, which is written through that memory in parts.
  bool secure(bool writer_waits, const MemoryLimit& limit) noexcept;
  std::uint32_t buffer_size() const noexcept { return buffer_.size(); }

  // --- posting -----------------------------------------------------------------------------------
  struct Posted {
    enum class How : std::uint8_t {
      kNothing,  ///< no request was due, so nothing was posted
      kDone,     ///< all due requests are posted, or the send queue is full
      kMore,     ///< one chain of requests is posted, and more requests are due for another chain
      kKeyRefused,  ///< the device refused the request to bind or invalidate the key of `window`
      kFailed,      ///< posting failed with errno `error`; no request is recorded as posted
    };
    How how = How::kNothing;
    /// With kFailed: true if the request that failed may have changed the key of a window.
    bool maybe_key = false;
    /// True if this post set ask_at(), the time at which a completion must be requested; it was not
    /// set before.
    bool asks = false;
    int error = 0;
    ReceiveWindow* window = nullptr;
    /// Number of requests that were posted, and number of control messages among them.
    std::size_t requests = 0, control = 0;
    std::size_t inlined = 0;  ///< number of posted requests into which their bytes were copied
    std::uint32_t bytes = 0;  ///< number of bytes of the user that were posted
  };
  /// Posts one chain with one doorbell: key changes, then control messages, then the bytes that fit
  /// into the peer's window. `keys_alone`: a key change must be alone on the send queue. `prove`:
  /// request completions for everything.
  Posted post(ibv_qp* qp, WindowMemory& windows, bool keys_alone, bool prove, ae::TimePoint now);
  /// Posts the staged bytes as one request, if that is all that is due: they are contiguous, they
  /// do not fill the peer's window, no control message is due, and no completion needs to be
  /// requested. Returns their number; 0 if it has posted nothing: post() decides then. No key
  /// change may be due.
  std::uint32_t post_straight(ibv_qp* qp, ae::TimePoint now) noexcept;
  /// Call before the queue pair is stopped: a device does not report requests that were carried out
  /// and asked for no completion. Posts a write of zero bytes that asks for one, unless the last
  /// request has asked for one or the send queue is full.
  void post_last(ibv_qp* qp) noexcept;
  /// Posts the due binds and invalidations of window keys, and nothing else.
  SendChain::Result post_keys(ibv_qp* qp, WindowMemory& windows);
  /// Returns true if on_idle() has something to do.
  bool has_idle_work() const noexcept { return short_of_room_ || tx_.staged() != 0; }
  /// Call when post() has posted all that can be posted for now. If staged bytes are left because
  /// the peer has no window for them, the peer will be told; if none are left although the send
  /// buffer was full, the buffer may grow. Returns what the staged bytes wait for; kNone if an
  /// earlier call has returned it already and no byte was posted since.
  Stall on_idle(ae::TimePoint now) noexcept;
  /// Returns true if the device reported a full send queue although fewer requests are in flight
  /// than it should hold: post again soon.
  bool was_refused() const noexcept { return post_again_; }
  /// Returns the time at which a completion for the last sends must be requested; max() if that is
  /// not needed. On a connection without keepalives no other request might follow them, and their
  /// memory would never be freed.
  ae::TimePoint ask_at() const noexcept { return ask_at_; }

  // --- completions -------------------------------------------------------------------------------
  std::uint32_t done() const noexcept { return done_; }
  std::uint32_t requests_in_flight() const noexcept { return posted_ - done_; }
  /// Records that the requests up to number `sequence` are complete. Returns true if staging memory
  /// was freed.
  bool retire(std::uint32_t sequence, ae::TimePoint now, const MemoryLimit& limit) noexcept;
  /// Records that request number `sequence` failed and those before it were carried out. The data
  /// of the failed and of later requests stays here until the queue pair is destroyed; it is then
  /// reported to the user with an error. Returns true if staging memory was freed.
  bool retire_failed(std::uint32_t sequence, ae::TimePoint now, const MemoryLimit& limit) noexcept;
  bool failed() const noexcept { return failed_; }
  /// Returns true if requests with bytes of the user are on the send queue and not yet complete.
  bool data_under_way() const noexcept { return data_ == Data::kUnderWay; }
  /// Returns true if bytes of the user were ever posted on this queue pair.
  bool wrote() const noexcept { return data_ != Data::kNone; }
  std::uint32_t inline_limit() const noexcept { return limits_.inline_bytes; }

 private:
  struct Sent {               // what is recorded of one work request on the send queue
    std::uint32_t bytes = 0;  // bytes of staging memory that the request holds until it completes
    bool message = false;     // true if the request consumes one of the peer's receives
  };
  // The planned contents of a chain: first key changes, then control messages, then one batch of
  // bytes. Each member `..._end` is the number of requests up to the end of that part.
  struct ChainPlan {
    std::size_t keys_end = 0, control_end = 0, data_end = 0;
    // Number of requests of this chain that must be posted so that one of them serves as the probe
    // of the peer's device; 0: no probe is wanted.
    std::size_t probe_end = 0;
    // For each planned key change, the window whose key it binds or invalidates.
    std::array<ReceiveWindow*, SendChain::kLimit> window{};
    // For each planned request, the number of staged bytes that it sends.
    std::array<std::uint32_t, SendChain::kLimit> bytes_of{};
    // Number of staged bytes that the whole chain sends: the sum of bytes_of.
    std::uint32_t bytes = 0;
    std::uint32_t control = 0;  // number of control messages in the planned chain
    bool copied = false;        // true if the bytes of the last write are copied into the request
    bool signal_last = false;
    bool prove = false;
    ae::TimePoint now{};
  };
  enum class Data : std::uint8_t { kNone, kUnderWay, kConfirmed };
  // Bounds of the length of a batch, which is otherwise a quarter of the send buffer. While one
  // batch is in flight, the user then has space to write the next, and the peer reads the previous
  // one.
  static constexpr std::uint32_t kShortBatch = 64 * 1024, kLongBatch = 256 * 1024;

  std::size_t room() const noexcept {
    return buffer_.size() - std::min<std::size_t>(tx_.buffered(), buffer_.size());
  }
  std::size_t room_to_wait_for() const noexcept { return std::max(1u, buffer_.size() / 4); }
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
  bool may_post_straight(std::size_t staged) const noexcept {
    return staged - 1 < kShortBatch && !wants_memory_ && !short_of_room_ && !post_again_ &&
           tx_.referred() == 0 && tx_.held() <= buffer_.size() / 2 &&
           requests_in_flight() + flow::kControlSlots < limits_.requests &&
           posted_ + 1 - last_signaled_ < signal_every_;
  }
  /// Updates data_ after done_ has changed. Sequence numbers wrap around, so last_data_ is compared
  /// only while its request is in flight.
  void look_at_last_data() noexcept {
    if (data_ == Data::kUnderWay && static_cast<std::int32_t>(last_data_ - done_) <= 0)
      data_ = Data::kConfirmed;
  }

  Stream& stream_;
  StagingQueue tx_;
  SendBufferTuning buffer_;
  // Memory for control messages; null if they are short enough to be sent inline.
  Block* control_ = nullptr;
  Limits limits_;
  std::uint32_t signal_every_ = 1;  // flow::signal_every() of the send queue
  // The requests on the send queue, indexed by their sequence number modulo the size of this ring.
  std::vector<Sent> ring_;
  std::uint32_t posted_ = 0, done_ = 0, last_signaled_ = 0;
  std::uint32_t last_data_ = 0;  // sequence number of the last request with the user's bytes
  ae::TimePoint ask_at_ = ae::TimePoint::max();
  // Number of contiguous bytes of memory that a writer waits for; 0: no writer waits for memory.
  std::uint32_t starved_for_ = 0;
  Data data_ = Data::kNone;  // progress of request number last_data_: confirmed once it is complete
  // True once a request failed, after which the device carries out no more requests.
  bool failed_ = false;
  // True if the device reported a full send queue although fewer requests are in flight than it
  // should hold; the connection then posts again soon.
  bool post_again_ = false;
  // True if the user's last write was cut short or refused because the send buffer was full.
  bool short_of_room_ = false;
  bool wants_memory_ = false;
  // Number of bytes that were written to the peer when on_idle() last returned a stall, modulo
  // 2^32, so that it fits into the padding behind the members above.
  std::uint32_t stalled_at_ = UINT32_MAX;
};

template <class Now>
std::size_t Sender::append(const iovec* vectors, int count, const MemoryLimit& limit, Now now) {
  if (tx_.held() == 0) buffer_.on_idle_write(now);
  std::size_t left = room();
  std::size_t done = 0;
  wants_memory_ = false;
  short_of_room_ = left == 0;
  for (int i = 0; i < count && left != 0; ++i) {
    const std::size_t wanted = std::min(vectors[i].iov_len, left);
    short_of_room_ = wanted < vectors[i].iov_len || (wanted == left && i + 1 < count);
    const std::size_t taken =
        tx_.append(static_cast<const std::byte*>(vectors[i].iov_base), wanted, limit);
    done += taken;
    left -= taken;
    wants_memory_ = taken < wanted;
    if (wants_memory_) break;
  }
  return done;
}

inline std::uint32_t Sender::post_straight(ibv_qp* qp, ae::TimePoint now) noexcept {
  const std::size_t staged = tx_.staged();
  if (!may_post_straight(staged)) return 0;
  const auto bytes = static_cast<std::uint32_t>(staged);
  const StagingQueue::Segment from = tx_.only_segment();
  if (from.data == nullptr || !stream_.takes_straight(bytes)) return 0;
  const bool copied = bytes <= limits_.inline_bytes;
  ibv_sge piece{reinterpret_cast<std::uintptr_t>(from.data), bytes, from.lkey};
  ibv_send_wr request;  // only the members that this opcode uses are set
  request.wr_id = posted_ + 1;
  request.next = nullptr;
  request.sg_list = &piece;
  request.num_sge = 1;
  request.opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
  request.send_flags = copied ? static_cast<unsigned>(IBV_SEND_INLINE) : 0;
  request.imm_data = htonl(stream_.outbound().immediate(bytes));
  request.wr.rdma.remote_addr = stream_.outbound().peer_windows().position();
  request.wr.rdma.rkey = stream_.outbound().peer_windows().current().key;
  ibv_send_wr* bad = nullptr;
  // The device has taken nothing of a request that it refuses; post() posts it again and handles
  // the failure.
  if (ibv_post_send(qp, &request, &bad) != 0) [[unlikely]]
    return 0;
  stream_.outbound().on_straight_posted(bytes, now);
  const bool gone = copied && tx_.in_flight() == 0;
  if (gone)
    tx_.on_all_copied();
  else
    tx_.on_posted(bytes);
  ring_[++posted_ & (ring_.size() - 1)] = {gone ? 0 : bytes, true};
  last_data_ = posted_;
  data_ = Data::kUnderWay;
  if (!gone || ask_at_ != ae::TimePoint::max()) (void)ask_later(now);
  return bytes;
}

}}}  // namespace conn::rdma
