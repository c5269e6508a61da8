// SPDX-License-Identifier: BSD-3-Clause
#include "conn/core/connection_set.h"

#include <linux/sockios.h>
#include <sys/ioctl.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "conn/core/connection_core.h"
#include "conn/core/in_place_state.h"
#include "conn/core/transport.h"
#include "conn/kit/ready_list.h"

namespace conn { inline namespace AECONN_ABI {
namespace {

using Clock = std::chrono::steady_clock;

// Every SetEntry in the lists is the base-class part of a ConnectionCore.
ConnectionCore* first_of(SetEntry* head) noexcept { return static_cast<ConnectionCore*>(head); }
ConnectionCore* next_of(const ConnectionCore& connection) noexcept {
  return static_cast<ConnectionCore*>(connection.next());
}

// While the connections of an ending loop send their last data, each one waits for at most this
// time before the others are served again.
constexpr ae::Duration kTurn = std::chrono::milliseconds(2);

/// Sends what the connection has not sent yet, like Carrier::drain(), beginning with output that
/// the Carrier has not accepted yet. Returns true if the connection has nothing more to send, or
/// can send nothing more.
bool drain_all(ConnectionCore& connection, ae::TimePoint until) noexcept {
  if (connection.in_place_ != nullptr && connection.in_place_->output().waits() &&
      !connection.closing()) {
    try {
      while (!connection.in_place_->flush()) {
        if (std::chrono::steady_clock::now() >= until) return false;
        connection.carrier_->wait_for(ae::kWritable, until);
      }
    } catch (
        const std::exception&) {  // there is no memory to wait for the output, so it is not sent
    }
  }
  return connection.carrier_->drain(until);
}

/// Returns whether a listener sets the connection up, so that the program does not have it yet.
bool is_arriving(const ConnectionCore& connection) noexcept {
  return connection.state_ == State::kAccepting && !connection.given_up() &&
         !connection.connect_due();
}

/// Returns the number of output bytes that have not left this machine, as far as it is known: those
/// that the Carrier has not accepted yet, and those in the kernel's send buffer of a socket.
std::size_t output_here(const ConnectionCore& connection) noexcept {
  std::size_t size = connection.in_place_ != nullptr ? connection.in_place_->output().waiting() : 0;
  int queued = 0;
  const int fd = connection.carrier_->facts().fd();
  if (fd >= 0 && ioctl(fd, SIOCOUTQ, &queued) == 0 && queued > 0)
    size += static_cast<std::size_t>(queued);
  return size;
}

}  // namespace

/// The list of due handlers that ConnectionSet::ready() returns. While it is empty, the loop does
/// not ask it for work (ae::Source::rest()).
class ReadyHandlers final : public ReadyList {
 public:
  explicit ReadyHandlers(ae::EventLoop& loop) : ReadyList(loop) { loop.add_source(*this); }
  ~ReadyHandlers() override { loop().remove_source(*this); }
  void flush() override {
    if (empty()) rest();
  }
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

ReadyList& ConnectionSet::ready(ae::EventLoop& loop) {
  if (!ready_) ready_ = std::make_unique<ReadyHandlers>(loop);
  return *ready_;
}

ReadyList* ConnectionSet::ready() noexcept { return ready_.get(); }

ConnectionSet::~ConnectionSet() {
  loop_ends();
  drain();
  // Connections are abandoned repeatedly, because the release functions of an abandoned connection
  // may create new ones.
  for (bool more = true; more;) {
    more = false;
    for (auto& [type, kind] : kinds_) more = abandon(kind) || more;
  }
}

void ConnectionSet::add(ConnectionCore& connection) {
  connection.link(kinds_[&connection.carrier().type()].head);
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

void ConnectionSet::add_last(LoopEndWatcher& watcher) noexcept {
  LoopEndWatcher** end = &watchers_;
  while (*end != nullptr) end = &(*end)->next_;
  watcher.next_ = nullptr;
  watcher.link_ = end;
  *end = &watcher;
}

void ConnectionSet::add(ArrivalSource& source) noexcept {
  source.next_ = sources_;
  source.link_ = &sources_;
  if (sources_ != nullptr) sources_->link_ = &source.next_;
  sources_ = &source;
}

void ConnectionSet::begin_accepting() noexcept {
  for (ArrivalSource* each = sources_; each != nullptr; each = each->next_) each->begin_accepting();
}

ArrivalSource::Left ConnectionSet::accept_arrived() {
  if (accepting_) return ArrivalSource::Left::kWaits;
  const struct Now {
    ~Now() { flag = false; }
    bool& flag;
  } now{accepting_ = true};
  ++round_;
  auto left = ArrivalSource::Left::kNothing;
  for (ArrivalSource* each = sources_; each != nullptr;) {
    if (each->round_ == round_) {
      each = each->next_;
      continue;
    }
    each->round_ = round_;
    left = std::max(left, each->accept_arrived());
    each = sources_;  // begins again, because handlers may have removed sources from the list
  }
  return left;
}

void ConnectionSet::loop_ends() noexcept {
  while (watchers_ != nullptr) {
    LoopEndWatcher& watcher = *watchers_;
    watcher.stop_watching();
    watcher.on_loop_end();
  }
}

void ConnectionSet::after_fork() noexcept {
  // No connection is destroyed while the lists are read: released connections wait in the event
  // loop's list of deferred objects.
  for (const auto& [type, kind] : kinds_) {
    for (ConnectionCore* each = first_of(kind.head); each != nullptr; each = next_of(*each)) {
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
        // There is no memory to change the events that the Carrier watches for. It keeps watching
        // for the old events; when one occurs, no output is left to send.
      } catch (const std::exception&) {
      }
    }
  }
}

void ConnectionSet::cut_served(const Failure& why, std::size_t& connections,
                               std::uint64_t& bytes) noexcept {
  // No connection is destroyed while the lists are read: no handler runs, and released connections
  // wait in the event loop's list of deferred objects.
  for (const auto& [type, kind] : kinds_) {
    for (ConnectionCore* each = first_of(kind.head); each != nullptr; each = next_of(*each)) {
      if (!each->served_ || each->inherited() || each->ending_ == ConnectionCore::Ending::kReleased)
        continue;
      if (is_arriving(*each)) continue;  // it is its listener's
      ++connections;
      bytes += output_here(*each);
      each->cut(why);
    }
  }
}

void ConnectionSet::abandon(const ConnectionType& type) noexcept {
  loop_ends();
  // Pending data is sent first: a layer such as TLS needs the transport below it, whose per-loop
  // state may be destroyed soon.
  drain();
  for (auto& [each, kind] : kinds_) {
    // A type without connections may already have been destroyed, so it is not accessed.
    const bool any = kind.head != nullptr;
    if (any && (each == &type || Transport::of(*each).is_over(type))) (void)abandon(kind);
  }
}

bool ConnectionSet::abandon(Kind& kind) noexcept {
  const bool any = kind.head != nullptr;
  // Each round begins at the head of the list, because abandoning one connection may destroy other
  // connections, which its handlers own.
  while (kind.head != nullptr) first_of(kind.head)->abandon();
  return any;
}

/// Calls Carrier::drain() once. Returns true once the connection has nothing more to send, or its
/// time (option end-linger) is over.
bool ConnectionSet::drain(ConnectionCore& connection, ae::TimePoint began,
                          ae::TimePoint until) noexcept {
  if (connection.ending_ == ConnectionCore::Ending::kReleased || connection.inherited() ||
      (connection.aborts_ && !connection.given_up()))
    return true;
  const ae::Duration linger = connection.carrier_->end_linger();
  if (linger <= ae::Duration::zero()) return true;
  const ae::TimePoint last = began + linger;
  return drain_all(connection, std::min(until, last)) || Clock::now() >= last;
}

void ConnectionSet::drain() noexcept {
  if (std::exchange(drained_, true)) return;
  // No connection is destroyed while the lists are read: no handler runs, and released connections
  // wait in the event loop's list of deferred objects. If a closed layer such as TLS passes data to
  // the connection below it, the next round sends them.
  const ae::TimePoint began = Clock::now();
  const auto for_each = [this](const auto& call) {
    for (const auto& [type, kind] : kinds_)
      for (ConnectionCore* each = first_of(kind.head); each != nullptr; each = next_of(*each))
        call(*each);
  };
  for (;;) {
    // The connections that have data left are marked and counted, not put in a list, which might
    // need memory that is not available.
    std::size_t waiting = 0;
    for_each([&](ConnectionCore& each) {
      each.drains_ = !drain(each, began, began);
      if (each.drains_) ++waiting;
    });
    if (waiting == 0) return;
    // The connections that still have data take turns: the loop waits for one of them for a short
    // while (kTurn), and then checks all of them again.
    for (std::size_t round = 0; waiting != 0; ++round) {
      std::size_t before = round % waiting;
      for_each([&](ConnectionCore& each) {
        if (each.drains_ && before-- == 0) (void)drain(each, began, Clock::now() + kTurn);
      });
      for_each([&](ConnectionCore& each) {
        if (!each.drains_ || !drain(each, began, began)) return;
        each.drains_ = false;
        --waiting;
      });
    }
  }
}

}}  // namespace conn
