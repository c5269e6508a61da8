// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Output of one connection that waits for its carrier: bytes that were copied into chunks, and
// memory of the program that was passed to send(), in order. Knows no connection and no loop.
//
// The segments are a queue with three parts, in this order: those handed on (their memory may still
// be in use), those that wait, free places. A segment leaves the first part once the program has
// been notified.

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
  /// Limit for copied bytes that are not sent yet; from there on reserve() refuses.
  static constexpr std::size_t kMostHeld = 4 * kMaxContiguous;

  /// What release to call, with which error.
  struct Release {
    Outgoing::Release call = nullptr;
    void* context = nullptr;
    std::error_code error;
  };

  PendingOutput() = default;
  PendingOutput(const PendingOutput&) = delete;
  PendingOutput& operator=(const PendingOutput&) = delete;
  ~PendingOutput() = default;

  /// Where chunks come from and go to; null between two loops.
  void set_pool(ChunkPool* pool) noexcept { pool_ = pool; }

  bool waits() const noexcept { return next_ != last_; }  ///< not all is handed on
  bool idle() const noexcept { return first_ == last_ && filling_ == nullptr; }
  bool all_told() const noexcept { return first_ == last_; }  ///< and nothing is to be released
  bool lends() const noexcept;  ///< the carrier has memory that was not given back
  bool full() const noexcept { return last_ - first_ == kSegments; }
  bool reserving() const noexcept { return filling_ != nullptr; }

  // --- taking ------------------------------------------------------------------------------------
  /// As Connection::reserve(): empty with EAGAIN or ENOMEM.
  std::span<std::byte> reserve(std::size_t size) noexcept;
  /// Queues the first `size` bytes of what reserve() returned last; false if that is 0.
  bool commit(std::size_t size) noexcept;
  /// Gives back what reserve() returned.
  void stop_filling() noexcept;
  /// Queues memory of the program. `by_reference`: offer it to the carrier without copying first.
  /// False if it is full.
  bool push(const Outgoing& bytes, bool by_reference) noexcept;

  // --- handing on --------------------------------------------------------------------------------
  /// Whether the next segment is to be offered without copying; if so, offer() is it.
  bool next_is_reference() const noexcept { return at(next_).stage == Stage::kWaiting; }
  Outgoing offer() const noexcept;
  /// The carrier took so many bytes of offer(), from the program's memory.
  void lent(std::size_t size) noexcept;
  /// The carrier cannot send offer() without copying.
  void refused() noexcept { at(next_).stage = Stage::kRefused; }
  /// The segments that are written together; returns how many. `vectors` has kSegments places.
  int gather(iovec* vectors) const noexcept;
  /// So many bytes of what gather() returned were written.
  void written(std::size_t size) noexcept;

  // --- done --------------------------------------------------------------------------------------
  /// The oldest `count` lent segments are no longer needed.
  void given_back(std::size_t count, std::error_code error) noexcept;
  /// Discards what waits. A segment that was lent in part is done when it is given back.
  void drop(std::error_code error) noexcept;
  /// Ends everything, also what is lent.
  void end(std::error_code error) noexcept;
  /// Whether take_release() returns something.
  bool has_release() noexcept;
  /// Removes the oldest segment, which is done.
  Release take_release() noexcept;

 private:
  enum class Stage : std::uint8_t {
    kWaiting,  ///< to be offered without copying
    kRefused,  ///< to be written
    kLent,     ///< the carrier has taken it, and reads the program's memory
    kDone,     ///< to be released
  };
  struct Segment {
    const std::byte* data = nullptr;
    std::size_t size = 0;
    Chunk* chunk = nullptr;  // holds the bytes if they were copied
    Outgoing::Release release = nullptr;
    void* context = nullptr;
    const Memory* memory = nullptr;
    std::error_code error;
    Stage stage = Stage::kWaiting;
    bool begun = false;  // a part of it was lent
  };

  Segment& at(std::size_t index) noexcept { return segments_[index % kSegments]; }
  const Segment& at(std::size_t index) const noexcept { return segments_[index % kSegments]; }
  void done(Segment& segment, std::error_code error) noexcept;
  void unuse(Chunk* chunk) noexcept;

  ChunkPool* pool_ = nullptr;
  Chunk* filling_ = nullptr;  // reserve() returned the free end of it
  bool reserved_ = false;     // and commit() has not been called yet
  std::size_t held_ = 0;      // copied bytes that wait
  std::array<Segment, kSegments> segments_;
  // Indexes into segments_, modulo its size. first_: oldest not released; before next_: handed on.
  std::size_t first_ = 0, next_ = 0, last_ = 0;
  std::size_t given_back_early_ = 0;  // before lent() was called
};

}}  // namespace conn
