// SPDX-License-Identifier: BSD-3-Clause
#include "conn/tls/gather.h"

#include <algorithm>
#include <cstring>

namespace conn { inline namespace AECONN_ABI { namespace tls {

ssize_t encrypt(Engine& engine, const char* bytes, std::size_t size) {
  std::size_t taken = 0;
  do {
    const ssize_t n = engine.write(bytes + taken, size - taken);
    if (n < 0) return taken > 0 ? static_cast<ssize_t>(taken) : -1;
    taken += static_cast<std::size_t>(n);
  } while (taken < size && engine.unsent() == 0);
  return static_cast<ssize_t>(taken);
}

ssize_t encrypt_gathered(Engine& engine, const iovec* vectors, int count,
                         std::array<char, Engine::kRecord>& scratch, std::uint64_t& gathered) {
  constexpr std::size_t kRecord = Engine::kRecord;
  const auto records = [](std::size_t size) { return (size + kRecord - 1) / kRecord; };
  std::size_t left = 0;
  for (int i = 0; i < count; ++i) left += vectors[i].iov_len;
  std::size_t taken = 0;
  std::size_t offset = 0;  // bytes of the first remaining vector that were taken
  const auto advance = [&](std::size_t size) {
    while (count > 0 && size >= vectors->iov_len - offset) {
      size -= vectors->iov_len - offset;
      ++vectors;
      --count;
      offset = 0;
    }
    offset += size;
  };
  for (advance(0); count > 0;) {  // advance(0) skips empty vectors at the beginning
    const char* record = static_cast<const char*>(vectors->iov_base) + offset;
    std::size_t size = std::min(vectors->iov_len - offset, kRecord);
    const auto more = [&] { return size < kRecord && 1 + records(left - size) != records(left); };
    if (more()) {
      std::memcpy(scratch.data(), record, size);
      for (int i = 1; i < count && more(); ++i) {
        const std::size_t piece = std::min(vectors[i].iov_len, kRecord - size);
        if (piece > 0) std::memcpy(scratch.data() + size, vectors[i].iov_base, piece);
        size += piece;
      }
      record = scratch.data();
      gathered += size;
    }
    const ssize_t n = engine.write(record, size);
    if (n < 0) return taken > 0 ? static_cast<ssize_t>(taken) : -1;
    taken += static_cast<std::size_t>(n);
    left -= static_cast<std::size_t>(n);
    advance(static_cast<std::size_t>(n));
    if (engine.unsent() != 0) break;
  }
  return static_cast<ssize_t>(taken);
}

}}}  // namespace conn::tls
