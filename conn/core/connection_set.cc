// SPDX-License-Identifier: BSD-3-Clause
#include "conn/core/connection_set.h"

#include <algorithm>
#include <chrono>
#include <utility>
#include <vector>

#include "conn/core/connection_core.h"
#include "conn/core/in_place_state.h"
#include "conn/core/transport.h"
#include "conn/kit/ready_list.h"

namespace conn { inline namespace AECONN_ABI {
namespace {

using Clock = std::chrono::steady_clock;

// How long one connection may wait before the others are served again.
constexpr ae::Duration kTurn = std::chrono::milliseconds(2);

/// As Carrier::drain(), for output that waits here first.
bool drain_all(ConnectionCore& connection, ae::TimePoint until) noexcept {
  if (connection.in_place_ != nullptr && connection.in_place_->waits() && !connection.closing()) {
    try {
      while (!connection.in_place_->flush()) {
        if (std::chrono::steady_clock::now() >= until) return false;
        connection.carrier_->wait_for(ae::kWritable, until);
      }
    } catch (const std::exception&) {  // no memory to wait
    }
  }
  return connection.carrier_->drain(until);
}

}  // namespace

/// The close handlers of one loop that are due. Member of its ConnectionSet.
class DueToClose final : public ReadyList {
 public:
  explicit DueToClose(ae::EventLoop& loop) : ReadyList(loop) { loop.add_source(*this); }
  ~DueToClose() override { loop().remove_source(*this); }
};

ConnectionSet& ConnectionSet::of(ae::EventLoop& loop) {
  static const char key = 0;
  std::unique_ptr<ae::LoopLocal>& slot = loop.local(&key);
  if (!slot) slot = std::make_unique<ConnectionSet>();
  return static_cast<ConnectionSet&>(*slot);
}

ConnectionSet::ConnectionSet() = default;

InPlacePool& ConnectionSet::in_place(ae::EventLoop& loop) {
  if (!in_place_) in_place_ = std::make_unique<InPlacePool>(loop);
  return *in_place_;
}

ReadyList& ConnectionSet::due_to_close(ae::EventLoop& loop) {
  if (!due_to_close_) due_to_close_ = std::make_unique<DueToClose>(loop);
  return *due_to_close_;
}

ReadyList* ConnectionSet::due_to_close() noexcept { return due_to_close_.get(); }

ConnectionSet::~ConnectionSet() {
  loop_ends();
  drain();
  for (bool more = true; more;) {  // an abandoned connection may have created others
    more = false;
    for (auto& [type, kind] : kinds_) more = abandon(kind) || more;
  }
}

void ConnectionSet::add(ConnectionCore& connection) {
  ConnectionCore*& head = kinds_[&connection.carrier().type()].head;
  connection.set_next_ = head;
  connection.set_link_ = &head;
  if (head != nullptr) head->set_link_ = &connection.set_next_;
  head = &connection;
}

void LoopEndWatcher::stop_watching() noexcept {
  if (link_ == nullptr) return;
  *link_ = next_;
  if (next_ != nullptr) next_->link_ = link_;
  link_ = nullptr;
}

void ConnectionSet::add(LoopEndWatcher& watcher) noexcept {
  watcher.next_ = watchers_;
  watcher.link_ = &watchers_;
  if (watchers_ != nullptr) watchers_->link_ = &watcher.next_;
  watchers_ = &watcher;
}

void ConnectionSet::loop_ends() noexcept {
  while (watchers_ != nullptr) {
    LoopEndWatcher& watcher = *watchers_;
    watcher.stop_watching();
    watcher.on_loop_end();
  }
}

void ConnectionSet::after_fork() noexcept {
  // Nothing is destroyed meanwhile: released connections wait in the loop's deferred list.
  for (const auto& [type, kind] : kinds_) {
    for (ConnectionCore* each = kind.head; each != nullptr; each = each->set_next_) {
      if (!each->inherited() || each->ending_ == ConnectionCore::Ending::kReleased) continue;
      if (each->given_up()) {
        each->ending_ = ConnectionCore::Ending::kClosing;
        each->leave_to_parent();
        continue;
      }
      if (each->in_place_ != nullptr) each->in_place_->leave_to_parent();
      if (!each->events_wanted()) continue;
      try {
        each->carrier_->interest_changed();
      } catch (const std::exception&) {  // an event then finds nothing to do
      }
    }
  }
}

void ConnectionSet::abandon(const ConnectionType& type) noexcept {
  loop_ends();
  drain();  // while the per-loop state of every type still exists: layers need the transport below
  for (auto& [each, kind] : kinds_) {
    const bool any = kind.head != nullptr;  // else the type may be gone
    if (any && (each == &type || Transport::of(*each).is_over(type))) (void)abandon(kind);
  }
}

bool ConnectionSet::abandon(Kind& kind) noexcept {
  const bool any = kind.head != nullptr;
  // Start at the head each time: abandoning one may destroy others (if a handler owned them).
  while (kind.head != nullptr) kind.head->abandon();
  return any;
}

/// Calls Carrier::drain() once; true once the connection is done or its time is over.
bool ConnectionSet::drain(ConnectionCore& connection, ae::TimePoint began,
                          ae::TimePoint until) noexcept {
  if (connection.ending_ == ConnectionCore::Ending::kReleased || connection.inherited())
    return true;
  const ae::Duration linger = connection.carrier_->end_linger();
  if (linger <= ae::Duration::zero()) return true;
  const ae::TimePoint last = began + linger;
  return drain_all(connection, std::min(until, last)) || Clock::now() >= last;
}

void ConnectionSet::drain() noexcept {
  if (std::exchange(drained_, true)) return;
  // Nothing is destroyed meanwhile: no handler runs, and released connections wait in the loop's
  // deferred list. Data handed on by a closed layer is found in the next round, on the connection
  // below.
  const ae::TimePoint began = Clock::now();
  std::vector<ConnectionCore*> waiting;
  for (;;) {
    for (const auto& [type, kind] : kinds_) {
      for (ConnectionCore* each = kind.head; each != nullptr; each = each->set_next_) {
        if (drain(*each, began, began)) continue;
        try {
          waiting.push_back(each);
        } catch (const std::bad_alloc&) {  // no memory to wait
          return;
        }
      }
    }
    if (waiting.empty()) return;
    // One connection at a time waits for a short while; then all are checked again.
    for (std::size_t turn = 0; !waiting.empty(); ++turn) {
      ConnectionCore& one = *waiting[turn % waiting.size()];
      (void)drain(one, began, Clock::now() + kTurn);
      std::erase_if(waiting, [&](ConnectionCore* each) { return drain(*each, began, began); });
    }
  }
}

}}  // namespace conn
