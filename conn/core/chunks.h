// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// A pool of memory chunks that connections borrow while they hold data: bytes that were read ahead,
// or bytes waiting to be written. To be used on the loop's thread. Returned chunks are reused
// without allocation.

#include <array>
#include <cstddef>
#include <cstdint>
#include <new>

#include "ae/abi.h"
#include "conn/in_place.h"

namespace conn { inline namespace AECONN_ABI {

/// The header of a chunk. The bytes of the chunk follow it directly in memory.
struct Chunk {
  Chunk* next = nullptr;
  std::uint32_t size = 0;  ///< number of bytes that the chunk can hold
  /// The bytes in use: from index `begin` up to, but not including, `end`.
  std::uint32_t begin = 0, end = 0;
  /// Number of users of this chunk: segments of pending output whose bytes are in it, and the
  /// PendingOutput that is filling it.
  std::uint32_t users = 0;
  std::byte* data() noexcept { return reinterpret_cast<std::byte*>(this + 1); }
  std::uint32_t held() const noexcept { return end - begin; }
  std::uint32_t room() const noexcept { return size - end; }
};

class ChunkPool {
 public:
  /// Size of a small chunk: enough for a TLS record or a typical read from a socket.
  static constexpr std::size_t kSmall = 16 * 1024;
  static constexpr std::size_t kLarge = kMaxContiguous;

  ChunkPool() = default;
  ChunkPool(const ChunkPool&) = delete;
  ChunkPool& operator=(const ChunkPool&) = delete;
  ~ChunkPool();

  /// Returns an empty chunk with room for at least `size` bytes (at most kLarge); null if memory
  /// ran out.
  Chunk* acquire(std::size_t size) noexcept;
  void release(Chunk* chunk) noexcept;
  /// Frees the memory of a chunk, instead of returning it to a pool.
  static void destroy(Chunk* chunk) noexcept { ::operator delete(chunk); }

 private:
  struct Shelf {
    Chunk* head = nullptr;
    unsigned count = 0;
  };
  std::array<Shelf, 2> shelves_;
};

}}  // namespace conn
