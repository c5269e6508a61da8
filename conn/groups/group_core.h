// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The internals of a ListenerGroup: one part for each loop, and the path of a pending connection
// from the port listener to the part that was chosen for it.

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
#include "ae/loops.h"
#include "conn/connection_type.h"
#include "conn/core/connection_set.h"
#include "conn/core/pending_connection.h"
#include "conn/listener_group.h"

namespace conn { inline namespace AECONN_ABI {

/// For a post that must reach another loop even when memory is short: calls `post` again until it
/// finds memory.
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

/// The group's state for one loop. Members that are neither atomic nor constant belong to the
/// loop's thread.
class GroupPart final : public LoopEndWatcher {
 public:
  GroupPart(std::size_t its_index, ae::Poster its_poster)
      : index(its_index), poster(std::move(its_poster)) {}
  bool on_its_thread() const noexcept { return thread == std::this_thread::get_id(); }
  void on_loop_end() noexcept override;

  const std::size_t index;
  const ae::Poster poster;
  std::shared_ptr<const Handoff> handoff;  // this and `thread` are constant once the group listens
  std::thread::id thread;
  std::atomic<std::uint64_t> open{0}, assigned{0};
  std::atomic<std::uint32_t> waiting{0};
  std::atomic<bool> ended{false};
  // Its own port listener is paused for overload, if each loop has one.
  std::atomic<bool> held_back{false};

  ae::EventLoop* loop = nullptr;
  LoopAcceptorPtr receiver;
  PortListenerPtr port_listener;
  bool there = false;  // guarded by the core's mutex: it has an acceptor, or is about to lose it
  std::shared_ptr<GroupCore> core;  // set while `there`: the group may be destroyed first
};

class GroupCore : public std::enable_shared_from_this<GroupCore> {
 public:
  GroupCore(const ConnectionType& type, ae::Loops& loops, const Spread& spread);

  /// Makes a port listener, which pending connections come from, on the loop of `part`.
  using OpenPort = std::function<PortListenerPtr(GroupPart& part, PendingHandler arrived)>;
  /// Makes the loop acceptors, then the port listeners. If it throws, nothing listens.
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
  enum class Way : bool { kFirst, kAgain };
  GroupPart* send(GroupPart& from, PendingConnectionPtr arrival, Way way);
  bool pass_to(GroupPart& from, GroupPart& to, PendingConnectionPtr& arrival);
  void arrived(GroupPart& at, PendingConnectionPtr arrival);
  void send_on(GroupPart& from, PendingConnectionPtr arrival);
  static void deliver(GroupPart& at, PendingConnectionPtr arrival, bool paused);
  GroupPart* choose(GroupPart& from, const PendingConnection& arrival, Way way);
  std::size_t pick(const std::string& peer, const std::vector<std::uint64_t>& counts);
  GroupPart* fewest() const noexcept;
  bool is_full() const noexcept;
  /// Whether no more work is passed to other loops.
  bool ends() const noexcept { return closed_ || made_here_.inherited(); }
  void hold_back(GroupPart& at, const GroupPart& chosen);
  void let_in(GroupPart& part) noexcept;
  void move_gate(GroupPart& from) noexcept;
  bool hand_gate(GroupPart& from, GroupPart& to, std::size_t failures) noexcept;
  void take_port_listener(GroupPart& part, PortListenerPtr port_listener, std::size_t failures);
  void gate_has_arrived() noexcept;
  void give_back(GroupPart& part) noexcept;
  void leave_loop(GroupPart& part) noexcept;
  /// Runs `fn` on the part's loop, unless that has ended: at once if this is its thread, else by a
  /// post, which is repeated if `fn` finds no memory.
  void run_on(GroupPart& part, const std::function<void(GroupPart&)>& fn);
  void run_posted(GroupPart& part, const std::function<void(GroupPart&)>& fn);
  void everywhere(const std::function<void(GroupPart&)>& fn);

  const ConnectionType& type_;
  ae::Loops& loops_;
  const ae::MadeHere made_here_;
  const Spread::By how_;
  std::vector<std::unique_ptr<GroupPart>> parts_;
  std::uint64_t most_ = 0;  // max-connections; constant once the group listens
  // set_near() was called; constant between open() and close().
  bool near_ = false;
  // The part with the port listener, if there is only one.
  std::atomic<GroupPart*> gate_at_{nullptr};
  std::atomic<std::uint64_t> places_{0};  // number of places taken
  std::atomic<bool> closed_{false}, paused_{false}, held_back_{false};
  std::atomic<std::size_t> turn_{0};
  ae::Mutex picking_;
  Spread::Pick pick_;  // guarded by picking_
  mutable ae::Mutex mutex_;
  std::condition_variable_any left_;  // a part is no longer there, or the port listener has arrived
  bool gate_under_way_ = false;       // guarded by mutex_
  std::vector<Endpoint> endpoints_;   // guarded by mutex_
};

}}  // namespace conn
