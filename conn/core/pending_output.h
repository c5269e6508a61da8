// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// PendingOutput: the output of one connection that waits for its Carrier, in order. It consists of
// bytes that were copied into chunks, and memory of the program that was passed to send(). It knows
// neither the connection nor the loop.
//
// The segments form a queue with three parts, in this order: segments that were passed to the
// Carrier (which may still use their memory), segments that were not, and unused elements. A
// segment leaves the first part once the program has been notified that it may use the memory
// again.

#include <sys/uio.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <system_error>

#include "ae/abi.h"
#include "conn/core/chunks.h"
#include "conn/in_place.h"

namespace conn { inline namespace AECONN_ABI {

class PendingOutput {
 public:
  static constexpr std::size_t kSegments = 64;
  /// Limit on copied bytes that are not sent yet. Once this limit is reached, reserve() returns no
  /// buffer.
  static constexpr std::size_t kMostHeld = 4 * kMaxContiguous;

  /// A release function that the program passed to send(), to be called with these arguments.
  struct Release {
    Outgoing::Release call = nullptr;
    void* context = nullptr;
    std::error_code error;
  };

  PendingOutput() = default;
  PendingOutput(const PendingOutput&) = delete;
  PendingOutput& operator=(const PendingOutput&) = delete;
  ~PendingOutput() = default;

  /// Sets the pool from which chunks come and to which they return; null while the connection moves
  /// between loops.
  void set_pool(ChunkPool* pool) noexcept { pool_ = pool; }

  /// Returns whether there is output that was not passed to the Carrier yet.
  bool waits() const noexcept { return next_ != last_; }
  /// Number of bytes that were not passed to the Carrier yet.
  std::size_t waiting() const noexcept {
    std::size_t size = 0;
    for (std::size_t i = next_; i != last_; ++i) size += at(i).size;
    return size;
  }
  bool idle() const noexcept { return first_ == last_ && filling_ == nullptr; }
  /// Returns whether the program was notified of all output, so that no release function is left to
  /// call.
  bool all_reported() const noexcept { return first_ == last_; }
  bool lends() const noexcept;  ///< whether the Carrier still uses memory that was passed to send()
  bool full() const noexcept { return last_ - first_ == kSegments; }
  bool reserving() const noexcept { return filling_ != nullptr; }

  // --- queueing output of the program ------------------------------------------------------------
  /// Returns a buffer like Connection::reserve(); an empty span with errno EAGAIN or ENOMEM on
  /// failure.
  std::span<std::byte> reserve(std::size_t size) noexcept;
  /// Queues the first `size` bytes of the buffer that reserve() returned last. Returns false if
  /// `size` is 0.
  bool commit(std::size_t size) noexcept;
  /// Stops using the chunk in which reserve() returns buffers. A reserved buffer that was not
  /// committed must not be used any more.
  void stop_filling() noexcept;
  /// Queues bytes in the program's memory as output. `by_reference`: whether to offer them to the
  /// Carrier first, which may send them without a copy. Returns false if the queue is full.
  bool push(const Outgoing& bytes, bool by_reference) noexcept;

  // --- passing output to the Carrier -------------------------------------------------------------
  /// Returns whether the next output segment is to be offered to the Carrier without copying.
  /// offer() then returns that segment.
  bool next_is_reference() const noexcept { return at(next_).stage == Stage::kWaiting; }
  Outgoing offer() const noexcept;
  /// Records that the Carrier has taken `size` bytes of the output segment that offer() returned,
  /// and reads them from the program's memory.
  void lent(std::size_t size) noexcept;
  /// Records that the Carrier cannot send the output segment from offer() unless it copies the
  /// bytes.
  void refused() noexcept { at(next_).stage = Stage::kRefused; }
  /// Stores the output segments that are to be written together in `vectors`, an array of kSegments
  /// elements. Returns the number of segments stored.
  int gather(iovec* vectors) const noexcept;
  /// Records that the Carrier accepted `size` bytes of the output segments that gather() stored.
  void written(std::size_t size) noexcept;

  // --- output that is no longer needed -----------------------------------------------------------
  /// Records that the Carrier no longer needs the oldest `count` output segments that it has taken
  /// (see lent()). `error`: the reason if they were not sent.
  void given_back(std::size_t count, std::error_code error) noexcept;
  /// Discards the output segments that were not passed to the Carrier. A segment that the Carrier
  /// has taken in part ends when the Carrier no longer needs it.
  void drop(std::error_code error) noexcept;
  /// Ends all output segments, including those whose memory the Carrier uses.
  void end(std::error_code error) noexcept;
  /// Returns whether there is a finished output segment with a release function, which
  /// take_release() would return.
  bool has_release() noexcept;
  /// Removes the oldest output segment, which is finished, and returns its release function.
  Release take_release() noexcept;

 private:
  enum class Stage : std::uint8_t {
    kWaiting,  ///< the output segment is to be offered to the Carrier without copying
    kRefused,  ///< the output segment is to be written with the Carrier's writev()
    kLent,     ///< the Carrier has taken the output segment, and still reads its memory
    kDone,     ///< the output segment is no longer needed: its release function is due
  };
  struct Segment {
    const std::byte* data = nullptr;
    std::size_t size = 0;
    // The chunk that contains the bytes; null: they are in the program's memory.
    Chunk* chunk = nullptr;
    Outgoing::Release release = nullptr;
    void* context = nullptr;
    const Memory* memory = nullptr;
    std::error_code error;
    Stage stage = Stage::kWaiting;
    bool begun = false;  // whether the Carrier has taken a part of this output segment
  };

  Segment& at(std::size_t index) noexcept { return segments_[index % kSegments]; }
  const Segment& at(std::size_t index) const noexcept { return segments_[index % kSegments]; }
  void done(Segment& segment, std::error_code error) noexcept;
  void unuse(Chunk* chunk) noexcept;

  ChunkPool* pool_ = nullptr;
  Chunk* filling_ = nullptr;  // the chunk in whose free part reserve() returns buffers; null: none
  bool reserved_ = false;     // whether a buffer that reserve() returned was not committed yet
  std::size_t held_ = 0;      // number of copied bytes that wait to be sent
  std::array<Segment, kSegments> segments_;
  // Indexes into the array of output segments, modulo its size. first_: the oldest segment whose
  // release function was not called yet. next_: the first segment that was not passed to the
  // Carrier completely. last_: the first unused element.
  std::size_t first_ = 0, next_ = 0, last_ = 0;
  // Number of output segments that the Carrier returned inside Carrier::send(), before lent() was
  // called for them.
  std::size_t given_back_early_ = 0;
};

}}  // namespace conn
