// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The sending side of one queue pair: what was accepted for the peer, what of it is on the send
// queue, and what the device has confirmed.
//
//   append(), reserve(), refer()  --> staged --post()--> in flight --retire()--> confirmed
//
// A chain of requests is posted in three steps. It is planned: the windows, the stream and the
// queue say what is due, and none of them changes. It is handed to the device. Then what the device
// took is committed to all three; what it refused is still due.
//
// Holds at all times: the requests after done() up to posted() are on the send queue, and what the
// ring records of them adds up to the bytes in flight (until a request fails: from then on nothing
// is posted, and bytes in flight are given up with the queue pair).

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
  /// Borrows `stream`.
  Sender(Stream& stream, const Settings& settings)
      : stream_(stream), buffer_(settings.send_buffer, settings.max_send_buffer) {}

  // --- the queue pair comes and goes -------------------------------------------------------------
  /// Before any queue pair: other sizes than at construction.
  void set_sizes(const Settings& settings) {
    buffer_ = SendBufferTuning(settings.send_buffer, settings.max_send_buffer);
  }
  /// Bytes are staged in blocks of `pool`. Null: nowhere.
  void use(RegisteredPool* pool, ReferencePool* references) noexcept { tx_.use(pool, references); }
  struct Limits {  ///< of the queue pair
    std::uint32_t requests = 0, pieces = 1, inline_bytes = 0;
  };
  /// A new queue pair: nothing is posted. Throws VerbsError if `pool` has no memory for control
  /// messages, which is needed where they do not fit inline.
  void begin(const Limits& limits, RegisteredPool* pool, const MemoryLimit& memory);
  /// After the queue pair is destroyed: the device reads nothing any more. What is reserved stays.
  void drop_all() noexcept { tx_.clear(); }
  void release_control(RegisteredPool& pool) noexcept;

  // --- accepting bytes ---------------------------------------------------------------------------
  /// Copies bytes in; returns how many. Zero, with wants_memory(): there is no memory.
  std::size_t append(const iovec* vectors, int count, const MemoryLimit& limit, ae::TimePoint now);
  /// Empty with EAGAIN, and wants_memory() if memory is what is lacking; or with EOPNOTSUPP: a
  /// smaller block may be available, through which the data is written in parts.
  std::span<std::byte> reserve(std::size_t size, const MemoryLimit& limit, ae::TimePoint now);
  StagingQueue& queue() noexcept { return tx_; }
  const StagingQueue& queue() const noexcept { return tx_; }
  /// A waiting writer should be called: at least a quarter of the buffer is free, so that it does
  /// not send tiny pieces.
  bool has_room() const noexcept { return starved_for_ == 0 && room() >= room_to_wait_for(); }
  /// The last append() or reserve() took less than the buffer allows.
  bool wants_memory() const noexcept { return wants_memory_; }
  /// There is no memory to send `size` bytes from.
  void starve(std::size_t size, ae::TimePoint now) noexcept;
  bool starved() const noexcept { return starved_for_ != 0; }
  /// Memory may have come back. If `writer_waits`, it is allocated here, so that the write handler
  /// never runs in vain; false: there is none yet. With nothing in flight one byte suffices: a
  /// reservation then uses a chunk lent by the base and is written through that memory in parts.
  bool secure(bool writer_waits, const MemoryLimit& limit) noexcept;
  std::uint32_t buffer_size() const noexcept { return buffer_.size(); }

  // --- posting -----------------------------------------------------------------------------------
  struct Posted {
    enum class How : std::uint8_t {
      kNothing,     ///< nothing was due
      kDone,        ///< posted, or the send queue is full
      kMore,        ///< posted; another chain may follow
      kKeyRefused,  ///< the device refused to change the key of `window`
      kFailed,      ///< `error`; nothing was committed
    };
    How how = How::kNothing;
    bool maybe_key = false;  ///< kFailed: the request that failed may have changed a key
    bool asks = false;       ///< a completion is to be requested at ask_at(), as was not before
    int error = 0;
    ReceiveWindow* window = nullptr;
    std::size_t requests = 0, control = 0;  ///< posted
    std::uint32_t bytes = 0;                ///< posted
  };
  /// Posts one chain with one doorbell: key changes, then control messages, then the bytes that fit
  /// the peer's window. `keys_alone`: a key change needs the send queue to itself. `prove`: request
  /// completions of everything.
  Posted post(ibv_qp* qp, WindowMemory& windows, bool keys_alone, bool prove, ae::TimePoint now);
  /// Posts key changes and nothing else.
  SendChain::Result post_keys(ibv_qp* qp, WindowMemory& windows);
  /// No more is posted for now.
  void on_idle(ae::TimePoint now) noexcept;
  /// The device's send queue was fuller than our count says: post again soon.
  bool was_refused() const noexcept { return post_again_; }
  /// When to request a completion for older sends: without keepalives nothing else would free the
  /// memory of the last ones.
  ae::TimePoint ask_at() const noexcept { return ask_at_; }

  // --- completions -------------------------------------------------------------------------------
  std::uint32_t done() const noexcept { return done_; }
  std::uint32_t requests_in_flight() const noexcept { return posted_ - done_; }
  /// The requests up to `sequence` are complete. True: their memory came back.
  bool retire(std::uint32_t sequence, ae::TimePoint now, const MemoryLimit& limit) noexcept;
  /// This request failed; those before it were carried out. The data of the others stays here until
  /// the queue pair is destroyed, and is then reported to the user with an error. True: as
  /// retire().
  bool retire_failed(std::uint32_t sequence, ae::TimePoint now, const MemoryLimit& limit) noexcept;
  bool failed() const noexcept { return failed_; }
  /// Bytes of the user are on the send queue.
  bool data_under_way() const noexcept { return data_ == Data::kUnderWay; }
  /// Some were posted at some time.
  bool wrote() const noexcept { return data_ != Data::kNone; }
  std::uint32_t inline_limit() const noexcept { return limits_.inline_bytes; }

 private:
  struct Sent {               // one work request on the send queue
    std::uint32_t bytes = 0;  // staged bytes it holds until it completes
    bool message = false;     // it uses one of the peer's receives
  };
  struct ChainPlan {  // contents of a chain: key changes, control messages, one batch of bytes
    std::size_t keys_end = 0, control_end = 0, data_end = 0;
    std::size_t probe_end = 0;  // once this many are posted, one probes the peer's device; 0: none
    std::array<ReceiveWindow*, SendChain::kLimit> window{};   // whose key it changes
    std::array<std::uint32_t, SendChain::kLimit> bytes_of{};  // staged bytes in each request
    std::uint32_t bytes = 0;                                  // their sum
    std::uint32_t control = 0;                                // control messages
    bool copied = false;                                      // the last write is inline
    bool signal_last = false;
    bool prove = false;
    ae::TimePoint now{};
  };
  enum class Data : std::uint8_t { kNone, kUnderWay, kConfirmed };

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
  bool ask_later(ae::TimePoint now) noexcept;
  /// Sequence numbers wrap around: last_data_ is compared only while that request is in flight.
  void look_at_last_data() noexcept {
    if (data_ == Data::kUnderWay && static_cast<std::int32_t>(last_data_ - done_) <= 0)
      data_ = Data::kConfirmed;
  }

  Stream& stream_;
  StagingQueue tx_;
  SendBufferTuning buffer_;
  Block* control_ = nullptr;  // for control messages, if they do not fit inline
  Limits limits_;
  std::vector<Sent> ring_;  // indexed by sequence modulo its size
  std::uint32_t posted_ = 0, done_ = 0, last_signaled_ = 0;
  std::uint32_t last_data_ = 0;  // sequence of the last request with the user's bytes
  ae::TimePoint ask_at_ = ae::TimePoint::max();
  std::uint32_t starved_for_ = 0;  // bytes needed in one piece; 0: there is memory to send from
  Data data_ = Data::kNone;        // of last_data_
  bool failed_ = false;            // later requests are not carried out
  bool post_again_ = false;        // the device's send queue was full
  bool short_of_room_ = false;     // the last write was limited by the length of buffer_
  bool wants_memory_ = false;
};

}}}  // namespace conn::rdma
