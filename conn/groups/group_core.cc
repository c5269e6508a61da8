// SPDX-License-Identifier: BSD-3-Clause
#include "conn/groups/group_core.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <utility>

#include "conn/core/transport.h"
#include "conn/error.h"
#include "conn/kit/retry_after.h"

namespace conn { inline namespace AECONN_ABI {
namespace {

Failure nobody_listens(const std::exception& error) noexcept {
  try {
    return {std::make_error_code(std::errc::address_not_available),
            std::string("nobody listens any more: ") + error.what()};
  } catch (const std::bad_alloc&) {
    return out_of_memory();
  }
}

}  // namespace

/// Counts one connection against option max-connections while this object exists. Also counts it
/// for the loop that it belongs to at present (GroupPart::open), since a connection can move to
/// another loop.
struct GroupCore::Place final : Quota::Slot {
  explicit Place(std::shared_ptr<GroupCore> its_core) : core(std::move(its_core)) {}
  ~Place() override {
    --core->places_;
    if (part != nullptr) --part->open;
  }
  void give_to(GroupPart* to) const noexcept {
    if (to != nullptr) ++to->open;
    if (part != nullptr) --part->open;
    part = to;
  }
  void moved_to(const ae::EventLoop& loop) const noexcept override { give_to(core->part_of(loop)); }
  const std::shared_ptr<GroupCore> core;
  // The GroupPart of the loop that has the connection or will get it; null: none.
  mutable GroupPart* part = nullptr;
};

/// Owned by a pending connection while it waits for a loop: counts it in GroupPart::waiting. The
/// destructor lets a paused port listener accept again once at most Spreading::kMostWaiting / 2
/// connections wait for the loop.
struct GroupCore::Slot {
  Slot(std::shared_ptr<GroupCore> its_core, GroupPart& its_part)
      : core(std::move(its_core)), part(its_part) {
    ++part.waiting;
  }
  Slot(const Slot&) = delete;
  Slot& operator=(const Slot&) = delete;
  ~Slot() {
    if (--part.waiting <= Spreading::kMostWaiting / 2) core->let_in(part);
  }
  const std::shared_ptr<GroupCore> core;
  GroupPart& part;
};

GroupCore::GroupCore(const ConnectionType& type, ae::Loops& loops, const Spread& spread)
    : type_(type), loops_(loops), spreading_(spread) {
  for (std::size_t i = 0; i < loops.size(); ++i)
    parts_.push_back(std::make_unique<GroupPart>(i, loops.poster(i)));
}

// --- opening: acceptors and port listeners -------------------------------------------------------

void GroupCore::open(const Endpoint& endpoint, const MakeAcceptHandler& make,
                     const OpenPort& open_port) {
  loops_.on_each([&](ae::EventLoop& loop, std::size_t index) {
    GroupPart& part = *parts_[index];
    part.loop = &loop;
    part.opened_by = std::this_thread::get_id();
    open_acceptor(part, endpoint, make(loop, index));
  });
  open_ports(open_port);
}

void GroupCore::open_acceptor(GroupPart& part, const Endpoint& endpoint, AcceptHandler accepted) {
  ConnectionSet& set = ConnectionSet::of(*part.loop);
  set.index_in_group = part.index;
  part.receiver = Transport::of(type_).open_acceptor(*part.loop, endpoint, std::move(accepted));
  part.handoff = part.receiver->handoff();
  part.core = shared_from_this();
  set.add(part);
  const std::lock_guard lock(mutex_);
  part.there = true;
}

// Opens one port listener, on the first loop. If the kernel spreads the connections, opens one on
// each loop, all on the port that the first one got.
void GroupCore::open_ports(const OpenPort& open_port) {
  const bool one = spreading_.how() != Spread::By::kKernel;
  const auto open_on = [&](GroupPart& part) {
    PortListenerPtr port_listener =
        open_port(part, [this, one, &part](PendingConnectionPtr arrival) {
          on_arrival(one ? *gate_at_ : part, std::move(arrival));
        });
    if (part.index == 0) {
      gate_at_ = &part;
      most_ = port_listener->max_connections();
      std::vector<Endpoint> endpoints = port_listener->endpoints();
      for (Endpoint& each : endpoints) {
        each.scheme = type_.name();
        each.options = {};
      }
      const std::vector<int> near = port_listener->near_processors();
      near_ = !near.empty();
      if (near_) loops_.set_near(this, near);
      const std::lock_guard lock(mutex_);
      endpoints_ = std::move(endpoints);
    }
    // The port listener refuses connections if descriptors or memory are missing, or if the bytes
    // that are read before the set-up, such as a PROXY header, have an error.
    port_listener->on_refused([this, one, &part](const Failure& why) {
      const std::shared_ptr<GroupCore> self = shared_from_this();
      GroupPart& at = one ? *gate_at_ : part;
      if (!closed_ && at.receiver) at.receiver->refused(why);
    });
    part.port_listener = std::move(port_listener);
    if (paused_) part.port_listener->pause();
  };
  bool open = false;
  try {
    loops_.on_each([&](ae::EventLoop&, std::size_t index) {
      if (index != 0) return;
      open_on(*parts_[index]);
      open = true;
    });
  } catch (const std::exception&) {
    // The port listener is open on the first loop, so the group listens. The exception means that
    // another loop could not be reached, for example because it has ended.
    if (!open) throw;
  }
  if (one) return;
  loops_.on_each([&](ae::EventLoop&, std::size_t index) {
    if (index != 0) open_on(*parts_[index]);
  });
}

// --- passing a pending connection to a loop ------------------------------------------------------

void GroupCore::on_arrival(GroupPart& at, PendingConnectionPtr arrival) {
  // Keeps this object alive, because a handler may destroy the group.
  const std::shared_ptr<GroupCore> self = shared_from_this();
  if (closed_) return;
  try {
    arrival->place = take_place();
  } catch (const std::bad_alloc&) {  // no memory: this pending connection is lost
    count_lost(at);
    return;
  }
  if (!arrival->place) return refuse(at, std::move(arrival));
  const GroupPart* const chosen = send(at, std::move(arrival), Choice::kFirst);
  if (chosen != nullptr && !closed_) hold_back(at, *chosen);
}

/// Counts one more connection against option max-connections. Returns null if that limit is
/// reached.
Quota::Place GroupCore::take_place() {
  if (places_.fetch_add(1) >= most_) {
    --places_;
    return nullptr;
  }
  try {
    return std::make_shared<Place>(shared_from_this());
  } catch (...) {
    --places_;
    throw;
  }
}

void GroupCore::refuse(GroupPart& at, PendingConnectionPtr arrival) {
  const Failure why = Quota(most_).refusal(arrival->peer());
  arrival->refuse(retry_after_when_full());
  arrival.reset();
  if (at.port_listener) ++at.port_listener->type().counters(*at.loop).refused;
  if (!at.receiver) return;
  at.receiver->count_rejected();
  at.receiver->refused(why);
}

void GroupCore::count_lost(GroupPart& at) {
  ++type_.counters(*at.loop).accept_errors;
  if (at.receiver) at.receiver->count_rejected();
}

// Chooses a loop for a pending connection and passes the connection to it. Call it on the thread of
// `from`, which owns the connection. Returns the part (one loop's state) that has the connection
// then, or null if the connection was refused, or lost for lack of memory.
GroupPart* GroupCore::send(GroupPart& from, PendingConnectionPtr arrival, Choice choice) {
  const auto& place = *static_cast<const Place*>(arrival->place.get());
  for (;;) {
    GroupPart* to = nullptr;
    try {
      to = choose(from, *arrival, choice);
      if (closed_ || to == nullptr) {
        arrival->refuse("the server ends");
        if (!closed_ && from.receiver) from.receiver->count_rejected();
        return nullptr;
      }
      place.give_to(to);
      arrival->slot = std::make_shared<Slot>(shared_from_this(), *to);
      if (to != &from) {
        if (pass_to(from, *to, arrival)) return to;
        if (arrival == nullptr) return nullptr;
        to->ended = true;
        arrival->slot.reset();
        continue;
      }
    } catch (const std::bad_alloc&) {
      count_lost(from);
      return nullptr;
    }
    ++to->assigned;
    deliver(from, std::move(arrival), paused_);  // this may run handlers, which may throw
    return to;
  }
}

// Passes a pending connection to another loop. Returns true if the other loop has it. Returns false
// with `arrival` unchanged if the other loop has ended, and false with a null `arrival` if the
// connection was refused. Memory for the task is allocated before the call of pass(), because after
// that the connection belongs to the other thread.
bool GroupCore::pass_to(GroupPart& from, GroupPart& to, PendingConnectionPtr& arrival) {
  auto held = std::make_shared<PendingConnectionPtr>();
  const std::function<void()> task = [core = shared_from_this(), &to, held] {
    core->arrived(to, std::move(*held));
  };
  if (to.handoff && !to.handoff->pass(*arrival)) {
    count_lost(from);
    arrival->refuse("the server has no room");
    arrival.reset();
    return false;
  }
  *held = std::move(arrival);
  ++to.assigned;
  if (post_surely([&] { return to.poster.post(task); })) return true;
  --to.assigned;
  arrival = std::move(*held);
  return false;
}

void GroupCore::deliver(GroupPart& at, PendingConnectionPtr arrival, bool paused) {
  // Pauses the loop's acceptor here, because the function that set_paused() has posted to the loop
  // may run later.
  if (paused) at.receiver->pause();
  at.receiver->arrive(std::move(arrival));
}

// Takes over a pending connection that another loop has posted. If the group was closed meanwhile,
// the connection is still delivered, as long as this loop has not left the group. If this loop is
// being destroyed, which also runs the posted functions, the connection is passed to another loop.
void GroupCore::arrived(GroupPart& at, PendingConnectionPtr arrival) {
  if (at.receiver && at.poster.open()) return deliver(at, std::move(arrival), paused_);
  if (closed_) return;
  at.ended = true;
  send_on(at, std::move(arrival));
}

void GroupCore::send_on(GroupPart& from, PendingConnectionPtr arrival) {
  --from.assigned;
  arrival->slot.reset();
  (void)send(from, std::move(arrival), Choice::kAgain);
}

// Returns this group's GroupPart for `loop`; null if that loop is not in the group, or has ended.
GroupPart* GroupCore::part_of(const ae::EventLoop& loop) const noexcept {
  for (const auto& part : parts_)
    if (part->loop == &loop && !part->ended) return part.get();
  return nullptr;
}

// --- choice of a loop ----------------------------------------------------------------------------

LoopLoad GroupCore::load(std::size_t index) const noexcept {
  const GroupPart& part = *parts_[index];
  return {part.ended, part.waiting, part.open};
}

// Returns the part (one loop's state) that gets a pending connection; null if all loops have ended.
GroupPart* GroupCore::choose(GroupPart& from, const PendingConnection& arrival, Choice choice) {
  const auto load_of = [this](std::size_t index) { return load(index); };
  return part_at(choice == Choice::kAgain
                     ? spreading_.choose_fewest(parts_.size(), load_of)
                     : spreading_.choose(
                           from.index, [&] { return arrival.peer(); }, parts_.size(), load_of));
}

// --- pausing the port listener while too many connections wait -----------------------------------

bool GroupCore::is_full() const noexcept {
  return spreading_.is_full(parts_.size(), [this](std::size_t index) { return load(index); });
}

void GroupCore::hold_back(GroupPart& at, const GroupPart& chosen) {
  if (chosen.waiting < Spreading::kMostWaiting) return;
  if (spreading_.how() == Spread::By::kKernel) {
    if (!at.held_back.exchange(true) && at.port_listener) at.port_listener->hold_back();
    if (at.waiting <= Spreading::kMostWaiting / 2) let_in(at);
    return;
  }
  if (!is_full() || held_back_.exchange(true)) return;
  if (at.port_listener) at.port_listener->hold_back();
  // Checks once more: if the loops had taken all waiting connections before held_back_ was set,
  // nothing would resume the port listener later.
  if (!is_full()) let_in(at);
}

void GroupCore::let_in(GroupPart& part) noexcept {
  const bool by_kernel = spreading_.how() == Spread::By::kKernel;
  std::atomic<bool>& held = by_kernel ? part.held_back : held_back_;
  if (!held || (!by_kernel && is_full()) || !held.exchange(false)) return;
  GroupPart& at = by_kernel ? part : *gate_at_;
  const auto resume = [this](GroupPart& there) {
    if (there.port_listener && !paused_ && !held_back_ && !there.held_back)
      there.port_listener->resume();
  };
  (void)post_surely([&] { return run_on(at, resume), true; });
}

// --- running functions on the loops of the group -------------------------------------------------

void GroupCore::run_on(GroupPart& part, const std::function<void(GroupPart&)>& fn) {
  if (part.ended) return;
  if (part.on_its_thread()) return fn(part);
  (void)part.poster.post([core = shared_from_this(), &part, fn] { core->run_posted(part, fn); });
}

// Runs a posted function. If memory runs out, posts the function again, because no caller could
// receive the exception. The function then runs after other work of the loop, which may release
// memory.
void GroupCore::run_posted(GroupPart& part, const std::function<void(GroupPart&)>& fn) {
  try {
    if (part.receiver) fn(part);
  } catch (const std::bad_alloc&) {
    (void)post_surely([&] {
      return part.poster.post(
          [core = shared_from_this(), &part, fn] { core->run_posted(part, fn); });
    });
  }
}

void GroupCore::everywhere(const std::function<void(GroupPart&)>& fn) {
  for (const auto& part : parts_) run_on(*part, fn);
}

// Each posted function reads paused_ when it runs, so the last call of set_paused() takes effect in
// whatever order the functions run.
void GroupCore::set_paused(bool paused) {
  paused_ = paused;
  everywhere([this](GroupPart& part) {
    if (paused_) {
      if (part.port_listener) part.port_listener->pause();
      if (part.receiver) part.receiver->pause();
    } else {
      if (part.receiver) part.receiver->resume();
      if (!part.port_listener) return;
      if (held_back_ || part.held_back)
        part.port_listener->hold_back();
      else
        part.port_listener->resume();
    }
  });
}

void GroupCore::on_refused(const RefusedHandler& handler) {
  everywhere([handler](GroupPart& part) {
    if (part.receiver) part.receiver->on_refused(handler);
  });
}

std::vector<Endpoint> GroupCore::endpoints() const {
  const std::lock_guard lock(mutex_);
  return endpoints_;
}

std::vector<ListenerGroup::Share> GroupCore::shares() const {
  std::vector<ListenerGroup::Share> all;
  for (const auto& part : parts_) all.push_back({part->open, part->assigned});
  return all;
}

// --- the end of a loop, and closing the group ----------------------------------------------------

void GroupPart::on_loop_end() noexcept {
  const std::shared_ptr<GroupCore> its_core = core;
  ended = true;
  its_core->move_gate(*this);
  if (receiver && !its_core->ends()) its_core->give_back(*this);
  its_core->leave_loop(*this);
}

// Passes the pending connections that wait on this loop for their set-up to other loops, until
// memory runs out.
void GroupCore::give_back(GroupPart& part) noexcept {
  try {
    while (PendingConnectionPtr arrival = part.receiver->give_back())
      send_on(part, std::move(arrival));
  } catch (const std::exception&) {
    ++type_.counters(*part.loop).accept_errors;
  }
}

// Moves the group's only port listener from a loop that ends to another loop. Does nothing if each
// loop has a port listener of its own, which ends with its loop.
void GroupCore::move_gate(GroupPart& from) noexcept {
  if (!from.port_listener || ends() || spreading_.how() == Spread::By::kKernel) return;
  const auto fewest = [this] {
    return part_at(spreading_.fewest(parts_.size(), [this](std::size_t i) { return load(i); }));
  };
  for (GroupPart* to = fewest(); to != nullptr; to = fewest()) {
    if (hand_gate(from, *to, 0)) return;
    if (!from.port_listener) break;
    to->ended = true;
  }
  from.port_listener.reset();
  gate_has_arrived();
}

// Passes the port listener from the loop of `from` to the loop of `to`, by posting it. Returns
// false if the loop of `to` has ended; the port listener then stays where it is. Also returns false
// if the port listener cannot move; it is then destroyed.
bool GroupCore::hand_gate(GroupPart& from, GroupPart& to, std::size_t failures) noexcept {
  if (!from.port_listener->leave(to.handoff.get())) {
    from.port_listener.reset();
    return false;
  }
  {
    const std::lock_guard lock(mutex_);
    gate_under_way_ = true;
  }
  std::shared_ptr<PortListenerPtr> held;
  const bool posted = post_surely([&] {
    if (!held) held = std::make_shared<PortListenerPtr>();
    const std::function<void()> task = [core = shared_from_this(), &to, held, failures] {
      core->take_port_listener(to, std::move(*held), failures);
    };
    if (from.port_listener) *held = std::move(from.port_listener);
    return to.poster.post(task);
  });
  if (!posted) from.port_listener = std::move(*held);
  return posted;
}

void GroupCore::gate_has_arrived() noexcept {
  const std::lock_guard lock(mutex_);
  gate_under_way_ = false;
  tell_waiters();
}

void GroupCore::take_port_listener(GroupPart& part, PortListenerPtr port_listener,
                                   std::size_t failures) {
  if (closed_) {
    port_listener.reset();
    return gate_has_arrived();
  }
  part.port_listener = std::move(port_listener);
  if (!part.receiver || !part.poster.open()) {
    part.ended = true;
    move_gate(part);
    if (!part.port_listener) return;
    // The group was closed, or this is a child of fork(): move_gate() has not moved the listener.
    part.port_listener.reset();
    return gate_has_arrived();
  }
  gate_at_ = &part;
  Failure why;
  try {
    part.port_listener->arrive(*part.loop);
    // Applies calls of pause() and resume() that were made while the port listener was being moved.
    if (paused_)
      part.port_listener->pause();
    else if (held_back_)
      part.port_listener->hold_back();
    else
      part.port_listener->resume();
    return gate_has_arrived();
  } catch (const std::exception& error) {
    why = nobody_listens(error);
  }
  // The port listener cannot listen on this loop: passes it to the next loop, until one can listen
  // or 2 * parts_.size() attempts failed.
  for (std::size_t i = 1; i <= parts_.size() && failures < 2 * parts_.size(); ++i) {
    GroupPart& next = *parts_[(part.index + i) % parts_.size()];
    if (next.ended) continue;
    if (hand_gate(part, next, failures + 1)) return;
    if (!part.port_listener) break;
    next.ended = true;
  }
  part.port_listener.reset();
  gate_has_arrived();
  ++type_.counters(*part.loop).accept_errors;
  part.receiver->refused(why);  // this may run a handler, which may throw
}

void GroupCore::leave_loop(GroupPart& part) noexcept {
  // `self` may be the last pointer to this object. It is declared before `lock`, so that the mutex
  // is unlocked before the object is destroyed.
  const std::shared_ptr<GroupCore> self = std::move(part.core);
  part.stop_watching();
  part.port_listener.reset();
  part.receiver.reset();
  const std::lock_guard lock(mutex_);
  part.there = false;
  tell_waiters();
}

/// Wakes a waiting close(). Does nothing in a child of fork(): the waiting threads exist only in
/// the parent, and notify_all() might wait for them.
void GroupCore::tell_waiters() noexcept {
  if (!made_here_.inherited()) left_.notify_all();
}

void GroupCore::close() noexcept {
  closed_ = true;
  // In a child of fork(), the threads of the other loops exist only in the parent, so close()
  // cannot wait for them.
  const bool alone = made_here_.inherited();
  try {
    if (std::exchange(near_, false) && !alone) loops_.set_near(this, {});
  } catch (const std::bad_alloc&) {
    // There is no memory to undo set_near(): the loops' threads possibly stay bound to the CPUs
    // near the device.
  }
  bool inside = false;
  for (const auto& part : parts_) {
    bool there = false;
    {
      const std::lock_guard lock(mutex_);
      there = part->there;
    }
    if (there && part->on_its_thread()) {
      inside = true;
      leave_loop(*part);
      continue;
    }
    if (alone) continue;
    // The post fails if the loop has ended; that loop has left the group already, or is about to.
    (void)post_surely([&] {
      return part->poster.post([core = shared_from_this(), part = part.get()] {
        if (part->receiver) core->leave_loop(*part);
      });
    });
  }
  spreading_.forget_function();
  if (inside || alone) return;
  std::unique_lock lock(mutex_);
  left_.wait(lock, [this] {
    return !gate_under_way_ &&
           std::none_of(parts_.begin(), parts_.end(), [](const auto& part) { return part->there; });
  });
}

}}  // namespace conn
