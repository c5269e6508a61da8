// SPDX-License-Identifier: BSD-3-Clause
#include "conn/rdma/loop/due_connections.h"

#include <algorithm>
#include <array>
#include <utility>

namespace conn { inline namespace AECONN_ABI { namespace rdma {
namespace {

// The largest number of connections that try again to get memory in one iteration. The number is
// small because a failed attempt is slow: it searches for all memory that could be freed.
constexpr std::size_t kWokenInTurn = 16;

}  // namespace

void DueConnections::make_room(std::size_t connections) {
  for (auto* list : {&reap_, &waiting_for_memory_, &paced_})
    if (list->capacity() < connections) list->reserve(std::max(connections, 2 * list->capacity()));
  for (Dirty* list : {&dirty_, &flushing_})
    if (list->users.size() < connections)
      list->users.resize(std::max(connections, 2 * list->users.size()));
}

void DueConnections::attach(LoopConnection& user) noexcept {
  if (!std::exchange(user.in_.attached, true)) ++attached_;
}

void DueConnections::remove(LoopConnection& user) noexcept {
  if (std::exchange(user.in_.memory, false)) std::erase(waiting_for_memory_, &user);
  if (std::exchange(user.in_.pace, false)) std::erase(paced_, &user);
  if (!user.in_.flush) return;
  user.in_.flush = false;
  LoopConnection** const dirty = dirty_.users.data();
  dirty_.count = static_cast<std::size_t>(std::remove(dirty, dirty + dirty_.count, &user) - dirty);
  LoopConnection** const flushing = flushing_.users.data();
  std::replace(flushing, flushing + flushing_.count, &user, static_cast<LoopConnection*>(nullptr));
}

void DueConnections::forget(LoopConnection& user) noexcept {
  remove(user);
  if (std::exchange(user.in_.attached, false)) --attached_;
  if (std::exchange(user.in_.reap, false)) std::erase(reap_, &user);
}

bool DueConnections::post_due() noexcept {
  std::swap(flushing_, dirty_);
  bool posted = false;
  for (std::size_t i = 0; i < flushing_.count; ++i) {
    LoopConnection* const user = std::exchange(flushing_.users[i], nullptr);
    if (user == nullptr) continue;
    user->in_.flush = false;
    user->post_due();
    posted = true;
  }
  flushing_.count = 0;
  return posted;
}

bool DueConnections::add_to_reap(LoopConnection& user) noexcept {
  if (user.in_.reap) return false;
  user.in_.reap = true;
  reap_.push_back(&user);
  return true;
}

LoopConnection& DueConnections::take_to_reap() noexcept {
  LoopConnection& user = *reap_.front();
  reap_.erase(reap_.begin());
  user.in_.reap = false;
  return user;
}

void DueConnections::wait_for_memory(LoopConnection& user) {
  if (!std::exchange(user.in_.memory, true)) waiting_for_memory_.push_back(&user);
}

void DueConnections::wake_some() {
  if (std::exchange(memory_came_back_, false)) to_wake_ = waiting_for_memory_.size();
  const std::size_t count = std::min({to_wake_, waiting_for_memory_.size(), kWokenInTurn});
  to_wake_ = std::min(to_wake_, waiting_for_memory_.size()) - count;
  // Takes the connections off the list of those that wait for memory before it calls on_memory(),
  // because on_memory() may put them on the list again, and the list has capacity for each
  // connection only once.
  std::array<LoopConnection*, kWokenInTurn> woken{};
  std::copy_n(waiting_for_memory_.begin(), count, woken.begin());
  waiting_for_memory_.erase(waiting_for_memory_.begin(),
                            waiting_for_memory_.begin() + static_cast<std::ptrdiff_t>(count));
  for (std::size_t i = 0; i < count; ++i) woken[i]->in_.memory = false;
  for (std::size_t i = 0; i < count; ++i) woken[i]->on_memory();
}

void DueConnections::keep_pace_of(LoopConnection& user) {
  if (!std::exchange(user.in_.pace, true)) paced_.push_back(&user);
}

ae::TimePoint DueConnections::next_pace() const noexcept {
  ae::TimePoint next = ae::TimePoint::max();
  for (const LoopConnection* user : paced_)
    if (const auto at = user->pace_at()) next = std::min(next, *at);
  return next;
}

bool DueConnections::flush_paced(ae::TimePoint now) noexcept {
  bool added = false;
  for (LoopConnection* user : paced_)
    if (const auto at = user->pace_at(); at && *at <= now) added = add_to_flush(*user) || added;
  return added;
}

}}}  // namespace conn::rdma
