// SPDX-License-Identifier: BSD-3-Clause
#include "conn/core/chunks.h"

#include <array>
#include <cassert>
#include <new>
#include <utility>

namespace conn { inline namespace AECONN_ABI {
namespace {

// The largest numbers of unused small and large chunks that a pool stores for reuse: together at
// most 1.5 MiB.
constexpr std::array<unsigned, 2> kKept{64, 8};

}  // namespace

ChunkPool::~ChunkPool() {
  for (Shelf& shelf : shelves_)
    while (shelf.head != nullptr) ::operator delete(std::exchange(shelf.head, shelf.head->next));
}

Chunk* ChunkPool::acquire(std::size_t size) noexcept {
  assert(size <= kLarge);
  const std::size_t kind = size <= kSmall ? 0 : 1;
  Shelf& shelf = shelves_[kind];
  if (shelf.head != nullptr) {
    --shelf.count;
    Chunk* const chunk = std::exchange(shelf.head, shelf.head->next);
    chunk->next = nullptr;
    return chunk;
  }
  const std::size_t room = kind == 0 ? kSmall : kLarge;
  void* const memory = ::operator new(sizeof(Chunk) + room, std::nothrow);
  if (memory == nullptr) return nullptr;
  auto* const chunk = new (memory) Chunk;
  chunk->size = static_cast<std::uint32_t>(room);
  return chunk;
}

void ChunkPool::release(Chunk* chunk) noexcept {
  const std::size_t kind = chunk->size == kSmall ? 0 : 1;
  Shelf& shelf = shelves_[kind];
  if (shelf.count == kKept[kind]) {
    ::operator delete(chunk);
    return;
  }
  chunk->begin = chunk->end = chunk->users = 0;
  chunk->next = std::exchange(shelf.head, chunk);
  ++shelf.count;
}

}}  // namespace conn
