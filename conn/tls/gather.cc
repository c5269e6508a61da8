// SPDX-License-Identifier: BSD-3-Clause
#include "conn/tls/gather.h"

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace conn { inline namespace AECONN_ABI { namespace tls {
namespace {

/// A write of several records, which are gathered in a room (a buffer) if there is one.
class LargeWrite {
 public:
  LargeWrite(Engine& engine, std::span<char> room) : engine_(engine), room_(room) {}

  /// Encrypts bytes of at most one record. Returns how many were taken; 0: none, and end() must be
  /// called, which returns the reason.
  std::size_t add(const char* bytes, std::size_t size) {
    engine_.gather(room_);
    const ssize_t n = engine_.write(bytes, size);
    failed_ = n < 0;
    if (failed_) return 0;
    taken_ += static_cast<std::size_t>(n);
    if (!engine_.output().gathers()) offered_ = taken_;
    return static_cast<std::size_t>(n);
  }
  /// Sends what is gathered. Returns the result of the whole write. If the wire (connection below
  /// TLS) fails, records that were never passed to it are not counted.
  ssize_t end() {
    if (engine_.output().gathers()) {
      const int err = errno;
      if (!engine_.send_gathered()) failed_ = true;
      errno = err;
    }
    if (engine_.failed()) taken_ = offered_;
    return failed_ && taken_ == 0 ? -1 : static_cast<ssize_t>(taken_);
  }
  std::size_t taken() const noexcept { return taken_; }

 private:
  Engine& engine_;
  const std::span<char> room_;
  std::size_t taken_ = 0;
  std::size_t offered_ = 0;  // number of data bytes in the records passed to the wire
  bool failed_ = false;      // true if the engine did not take the last record
};

}  // namespace

ssize_t encrypt(Engine& engine, const char* bytes, std::size_t size) {
  std::size_t taken = 0;
  do {
    const ssize_t n = engine.write(bytes + taken, size - taken);
    if (n < 0) return taken > 0 ? static_cast<ssize_t>(taken) : -1;
    taken += static_cast<std::size_t>(n);
  } while (taken < size && engine.output().unsent() == 0);
  return static_cast<ssize_t>(taken);
}

ssize_t encrypt_large(Engine& engine, const char* bytes, std::size_t size, std::span<char> room) {
  LargeWrite write(engine, room);
  while (write.add(bytes + write.taken(), size - write.taken()) != 0) {
    if (write.taken() == size || engine.output().unsent() != 0) break;
  }
  return write.end();
}

ssize_t encrypt_gathered(Engine& engine, const iovec* vectors, int count,
                         std::array<char, Engine::kRecord>& scratch, std::uint64_t& gathered,
                         std::span<char> room) {
  constexpr std::size_t kRecord = Engine::kRecord;
  const auto records = [](std::size_t size) { return (size + kRecord - 1) / kRecord; };
  std::size_t left = 0;
  for (int i = 0; i < count; ++i) left += vectors[i].iov_len;
  LargeWrite write(engine, left > kRecord ? room : std::span<char>());
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
    const std::size_t taken = write.add(record, size);
    left -= taken;
    advance(taken);
    if (taken == 0 || engine.output().unsent() != 0) break;
  }
  return write.end();
}

}}}  // namespace conn::tls
