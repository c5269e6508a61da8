// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The internals of a ListenerGroup (a listener that spreads its connections over several event
// loops): one GroupPart for each loop, and the way of a pending connection from the port listener,
// which accepts it, to the loop that is chosen for it.

#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <new>
#include <string>
#include <thread>
#include <vector>

#include "ae/abi.h"
#include "ae/core/fork.h"
#include "ae/core/poster.h"
#include "ae/loops.h"
#include "conn/connection_type.h"
#include "conn/core/connection_set.h"
#include "conn/core/pending_connection.h"
#include "conn/groups/spreading.h"
#include "conn/listener_group.h"

namespace conn { inline namespace AECONN_ABI {

/// Calls `post`, which posts a function to another loop, until it does not throw std::bad_alloc.
/// Returns its result: false means that the loop has ended.
template <typename Post>
bool post_surely(const Post& post) noexcept {
  for (;;) {
    try {
      return post();
    } catch (const std::bad_alloc&) {
      std::this_thread::yield();
    }
  }
}

/// The state of a listener group for one of its loops. Members that are neither atomic nor constant
/// may only be used on the loop's thread.
class GroupPart final : public LoopEndWatcher {
 public:
  GroupPart(std::size_t its_index, ae::Poster its_poster)
      : index(its_index), poster(std::move(its_poster)) {}
  /// Returns whether the calling thread is the loop's thread. With ae::LoopList, whose loops the
  /// program runs itself, a loop's thread can change.
  bool on_its_thread() const noexcept {
    const std::thread::id now = ae::Poster::Queue::of(poster)->thread();
    return (now == std::thread::id() ? opened_by : now) == std::this_thread::get_id();
  }
  void on_loop_end() noexcept override;

  const std::size_t index;
  const ae::Poster poster;
  // Prepares pending connections for this loop's thread; null: no preparation is needed. Neither
  // `handoff` nor `opened_by` changes once the group listens.
  std::shared_ptr<const Handoff> handoff;
  std::thread::id opened_by;
  std::atomic<std::uint64_t> open{0}, assigned{0};
  std::atomic<std::uint32_t> waiting{0};
  std::atomic<bool> ended{false};
  // True if the loop's own port listener is paused because too many connections wait for the loop.
  // Used if each loop has a port listener.
  std::atomic<bool> held_back{false};

  ae::EventLoop* loop = nullptr;
  LoopAcceptorPtr receiver;
  PortListenerPtr port_listener;
  // True if this loop's acceptor (`receiver`) exists, so that close() must wait until it is
  // destroyed. Guarded by GroupCore::mutex_.
  bool there = false;
  // The group's core. The reference exists while `there` is true, because the ListenerGroup may be
  // destroyed before this loop's acceptor.
  std::shared_ptr<GroupCore> core;
};

class GroupCore : public std::enable_shared_from_this<GroupCore> {
 public:
  GroupCore(const ConnectionType& type, ae::Loops& loops, const Spread& spread);

  /// Function that creates a port listener on the loop of `part`. The port listener passes each
  /// pending connection to `arrived`.
  using OpenPort = std::function<PortListenerPtr(GroupPart& part, PendingHandler arrived)>;
  /// Creates an acceptor on each loop, then the port listeners. If open() throws, some of these
  /// objects may exist; close() destroys them.
  void open(const Endpoint& endpoint, const MakeAcceptHandler& make, const OpenPort& open_port);
  void close() noexcept;
  void set_paused(bool paused);
  void on_refused(const RefusedHandler& handler);
  const ConnectionType& type() const noexcept { return type_; }
  std::vector<Endpoint> endpoints() const;
  std::vector<ListenerGroup::Share> shares() const;

 private:
  friend class GroupPart;
  struct Place;
  struct Slot;
  void open_acceptor(GroupPart& part, const Endpoint& endpoint, AcceptHandler accepted);
  void open_ports(const OpenPort& open_port);
  void on_arrival(GroupPart& at, PendingConnectionPtr arrival);
  Quota::Place take_place();
  void refuse(GroupPart& at, PendingConnectionPtr arrival);
  void count_lost(GroupPart& at);
  enum class Choice : bool { kFirst, kAgain };
  GroupPart* send(GroupPart& from, PendingConnectionPtr arrival, Choice choice);
  bool pass_to(GroupPart& from, GroupPart& to, PendingConnectionPtr& arrival);
  void arrived(GroupPart& at, PendingConnectionPtr arrival);
  void send_on(GroupPart& from, PendingConnectionPtr arrival);
  static void deliver(GroupPart& at, PendingConnectionPtr arrival, bool paused);
  GroupPart* choose(GroupPart& from, const PendingConnection& arrival, Choice choice);
  LoopLoad load(std::size_t index) const noexcept;
  GroupPart* part_at(std::size_t index) const noexcept {
    return index == Spreading::kNone ? nullptr : parts_[index].get();
  }
  GroupPart* part_of(const ae::EventLoop& loop) const noexcept;
  bool is_full() const noexcept;
  /// Returns whether no more work may be passed to other loops, because the group is closed, or
  /// this is a child of fork().
  bool ends() const noexcept { return closed_ || made_here_.inherited(); }
  void hold_back(GroupPart& at, const GroupPart& chosen);
  void let_in(GroupPart& part) noexcept;
  void move_gate(GroupPart& from) noexcept;
  bool hand_gate(GroupPart& from, GroupPart& to, std::size_t failures) noexcept;
  void take_port_listener(GroupPart& part, PortListenerPtr port_listener, std::size_t failures);
  void gate_has_arrived() noexcept;
  void tell_waiters() noexcept;
  void give_back(GroupPart& part) noexcept;
  void leave_loop(GroupPart& part) noexcept;
  /// Runs `fn` on the part's loop, unless that loop has ended: immediately if this is the loop's
  /// thread, otherwise from a post. If the posted `fn` runs out of memory, it is posted again.
  void run_on(GroupPart& part, const std::function<void(GroupPart&)>& fn);
  void run_posted(GroupPart& part, const std::function<void(GroupPart&)>& fn);
  void everywhere(const std::function<void(GroupPart&)>& fn);

  const ConnectionType& type_;
  ae::Loops& loops_;
  const ae::MadeHere made_here_;
  Spreading spreading_;
  std::vector<std::unique_ptr<GroupPart>> parts_;
  // Value of option max-connections; does not change once the group listens.
  std::uint64_t most_ = 0;
  // True if loops_.set_near() was called for this group, which names the CPUs near the device, for
  // the loops' threads. Does not change between open() and close().
  bool near_ = false;
  // The part (one loop's state) that has the port listener, if the group has only one port
  // listener.
  std::atomic<GroupPart*> gate_at_{nullptr};
  // Number of connections that count against max-connections.
  std::atomic<std::uint64_t> places_{0};
  std::atomic<bool> closed_{false}, paused_{false}, held_back_{false};
  mutable ae::Mutex mutex_;
  // close() waits on it. Notified when a loop's acceptor was destroyed, and when a moved port
  // listener has arrived on its new loop.
  std::condition_variable_any left_;
  bool gate_under_way_ = false;      // true if the port listener is being moved; guarded by mutex_
  std::vector<Endpoint> endpoints_;  // addresses that the group listens on; guarded by mutex_
};

}}  // namespace conn
