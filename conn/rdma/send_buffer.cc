// SPDX-License-Identifier: BSD-3-Clause
#include "conn/rdma/send_buffer.h"

#include <cerrno>

namespace conn { inline namespace AECONN_ABI { namespace rdma {

std::span<std::byte> SendBuffer::reserve(std::size_t size, const MemoryLimit& limit,
                                         ae::TimePoint now) {
  wants_memory_ = false;
  if (tx_.held() == 0) tuning_.on_idle_write([now] { return now; });
  const std::size_t left = room();
  errno = EAGAIN;
  // Fails if there is space neither for `size` bytes (which may exceed the whole buffer) nor for
  // room_to_wait_for() bytes, from which on has_room() is true.
  short_of_room_ = left < std::min<std::size_t>(size, room_to_wait_for());
  if (short_of_room_) return {};
  const std::span<std::byte> found = tx_.reserve(size, limit);
  if (!found.empty()) return found.first(std::min(found.size(), std::max(size, left)));
  wants_memory_ = tx_.held() != 0;
  errno = wants_memory_ ? EAGAIN : EOPNOTSUPP;
  return {};
}

void SendBuffer::wait_for_memory(std::size_t size, ae::TimePoint now) noexcept {
  memory_wanted_ = static_cast<std::uint32_t>(std::clamp<std::size_t>(size, 1, UINT32_MAX));
  tuning_.on_refusal(now);
}

bool SendBuffer::secure(bool writer_waits, const MemoryLimit& limit) noexcept {
  const std::size_t least = tx_.held() == 0 ? 1 : memory_wanted_;
  if (waits_for_memory() && writer_waits && !tx_.reserving() && !tx_.secure(least, limit))
    return false;
  memory_wanted_ = 0;
  return true;
}

}}}  // namespace conn::rdma
