// SPDX-License-Identifier: BSD-3-Clause
// Reading and writing without a copy over RDMA: the user reads the memory into which the peer has
// written, writes into reserved memory, or sends directly from its own registered memory.

#include <algorithm>
#include <cerrno>

#include "conn/rdma/carrier.h"
#include "conn/rdma/memory/user_memory.h"

namespace conn { inline namespace AECONN_ABI { namespace rdma {
namespace {

// Least and greatest number of bytes that are sent directly from the user's memory. For fewer than
// kLeastReferred bytes, a copy is faster than reporting the device's completion to the user.
constexpr std::size_t kLeastReferred = 1024;
constexpr std::size_t kMostReferred = std::size_t{1} << 30;

}  // namespace

// --- reading in place ----------------------------------------------------------------------------

ssize_t RdmaCarrier::peek(std::size_t together, View& view) {
  reader_.show_nothing();
  if (const ssize_t n = look_for_bytes(); n <= 0) return n;
  // After an idle time-out (state kError), what has arrived can be read, and nothing follows it.
  const bool ended =
      link_.stream.peer_end().input_over() || pending_failure_ || state() == State::kError;
  return reader_.show(link_.stream, ended, together, view);
}

std::size_t RdmaCarrier::consume(std::size_t size) noexcept {
  if (reader_.has_view() && end_view()) update_ready();
  if (inherited()) return 0;
  reader_.renew(link_.state().iteration_number(), link_.settings().read_budget);
  const Reader::Taken taken =
      reader_.take(link_.stream.inbound(), nullptr, std::min(size, reader_.shown()));
  try {
    if (taken.turned) on_window_read();
  } catch (const std::exception&) {
    end_with(out_of_memory());
  }
  return taken.bytes;
}

// --- writing in place ----------------------------------------------------------------------------

std::span<std::byte> RdmaCarrier::reserve(std::size_t size) {
  if (keeps_unsent()) {
    errno = EOPNOTSUPP;  // makes the caller use writev() instead
    return {};
  }
  if (link_.stage.phase() != Phase::kOpen || pending_failure_)
    return (void)refuse_write(), std::span<std::byte>{};
  const std::span<std::byte> found =
      link_.sender.buffer().reserve(size, link_.settings().limit(), link_.state().now());
  if (found.empty() && link_.sender.buffer().wants_memory()) {
    posting_.wait_for_memory(size);
    errno = EAGAIN;
  }
  return found;
}

void RdmaCarrier::commit(std::size_t size) noexcept {
  link_.sender.queue().commit(size);
  if (link_.stage.phase() == Phase::kLost) return link_.state().want_reap(*this);
  // The reservation may have used memory of an earlier network path, which is freed now, except
  // memory of which the user still has a view.
  link_.release_kept(reader_.viewed());
  if (link_.stage.open()) link_.state().want_flush(*this);
}

bool RdmaCarrier::sends_in_place(const Outgoing& bytes) const noexcept {
  const std::size_t size = bytes.bytes.size();
  return bytes.memory != nullptr && size >= kLeastReferred && size <= kMostReferred;
}

ssize_t RdmaCarrier::send(const Outgoing& bytes) {
  const std::size_t size = bytes.bytes.size();
  errno = EOPNOTSUPP;
  // The returns of -1 with EOPNOTSUPP below make the caller use writev(), which handles these cases
  // and reports failures.
  if (!sends_in_place(bytes)) return -1;
  if (link_.stage.phase() != Phase::kOpen || pending_failure_) return -1;
  if (bytes.memory->of() != &type()) return -1;
  const auto* memory = static_cast<const UserMemory*>(bytes.memory);
  if (!memory->is_of(loop()) || !memory->holds(bytes.bytes)) return -1;
  const std::optional<std::uint32_t> key = link_.domain()->user_memory().key(
      *memory, link_.settings().limit().but_a_quarter(), link_.state().now());
  const bool taken =
      key && link_.sender.queue().refer(bytes.bytes.data(), static_cast<std::uint32_t>(size), *key);
  errno = EOPNOTSUPP;
  if (!taken) return -1;
  link_.state().want_flush(*this);
  return static_cast<ssize_t>(size);
}

}}}  // namespace conn::rdma
