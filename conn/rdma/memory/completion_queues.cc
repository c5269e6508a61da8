// SPDX-License-Identifier: BSD-3-Clause
#include "conn/rdma/memory/completion_queues.h"

#include <fcntl.h>
#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <utility>

namespace conn { inline namespace AECONN_ABI { namespace rdma {
namespace {

// Bytes of one entry in the ring of a completion queue, on most devices.
constexpr std::size_t kEntryBytes = 64;
// Least numbers of entries of the first completion queue of a loop, and of each further one. The
// first suffices for a few connections. A loop that needs a second queue is a server; its
// connections need 32 to 40 entries each, so that eight queues of at most 64 Ki entries are enough
// for 10,000 connections.
constexpr std::uint32_t kFirstEntries = 2048, kSecondEntries = 32000;
constexpr ae::Duration kKeepQueue = std::chrono::seconds(45);

// Rounds the number of entries up to 2^n - 1, but not above `most`. Most drivers create queues of
// 2^n or 2^n - 1 entries, so the further entries cost nothing.
std::uint32_t rounded(std::uint64_t entries, std::uint32_t most) noexcept {
  std::uint64_t size = 1;
  while (size - 1 < entries) size *= 2;
  return static_cast<std::uint32_t>(std::min<std::uint64_t>(size - 1, most));
}

}  // namespace

CompletionQueue::CompletionQueue(const Device& device, std::uint32_t entries,
                                 ibv_comp_channel* channel, int vector)
    : cq(device.verbs(), entries, channel, vector, this), ring(entries * kEntryBytes) {}

CompletionQueues::CompletionQueues(const Device& device, int vector)
    : device_(device), vector_(vector), channel_(create_comp_channel(device.verbs())) {
  const int flags = fcntl(channel_->fd, F_GETFL);
  if (flags < 0 || fcntl(channel_->fd, F_SETFL, flags | O_NONBLOCK) != 0)
    throw VerbsError("fcntl on the completion channel", errno);
}

CqLease CompletionQueues::lease(std::uint32_t entries, std::uint32_t common) {
  std::uint64_t all = 0;
  for (const auto& queue : queues_) {
    const std::uint64_t needed = std::uint64_t{queue->leased} + common + entries;
    if (needed <= queue->cq.entries()) return {*queue, entries};
    all += queue->cq.entries();
  }
  const std::uint32_t limit = device_.max_cq();
  const std::uint64_t least = std::uint64_t{entries} + common;
  if (least > limit)
    throw VerbsError(fmt::format("a completion queue of {} entries on {} (it allows {})", least,
                                 device_.name(), limit),
                     EINVAL);
  const std::uint64_t wish = all == 0 ? std::uint64_t{kFirstEntries} + common
                                      : std::max(all, std::uint64_t{kSecondEntries} + common);
  queues_.reserve(queues_.size() + 1);
  unarmed_.reserve(queues_.size() + 1);
  arming_.reserve(queues_.size() + 1);
  std::unique_ptr<CompletionQueue> queue;
  try {
    queue = std::make_unique<CompletionQueue>(device_, rounded(std::max(wish, least), limit),
                                              channel_.get(), vector_);
  } catch (const VerbsError&) {  // no memory for so many entries: creates the smallest queue
    queue =
        std::make_unique<CompletionQueue>(device_, rounded(least, limit), channel_.get(), vector_);
  }
  queues_.push_back(std::move(queue));
  unarmed_.push_back(queues_.back().get());
  return {*queues_.back(), entries};
}

std::size_t CompletionQueues::take_events() noexcept {
  // Reads at most as many events as are outstanding: each call of arm() causes at most one. This
  // saves a last read that would find the channel empty.
  std::size_t taken = 0;
  for (std::size_t most = std::max<std::size_t>(events_due_, 1); most != 0; --most) {
    ibv_cq* cq = nullptr;
    void* user = nullptr;
    if (ibv_get_cq_event(channel_.get(), &cq, &user) != 0) break;
    ++taken;
    auto& queue = *static_cast<CompletionQueue*>(user);
    const bool was_armed = queue.cq.armed();
    queue.cq.on_event();
    if (std::exchange(queue.event_due, false)) --events_due_;
    if (was_armed) unarmed_.push_back(&queue);
  }
  return taken;
}

const std::vector<CompletionQueue*>& CompletionQueues::arm(bool& lost) noexcept {
  arming_.clear();
  arming_.swap(unarmed_);
  for (CompletionQueue* queue : arming_) {
    if (!queue->cq.arm()) {
      lost = true;
      unarmed_.push_back(queue);
    } else if (!std::exchange(queue->event_due, true)) {
      ++events_due_;
    }
  }
  return arming_;
}

void CompletionQueues::look_again(CompletionQueue& queue) noexcept {
  if (!queue.cq.armed()) return;
  queue.cq.forget_armed();
  unarmed_.push_back(&queue);
}

void CompletionQueues::tick(ae::TimePoint now) noexcept {
  for (std::size_t i = queues_.size(); i-- > 1;) {  // queues_[0] is never freed
    CompletionQueue& queue = *queues_[i];
    if (queue.leased != 0) continue;
    if (queue.unused_since == ae::TimePoint{}) queue.unused_since = now;
    if (now - queue.unused_since < kKeepQueue) continue;
    std::erase(unarmed_, &queue);
    if (queue.event_due) --events_due_;
    queues_.erase(queues_.begin() + static_cast<std::ptrdiff_t>(i));
  }
}

bool CompletionQueues::at_rest() const noexcept {
  return std::none_of(queues_.begin() + (queues_.empty() ? 0 : 1), queues_.end(),
                      [](const auto& queue) { return queue->leased == 0; });
}

}}}  // namespace conn::rdma
