// SPDX-License-Identifier: BSD-3-Clause
#include "conn/rdma/session_table.h"

#include <atomic>
#include <cerrno>
#include <cstring>
#include <memory>

#include "conn/error.h"
#include "conn/rdma/protocol/random.h"

namespace conn { inline namespace AECONN_ABI { namespace rdma {

SessionTable& SessionTable::of_process() {
  static std::atomic<SessionTable*> current{nullptr};
  SessionTable* table = current.load(std::memory_order_acquire);
  if (table != nullptr && !table->made_here_.inherited()) return *table;
  auto made = std::make_unique<SessionTable>(table);
  if (current.compare_exchange_strong(table, made.get(), std::memory_order_acq_rel))
    return *made.release();
  return *table;  // another thread has created a table first
}

SessionTable::Entry::~Entry() {
  if (id_ != 0) of_process().remove(id_);
}

std::pair<Grant, SessionTable::Entry> SessionTable::add(const Home& home) {
  const std::lock_guard lock(mutex_);
  for (;;) {
    Grant grant;
    std::array<std::byte, sizeof grant.session> id;
    if (!fill_random(id) || !fill_random(grant.key))
      throw errno_error(errno, "resume=yes: the kernel gives no random bytes (getrandom)");
    std::memcpy(&grant.session, id.data(), id.size());
    if (grant.session == 0) continue;
    if (!places_.try_emplace(grant.session, Place{home, grant.key, grant.key, 0}).second) continue;
    return {grant, Entry(grant.session)};
  }
}

void SessionTable::remove(std::uint64_t id) noexcept {
  const std::lock_guard lock(mutex_);
  places_.erase(id);
}

SessionTable::User* SessionTable::find(std::uint64_t id, const ae::EventLoop& here) {
  const std::lock_guard lock(mutex_);
  const auto found = places_.find(id);
  return found != places_.end() && found->second.home.loop == &here ? found->second.home.user
                                                                    : nullptr;
}

void SessionTable::Entry::move_to(const Home& home) noexcept {
  if (id_ != 0) of_process().move(id_, home);
}

void SessionTable::Entry::set_keys(const SipKey& key, const SipKey& other) noexcept {
  if (id_ != 0) of_process().set_keys(id_, key, other);
}

void SessionTable::set_keys(std::uint64_t id, const SipKey& key, const SipKey& other) noexcept {
  const std::lock_guard lock(mutex_);
  const auto found = places_.find(id);
  if (found == places_.end()) return;
  found->second.key = key;
  found->second.other_key = other;
}

void SessionTable::move(std::uint64_t id, const Home& home) noexcept {
  const std::lock_guard lock(mutex_);
  if (const auto found = places_.find(id); found != places_.end()) found->second.home = home;
}

SessionTable::Passed SessionTable::pass(std::unique_ptr<RdmaPending>& request,
                                        const ResumeMessage& message,
                                        std::span<const std::byte> bound, ae::EventLoop& here) {
  User* user = nullptr;
  {
    const std::lock_guard lock(mutex_);
    const auto found = places_.find(message.session);
    if (found == places_.end()) return Passed::kUnknown;
    Place& place = found->second;
    const std::span<const std::byte> data = request->private_data();
    const bool sure = verify_request(data, place.key, bound);
    if (!sure && !verify_request(data, place.other_key, bound)) return Passed::kUnknown;
    if (message.generation <= place.generation) return Passed::kUnknown;
    if (place.home.loop == nullptr) return Passed::kLater;
    if (place.home.loop == &here) {
      user = place.home.user;
    } else {
      if (!request->move_to(place.home.channel)) return Passed::kLater;
      // std::function requires a copyable object, which std::unique_ptr is not.
      const auto shared = std::make_shared<std::unique_ptr<RdmaPending>>(std::move(request));
      ae::EventLoop* const there = place.home.loop;
      there->post([this, shared, message, there] {
        try {
          if (User* const its = find(message.session, *there))
            its->on_resume_request(std::move(*shared), message);
        } catch (const std::bad_alloc&) {
          // There is no memory: the request is destroyed, which rejects it. The peer asks again.
        }
      });
    }
    // A request with the session's other key (Place::other_key) is not recorded here as the latest
    // one: only the session knows whether that key is still valid.
    if (sure) place.generation = message.generation;
  }
  if (user != nullptr) user->on_resume_request(std::move(request), message);
  return Passed::kYes;
}

}}}  // namespace conn::rdma
