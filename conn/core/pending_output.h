// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// PendingOutput: the output of one connection that waits for its carrier, in order. It consists of
// bytes that were copied into chunks, and memory of the program that was passed to send(). It knows
// neither the connection nor the loop.
//
// The segments form a queue with three parts, in this order: segments that were handed to the
// carrier (which may still use their memory), segments that wait, and free places. A segment leaves
// the first part once the program has been notified that it may use the memory again.

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
  /// Limit for copied bytes that are not sent yet. Once it is reached, reserve() refuses more.
  static constexpr std::size_t kMostHeld = 4 * kMaxContiguous;

  /// A release function of the program that is to be called, and its arguments.
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

  /// Whether some output has not been handed on yet.
  bool waits() const noexcept { return next_ != last_; }
  bool idle() const noexcept { return first_ == last_ && filling_ == nullptr; }
  /// Whether the program was notified of all output.
  bool all_told() const noexcept { return first_ == last_; }  ///< and nothing is to be released
  bool lends() const noexcept;  ///< the carrier has memory that was not given back
  bool full() const noexcept { return last_ - first_ == kSegments; }
  bool reserving() const noexcept { return filling_ != nullptr; }

  // --- taking ------------------------------------------------------------------------------------
  /// Returns a buffer like Connection::reserve(); an empty span with errno EAGAIN or ENOMEM on
  /// failure.
  std::span<std::byte> reserve(std::size_t size) noexcept;
  /// Queues the first `size` bytes of the buffer that reserve() returned last. Returns false if
  /// `size` is 0.
  bool commit(std::size_t size) noexcept;
  /// Gives back the buffer that reserve() returned, without using it.
  void stop_filling() noexcept;
  /// Queues memory of the program. `by_reference`: whether the carrier may send it without copying,
  /// so that it is offered first. Returns false if all segments are in use.
  bool push(const Outgoing& bytes, bool by_reference) noexcept;

  // --- handing on --------------------------------------------------------------------------------
  /// Whether the next segment is to be offered to the carrier without copying. offer() then returns
  /// it.
  bool next_is_reference() const noexcept { return at(next_).stage == Stage::kWaiting; }
  Outgoing offer() const noexcept;
  /// Records that the carrier took `size` bytes of offer(), and reads them from the program's
  /// memory.
  void lent(std::size_t size) noexcept;
  /// Records that the carrier cannot send the segment in offer() without copying.
  void refused() noexcept { at(next_).stage = Stage::kRefused; }
  /// Stores the segments that are to be written together in `vectors`, which has kSegments places.
  /// Returns how many there are.
  int gather(iovec* vectors) const noexcept;
  /// Records that `size` bytes of the segments from gather() were written.
  void written(std::size_t size) noexcept;

  // --- done --------------------------------------------------------------------------------------
  /// Records that the carrier no longer needs the oldest `count` segments that were lent to it.
  void given_back(std::size_t count, std::error_code error) noexcept;
  /// Discards the segments that wait. One that was lent in part ends when the carrier gives it
  /// back.
  void drop(std::error_code error) noexcept;
  /// Ends all segments, including those lent to the carrier.
  void end(std::error_code error) noexcept;
  /// Whether take_release() returns a release function.
  bool has_release() noexcept;
  /// Removes the oldest segment, which is done, and returns its release function.
  Release take_release() noexcept;

 private:
  enum class Stage : std::uint8_t {
    kWaiting,  ///< a segment to be offered to the carrier without copying
    kRefused,  ///< a segment to be written by the carrier's writev()
    kLent,     ///< taken by the carrier, which still reads the program's memory
    kDone,     ///< a segment that is no longer needed: its release function is due
  };
  struct Segment {
    const std::byte* data = nullptr;
    std::size_t size = 0;
    Chunk* chunk = nullptr;  // the chunk with the bytes, if they were copied; else null
    Outgoing::Release release = nullptr;
    void* context = nullptr;
    const Memory* memory = nullptr;
    std::error_code error;
    Stage stage = Stage::kWaiting;
    bool begun = false;  // a part of it was lent to the carrier
  };

  Segment& at(std::size_t index) noexcept { return segments_[index % kSegments]; }
  const Segment& at(std::size_t index) const noexcept { return segments_[index % kSegments]; }
  void done(Segment& segment, std::error_code error) noexcept;
  void unuse(Chunk* chunk) noexcept;

  ChunkPool* pool_ = nullptr;
  Chunk* filling_ = nullptr;  // the chunk whose free end reserve() returns; null: none
  bool reserved_ = false;     // reserve() was called, and commit() not yet
  std::size_t held_ = 0;      // number of copied bytes that wait
  std::array<Segment, kSegments> segments_;
  // Indexes into segments_, modulo its size: of the oldest segment that was not released, of the
  // first that was not handed on, and of the first free place.
  std::size_t first_ = 0, next_ = 0, last_ = 0;
  // Number of segments given back before lent() was called for them.
  std::size_t given_back_early_ = 0;
};

}}  // namespace conn
