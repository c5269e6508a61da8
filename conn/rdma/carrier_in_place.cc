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
  if (!kept_ || viewed_ || sender_.queue().reserving()) return;
  windows_.drop();
  sender_.use(nullptr);
  kept_.reset();
  state_->memory_came_back();
}

void RdmaCarrier::drop_kept() noexcept {
  viewed_ = false;
  together_ = 1;
  sender_.queue().commit(0);
  release_kept();
}

// --- sending -------------------------------------------------------------------------------------

std::span<std::byte> RdmaCarrier::reserve(std::size_t size) {
  if (phase_ != Phase::kOpen || pending_failure_)
    return (void)refuse_write(), std::span<std::byte>{};
  const std::span<std::byte> found = sender_.reserve(size, settings_.limit(), state_->now());
  if (found.empty() && sender_.wants_memory()) {
    wait_for_memory(size);
    errno = EAGAIN;
  }
  return found;
}

void RdmaCarrier::commit(std::size_t size) noexcept {
  sender_.queue().commit(size);
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
  const bool taken =
      key && sender_.queue().refer(bytes.bytes.data(), static_cast<std::uint32_t>(size), *key);
  errno = EOPNOTSUPP;
  if (!taken) return -1;
  state_->want_flush(*this);
  return static_cast<ssize_t>(size);
}

void RdmaCarrier::tell_references(std::error_code error) noexcept {
  if (const std::size_t count = sender_.queue().take_done(); count != 0)
    host().references_done(count, error);
}

}}}  // namespace conn::rdma
