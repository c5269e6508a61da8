// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Memory that connections borrow while it holds something: bytes that were read ahead, bytes that
// wait to be written. Loop thread only. Nothing is allocated where one was given back before.

#include <array>
#include <cstddef>
#include <cstdint>
#include <new>

#include "ae/abi.h"
#include "conn/in_place.h"

namespace conn { inline namespace AECONN_ABI {

/// Its bytes follow it.
struct Chunk {
  Chunk* next = nullptr;
  std::uint32_t size = 0;            ///< bytes it has room for
  std::uint32_t begin = 0, end = 0;  ///< those that hold something
  std::uint32_t users = 0;           ///< pieces of it that wait to be written, and who fills it
  std::byte* data() noexcept { return reinterpret_cast<std::byte*>(this + 1); }
  std::uint32_t held() const noexcept { return end - begin; }
  std::uint32_t room() const noexcept { return size - end; }
};

class ChunkPool {
 public:
  static constexpr std::size_t kSmall = 16 * 1024;  ///< a TLS record; what a socket gives at once
  static constexpr std::size_t kLarge = kMaxContiguous;

  ChunkPool() = default;
  ChunkPool(const ChunkPool&) = delete;
  ChunkPool& operator=(const ChunkPool&) = delete;
  ~ChunkPool();

  /// An empty one with room for `size` bytes, kLarge at most. Null: there is no memory.
  Chunk* acquire(std::size_t size) noexcept;
  void release(Chunk* chunk) noexcept;
  /// The same where no pool is at hand.
  static void destroy(Chunk* chunk) noexcept { ::operator delete(chunk); }

 private:
  struct Shelf {
    Chunk* head = nullptr;
    unsigned count = 0;
  };
  std::array<Shelf, 2> shelves_;
};

}}  // namespace conn
