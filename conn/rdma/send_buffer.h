// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The send buffer of one connection: the bytes that it has accepted from the user and that the
// device has not confirmed. The bytes are in a StagingQueue, from which Sender posts them;
// SendBufferTuning chooses the size of the buffer.
//
// Invariant: while waits_for_memory() is true, has_room() is false.

#include <sys/uio.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

#include "ae/abi.h"
#include "ae/time.h"
#include "conn/rdma/config/settings.h"
#include "conn/rdma/memory/send_buffer_tuning.h"
#include "conn/rdma/memory/staging_queue.h"

namespace conn { inline namespace AECONN_ABI { namespace rdma {

class SendBuffer {
 public:
  explicit SendBuffer(const Settings& settings)
      : tuning_(settings.send_buffer, settings.max_send_buffer) {}

  /// Replaces the sizes that were passed to the constructor. Call it before the first queue pair is
  /// created.
  void set_sizes(const Settings& settings) {
    tuning_ = SendBufferTuning(settings.send_buffer, settings.max_send_buffer);
  }
  /// Sets the pools of memory for copied bytes and of records for references to the user's memory.
  /// Null: no bytes can be accepted.
  void use(RegisteredPool* pool, ReferencePool* references) noexcept { tx_.use(pool, references); }
  StagingQueue& queue() noexcept { return tx_; }
  const StagingQueue& queue() const noexcept { return tx_; }
  std::uint32_t size() const noexcept { return tuning_.size(); }

  // --- accepting bytes of the user ---------------------------------------------------------------
  /// Copies bytes into the send buffer and returns their number. If it is 0, wants_memory() returns
  /// true for a lack of memory, and false for a full buffer. `now`: a function that returns the
  /// time; it is called only if the buffer was empty.
  template <class Now>
  std::size_t append(const iovec* vectors, int count, const MemoryLimit& limit, Now now);
  /// Fast path of append(), for a few bytes that fit into the queue's own small array
  /// (StagingQueue::append_to_cell()). Returns false and copies nothing in other cases.
  template <class Now>
  bool append_straight(const void* bytes, std::size_t size, Now now) {
    if (tx_.empty()) {  // the usual case: the buffer is empty
      if (size > tx_.cell_size()) return false;
      tuning_.on_idle_write(now);
      if (size > tuning_.size()) return false;
      tx_.begin_cell(bytes, size);
    } else {
      if (!tx_.has_cell_for(size)) return false;
      if (tx_.held() == 0) tuning_.on_idle_write(now);
      if (size > room()) return false;
      tx_.append_to_cell(bytes, size);
    }
    wants_memory_ = short_of_room_ = false;
    return true;
  }
  /// Returns space for about `size` bytes, into which the user writes data before queue().commit().
  /// Returns an empty span with errno EAGAIN if there is no space now (wants_memory() is true if
  /// the reason is a lack of memory); with errno EOPNOTSUPP if the caller should use append(), for
  /// which a smaller block may be available.
  std::span<std::byte> reserve(std::size_t size, const MemoryLimit& limit, ae::TimePoint now);
  /// Returns true if the write handler should be called: at least a quarter of the buffer is free,
  /// so that the user does not write tiny pieces.
  bool has_room() const noexcept { return memory_wanted_ == 0 && room() >= room_to_wait_for(); }
  /// Returns true if the user's last write was cut short or refused because the buffer was full.
  bool was_short_of_room() const noexcept { return short_of_room_; }

  // --- waiting for memory ------------------------------------------------------------------------
  /// Returns true if the last append() or reserve() got less space than the size of the buffer
  /// allows, for lack of memory.
  bool wants_memory() const noexcept { return wants_memory_; }
  /// Records that there is no memory for `size` bytes: has_room() returns false until secure() has
  /// found memory.
  void wait_for_memory(std::size_t size, ae::TimePoint now) noexcept;
  bool waits_for_memory() const noexcept { return memory_wanted_ != 0; }
  /// Call when memory may have been freed. If `writer_waits` is true, allocates the memory at once,
  /// so that the write handler is not called in vain; returns false if there is still not enough.
  /// If the buffer is empty, memory for one byte is enough: data is then written in parts.
  bool secure(bool writer_waits, const MemoryLimit& limit) noexcept;

  // --- calls of class Sender, which posts the bytes ----------------------------------------------
  /// Call when the device has confirmed the oldest `bytes` bytes in flight: frees their memory.
  void on_confirmed(std::size_t bytes, ae::TimePoint now, const MemoryLimit& limit) noexcept {
    tuning_.on_confirmed(bytes, now, limit);
    tx_.on_completed(bytes);
  }
  /// Call when everything that can be posted for now is posted. If the buffer was full and no byte
  /// is left to post, the buffer may grow.
  void on_idle(ae::TimePoint now) noexcept {
    if (std::exchange(short_of_room_, false) && tx_.staged() == 0) tuning_.on_full(now);
  }

 private:
  std::size_t room() const noexcept {
    return tuning_.size() - std::min<std::size_t>(tx_.buffered(), tuning_.size());
  }
  std::size_t room_to_wait_for() const noexcept { return std::max(1u, tuning_.size() / 4); }

  StagingQueue tx_;
  SendBufferTuning tuning_;
  // Number of contiguous bytes for which the user waits for memory; 0: the user does not wait for
  // memory.
  std::uint32_t memory_wanted_ = 0;
  bool short_of_room_ = false;
  bool wants_memory_ = false;
};

template <class Now>
std::size_t SendBuffer::append(const iovec* vectors, int count, const MemoryLimit& limit, Now now) {
  if (tx_.held() == 0) tuning_.on_idle_write(now);
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

}}}  // namespace conn::rdma
