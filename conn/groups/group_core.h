// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The inside of a ListenerGroup: one part for each loop, and the way of an arrival from the gate to
// the part that was chosen for it.

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
#include "conn/core/arrival.h"
#include "conn/core/connection_set.h"
#include "conn/listener_group.h"

namespace conn { inline namespace AECONN_ABI {

/// For what has to reach another loop, whatever memory there is just now: again until `post` finds
/// some.
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

/// What the group keeps of one loop. What is not atomic or constant belongs to the loop's thread.
class GroupPart final : public LoopEndWatcher {
 public:
  GroupPart(std::size_t its_index, ae::Poster its_poster)
      : index(its_index), poster(std::move(its_poster)) {}
  bool on_its_thread() const noexcept { return thread == std::this_thread::get_id(); }
  void on_loop_end() noexcept override;

  const std::size_t index;
  const ae::Poster poster;
  std::shared_ptr<const Door> door;  // constant once the group listens; so is the thread
  std::thread::id thread;
  std::atomic<std::uint64_t> open{0}, assigned{0};
  std::atomic<std::uint32_t> waiting{0};
  std::atomic<bool> ended{false};
  std::atomic<bool> held_back{false};  // its own gate, where each loop has one

  ae::EventLoop* loop = nullptr;
  ReceiverPtr receiver;
  GatePtr gate;
  bool there = false;  // the core's mutex guards it: has a receiver, or is about to lose it
  std::shared_ptr<GroupCore> core;  // while it is there: the group may have gone before
};

class GroupCore : public std::enable_shared_from_this<GroupCore> {
 public:
  GroupCore(const ConnectionType& type, ae::Loops& loops, const Spread& spread);

  /// Where arrivals come from; the index is the loop's.
  using OpenGate = std::function<GatePtr(GroupPart& part, ArrivalHandler arrived)>;
  /// Makes receivers, then gates. Throws, and nothing listens then.
  void open(const Endpoint& endpoint, const MakeAcceptHandler& make, const OpenGate& open_gate);
  void close() noexcept;
  void set_paused(bool paused);
  void on_refused(const RefusedHandler& handler);
  const ConnectionType& type() const noexcept { return type_; }
  std::vector<Endpoint> endpoints() const;
  std::vector<ListenerGroup::Share> shares() const;

 private:
  friend class GroupPart;
  struct Place;
  struct Seat;
  void open_receiver(GroupPart& part, const Endpoint& endpoint, AcceptHandler accepted);
  void open_gates(const OpenGate& open_gate);
  void on_arrival(GroupPart& at, ArrivalPtr arrival);
  Quota::Place take_place();
  void refuse(GroupPart& at, ArrivalPtr arrival);
  void count_lost(GroupPart& at);
  enum class Way : bool { kFirst, kAgain };
  GroupPart* send(GroupPart& from, ArrivalPtr arrival, Way way);
  bool pass_to(GroupPart& from, GroupPart& to, ArrivalPtr& arrival);
  void arrived(GroupPart& at, ArrivalPtr arrival);
  void send_on(GroupPart& from, ArrivalPtr arrival);
  static void deliver(GroupPart& at, ArrivalPtr arrival, bool paused);
  GroupPart* choose(GroupPart& from, const Arrival& arrival, Way way);
  std::size_t pick(const std::string& peer, const std::vector<std::uint64_t>& counts);
  GroupPart* fewest() const noexcept;
  bool is_full() const noexcept;
  /// Nothing goes on at another loop any more.
  bool ends() const noexcept { return closed_ || made_here_.inherited(); }
  void hold_back(GroupPart& at, const GroupPart& chosen);
  void let_in(GroupPart& part) noexcept;
  void move_gate(GroupPart& from) noexcept;
  bool hand_gate(GroupPart& from, GroupPart& to, std::size_t failures) noexcept;
  void take_gate(GroupPart& part, GatePtr gate, std::size_t failures);
  void gate_has_arrived() noexcept;
  void give_back(GroupPart& part) noexcept;
  void leave_loop(GroupPart& part) noexcept;
  /// On its loop, unless that has ended: at once on this thread, else by a post, which is made
  /// again where `fn` finds no memory.
  void run_on(GroupPart& part, const std::function<void(GroupPart&)>& fn);
  void run_posted(GroupPart& part, const std::function<void(GroupPart&)>& fn);
  void everywhere(const std::function<void(GroupPart&)>& fn);

  const ConnectionType& type_;
  ae::Loops& loops_;
  const ae::MadeHere made_here_;
  const Spread::By how_;
  std::vector<std::unique_ptr<GroupPart>> parts_;
  std::uint64_t most_ = 0;                    // max-connections; constant once the group listens
  bool near_ = false;                         // this, too: set_near() was called
  std::atomic<GroupPart*> gate_at_{nullptr};  // where there is one gate
  std::atomic<std::uint64_t> places_{0};      // that are taken
  std::atomic<bool> closed_{false}, paused_{false}, held_back_{false};
  std::atomic<std::size_t> turn_{0};
  ae::Mutex picking_;
  Spread::Pick pick_;  // picking_
  mutable ae::Mutex mutex_;
  std::condition_variable_any left_;  // a part is there no more, or the gate has arrived
  bool gate_under_way_ = false;       // mutex_
  std::vector<Endpoint> endpoints_;   // mutex_
};

}}  // namespace conn
