// SPDX-License-Identifier: BSD-3-Clause
// Data in place: reading receive windows without a copy, reserved memory for output, and sending
// from the user's memory.

#include <algorithm>
#include <array>
#include <cerrno>

#include "conn/rdma/carrier.h"
#include "conn/rdma/memory/user_memory.h"

namespace conn { inline namespace AECONN_ABI { namespace rdma {
namespace {

// Shorter data is copied faster than the device reports its completion.
constexpr std::size_t kLeastReferred = 1024;
constexpr std::size_t kMostReferred = std::size_t{1} << 30;

}  // namespace

// --- receiving -----------------------------------------------------------------------------------

ssize_t RdmaCarrier::peek(std::size_t together, View& view) {
  shown_ = 0;
  if (const ssize_t n = look_for_bytes(); n <= 0) return n;
  const std::uint64_t unread = stream_.unread_bytes();
  const bool ended = stream_.peer_closed() || pending_failure_;
  std::array<std::span<const std::byte>, 2> pieces;
  const std::size_t count = stream_.peek(pieces);
  const bool have_come = unread >= together;
  // The bytes are not contiguous, or no more can arrive before these are read.
  if (have_come ? pieces[0].size() < together : !ended && stream_.is_full()) {
    errno = EMSGSIZE;
    return -1;
  }
  if (!have_come && !ended) together_ = together;
  std::size_t left = std::max(read_left_, together);
  for (std::size_t i = 0; i < count && left != 0; ++i) {
    const std::size_t size = std::min(left, pieces[i].size());
    view.pieces[i] = {const_cast<std::byte*>(pieces[i].data()), size};
    view.count = static_cast<int>(i) + 1;
    view.size += size;
    left -= size;
  }
  view.stable = false;
  view.last = ended && view.size == unread;
  shown_ = view.size;
  viewed_ = true;
  return 1;
}

std::size_t RdmaCarrier::consume(std::size_t size) noexcept {
  end_view();
  if (inherited()) return 0;
  renew_budget();
  std::size_t taken = 0;
  take([&] { taken = take_bytes(nullptr, std::min(size, shown_)); });
  return taken;
}

void RdmaCarrier::forget_view() noexcept {
  viewed_ = false;
  if (std::exchange(together_, 1) != 1) update_ready();
  release_kept();
}

// --- memory that outlives the queue pair ---------------------------------------------------------

void RdmaCarrier::release_kept() noexcept {
  if (!kept_ || viewed_ || tx_.reserving()) return;
  for (ReceiveWindow& window : windows_) window.drop();
  tx_.use(nullptr, nullptr);
  kept_.reset();
  state_->memory_came_back();
}

void RdmaCarrier::drop_kept() noexcept {
  viewed_ = false;
  together_ = 1;
  tx_.commit(0);
  release_kept();
}

// --- sending -------------------------------------------------------------------------------------

std::span<std::byte> RdmaCarrier::reserve(std::size_t size) {
  if (phase_ != Phase::kOpen || pending_failure_)
    return (void)refuse_write(), std::span<std::byte>{};
  wants_memory_ = false;
  if (tx_.held() == 0) send_buffer_.on_idle_write(state_->now());
  const std::size_t left = room();
  errno = EAGAIN;
  // Requires what the write handler waits for, or `size` if that is less: the buffer may be small.
  short_of_room_ = left < std::min<std::size_t>(size, room_to_wait_for());
  if (short_of_room_) return {};
  const std::span<std::byte> found = tx_.reserve(size, settings_.limit());
  if (!found.empty()) return found.first(std::min(found.size(), std::max(size, left)));
  if (tx_.held() == 0) {
    // A smaller block may be available, through which the data is written in parts.
    errno = EOPNOTSUPP;
    return {};
  }
  wants_memory_ = true;
  wait_for_memory(size);
  errno = EAGAIN;
  return {};
}

void RdmaCarrier::commit(std::size_t size) noexcept {
  tx_.commit(size);
  if (kept_) return release_kept();
  if (size != 0 && phase_ == Phase::kOpen) state_->want_flush(*this);
}

bool RdmaCarrier::sends_in_place(const Outgoing& bytes) const noexcept {
  const std::size_t size = bytes.bytes.size();
  return bytes.memory != nullptr && size >= kLeastReferred && size <= kMostReferred;
}

ssize_t RdmaCarrier::send(const Outgoing& bytes) {
  const std::size_t size = bytes.bytes.size();
  errno = EOPNOTSUPP;
  // writev() handles all other cases, and failures.
  if (!sends_in_place(bytes)) return -1;
  if (phase_ != Phase::kOpen || pending_failure_) return -1;
  if (bytes.memory->of() != &type()) return -1;
  const auto* memory = static_cast<const UserMemory*>(bytes.memory);
  if (!memory->is_of(loop()) || !memory->holds(bytes.bytes)) return -1;
  const std::optional<std::uint32_t> key =
      domain_->user_memory().key(*memory, settings_.limit().but_a_quarter(), state_->now());
  const bool taken = key && tx_.refer(bytes.bytes.data(), static_cast<std::uint32_t>(size), *key);
  errno = EOPNOTSUPP;
  if (!taken) return -1;
  state_->want_flush(*this);
  return static_cast<ssize_t>(size);
}

void RdmaCarrier::tell_references(std::error_code error) noexcept {
  if (const std::size_t count = tx_.take_done(); count != 0) host().references_done(count, error);
}

}}}  // namespace conn::rdma
