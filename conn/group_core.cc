#include "conn/group_core.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <utility>

#include "conn/error.h"

namespace conn {
namespace {

// Arrivals that wait for one loop to take them up: beyond, others are chosen, and where all have so
// many the rest stays in the backlog, until one of them has half.
constexpr std::uint32_t kMostWaiting = 128;

}  // namespace

/// Held by a connection from the moment it is given to a loop until it is destroyed.
struct GroupCore::Place {
  Place(std::shared_ptr<GroupCore> its_core, GroupPart& its_part, Quota::Place its_place)
      : core(std::move(its_core)), part(its_part), place(std::move(its_place)) {
    ++part.open;
  }
  Place(const Place&) = delete;
  Place& operator=(const Place&) = delete;
  ~Place() { --part.open; }
  const std::shared_ptr<GroupCore> core;
  GroupPart& part;
  const Quota::Place place;
};

/// Held by an arrival while it waits for a loop.
struct GroupCore::Seat {
  Seat(std::shared_ptr<GroupCore> its_core, GroupPart& its_part)
      : core(std::move(its_core)), part(its_part) {
    ++part.waiting;
  }
  Seat(const Seat&) = delete;
  Seat& operator=(const Seat&) = delete;
  ~Seat() {
    if (--part.waiting <= kMostWaiting / 2 && core->held_back_) core->let_in();
  }
  const std::shared_ptr<GroupCore> core;
  GroupPart& part;
};

GroupCore::GroupCore(const ConnectionType& type, ae::Loops& loops, Spread spread)
    : type_(type), loops_(loops), spread_(std::move(spread)) {
  for (std::size_t i = 0; i < loops.size(); ++i)
    parts_.push_back(std::make_unique<GroupPart>(*this, i, loops.poster(i)));
}

// --- beginning -----------------------------------------------------------------------------------

void GroupCore::open(const Endpoint& endpoint, const MakeAcceptHandler& make,
                     const OpenGate& open_gate) {
  try {
    loops_.on_each([&](ae::EventLoop& loop, std::size_t index) {
      GroupPart& part = *parts_[index];
      part.loop = &loop;
      part.thread = std::this_thread::get_id();
      open_receiver(part, endpoint, make(loop, index));
    });
    open_gates(open_gate);
  } catch (...) {
    close();
    throw;
  }
}

void GroupCore::open_receiver(GroupPart& part, const Endpoint& endpoint, AcceptHandler accepted) {
  part.receiver = type_.open_receiver(*part.loop, endpoint, std::move(accepted));
  part.door = part.receiver->door();
  ConnectionSet::of(*part.loop).add(part);
  const std::lock_guard lock(mutex_);
  part.there = true;
}

// One, on the first loop; or one on each, of which the first says what port it is.
void GroupCore::open_gates(const OpenGate& open_gate) {
  const auto open_on = [&](GroupPart& part) {
    GatePtr gate = open_gate(
        part, [this, &part](ArrivalPtr arrival) { on_arrival(part, std::move(arrival)); });
    if (part.index == 0) {
      quota_ = std::make_unique<const Quota>(gate->max_connections());
      std::vector<Endpoint> endpoints = gate->endpoints();
      for (Endpoint& each : endpoints) {
        each.scheme = type_.name();
        each.options = {};
      }
      const std::lock_guard lock(mutex_);
      endpoints_ = std::move(endpoints);
    }
    const std::vector<int> near = gate->near_processors();
    if (part.index == 0 && !near.empty()) loops_.set_near(this, near);
    part.gate = std::move(gate);
    if (paused_) part.gate->pause();
  };
  loops_.on_each([&](ae::EventLoop&, std::size_t index) {
    if (index == 0) open_on(*parts_[index]);
  });
  if (spread_.how() != Spread::By::kKernel) return;
  loops_.on_each([&](ae::EventLoop&, std::size_t index) {
    if (index != 0) open_on(*parts_[index]);
  });
}

// --- an arrival's way ----------------------------------------------------------------------------

void GroupCore::on_arrival(GroupPart& at, ArrivalPtr arrival) {
  const std::shared_ptr<GroupCore> self = shared_from_this();  // a handler may end the group
  if (closed_) return;
  try {
    arrival->place = quota_->take();
    if (quota_->overdrawn()) return refuse(at, std::move(arrival));
    send(at, std::move(arrival));
    if (!closed_) hold_back();
  } catch (const std::bad_alloc&) {  // this arrival is lost, the others lose nothing
    ++type_.counters(*at.loop).accept_errors;
  }
}

void GroupCore::refuse(GroupPart& at, ArrivalPtr arrival) {
  const Failure why = quota_->refusal(arrival->peer());
  arrival->place.reset();
  arrival->refuse("max-connections reached");
  arrival.reset();
  ++at.gate->type().counters(*at.loop).refused;
  if (at.receiver) at.receiver->refused(why);
}

// On the thread of `from`, which is where the arrival is.
void GroupCore::send(GroupPart& from, ArrivalPtr arrival) {
  const Quota::Place place = std::move(arrival->place);
  for (;;) {
    GroupPart* const to = choose(from, *arrival);
    if (to == nullptr) return arrival->refuse("the server ends");
    arrival->seat = std::make_shared<Seat>(shared_from_this(), *to);
    arrival->place = std::make_shared<Place>(shared_from_this(), *to, place);
    if (to == &from) {
      ++to->assigned;
      return from.receiver->arrive(std::move(arrival));
    }
    if (to->door && !to->door->pass(*arrival)) {
      ++type_.counters(*from.loop).accept_errors;
      return arrival->refuse("the server has no room");
    }
    auto held = std::make_shared<ArrivalPtr>(std::move(arrival));
    const bool posted = to->poster.post(
        [core = shared_from_this(), to, held] { core->arrived(*to, std::move(*held)); });
    if (posted) {
      ++to->assigned;
      return;
    }
    to->ended = true;
    arrival = std::move(*held);
    arrival->place.reset();
    arrival->seat.reset();
  }
}

// A post also runs while its loop is being destroyed; then another loop is to have it.
void GroupCore::arrived(GroupPart& at, ArrivalPtr arrival) {
  if (closed_) return;
  try {
    if (at.receiver && at.poster.open()) return at.receiver->arrive(std::move(arrival));
    at.ended = true;
    --at.assigned;
    arrival->place = static_cast<const Place*>(arrival->place.get())->place;
    arrival->seat.reset();
    send(at, std::move(arrival));
  } catch (const std::bad_alloc&) {
    ++type_.counters(*at.loop).accept_errors;
  }
}

// --- which loop ----------------------------------------------------------------------------------

GroupPart* GroupCore::choose(GroupPart& from, const Arrival& arrival) {
  switch (spread_.how()) {
    case Spread::By::kKernel:
      if (!from.ended) return &from;
      break;
    case Spread::By::kRoundRobin:
      for (std::size_t i = 0; i < parts_.size(); ++i) {
        GroupPart& part = *parts_[turn_++ % parts_.size()];
        if (!part.ended) return &part;
      }
      return nullptr;
    case Spread::By::kPick: {
      std::vector<std::uint64_t> counts;
      counts.reserve(parts_.size());
      for (const auto& part : parts_)
        counts.push_back(part->ended ? std::numeric_limits<std::uint64_t>::max()
                                     : part->open.load());
      const std::string peer = arrival.peer();
      const std::size_t index = spread_.pick()({peer, counts});
      if (index < parts_.size() && !parts_[index]->ended) return parts_[index].get();
      break;
    }
    case Spread::By::kFewest:
      break;
  }
  GroupPart* const best = fewest();
  if (best != nullptr) turn_ = best->index + 1;
  return best;
}

// Of those that have as few, the next after the one that was chosen last.
GroupPart* GroupCore::fewest() const noexcept {
  GroupPart* best = nullptr;
  for (std::size_t i = 0; i < parts_.size(); ++i) {
    GroupPart& part = *parts_[(turn_ + i) % parts_.size()];
    if (part.ended) continue;
    if (best == nullptr) {
      best = &part;
      continue;
    }
    const bool full = part.waiting >= kMostWaiting, best_full = best->waiting >= kMostWaiting;
    if (full != best_full ? best_full : part.open < best->open) best = &part;
  }
  return best;
}

// --- a crowd -------------------------------------------------------------------------------------

void GroupCore::hold_back() {
  const auto has_room = [](const auto& part) {
    return !part->ended && part->waiting < kMostWaiting;
  };
  if (std::any_of(parts_.begin(), parts_.end(), has_room) || held_back_.exchange(true)) return;
  everywhere([](GroupPart& part) {
    if (part.gate) part.gate->pause();
  });
  // They may all have been taken up before anybody saw the flag.
  if (std::any_of(parts_.begin(), parts_.end(), has_room)) let_in();
}

void GroupCore::let_in() noexcept {
  if (!held_back_.exchange(false)) return;
  try {
    everywhere([this](GroupPart& part) {
      if (part.gate && !paused_ && !held_back_) part.gate->resume();
    });
  } catch (const std::bad_alloc&) {  // the next that is taken up tries again
    held_back_ = true;
  }
}

// --- for all loops -------------------------------------------------------------------------------

void GroupCore::everywhere(const std::function<void(GroupPart&)>& fn) {
  for (const auto& part : parts_) {
    if (part->ended) continue;
    if (part->on_its_thread())
      fn(*part);
    else
      (void)part->poster.post([core = shared_from_this(), part = part.get(), fn] {
        if (part->receiver) fn(*part);
      });
  }
}

void GroupCore::set_paused(bool paused) {
  paused_ = paused;
  everywhere([this](GroupPart& part) {
    if (paused_) {
      if (part.gate) part.gate->pause();
      if (part.receiver) part.receiver->pause();
    } else {
      if (part.receiver) part.receiver->resume();
      if (part.gate && !held_back_) part.gate->resume();
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

// --- ends ----------------------------------------------------------------------------------------

void GroupPart::on_loop_end() noexcept {
  const std::shared_ptr<GroupCore> core = core_.shared_from_this();
  ended = true;
  core->move_gate(*this);
  core->leave_loop(*this);
}

// The gate goes on elsewhere, with what waits in its backlog; one of several goes with its loop.
void GroupCore::move_gate(GroupPart& from) noexcept {
  if (!from.gate || closed_ || spread_.how() == Spread::By::kKernel) return;
  for (GroupPart* to = fewest(); to != nullptr; to = fewest()) {
    if (!from.gate->leave(to->door.get())) return;
    try {
      auto held = std::make_shared<GatePtr>(std::move(from.gate));
      if (to->poster.post(
              [core = shared_from_this(), to, held] { core->take_gate(*to, std::move(*held)); }))
        return;
      from.gate = std::move(*held);
    } catch (const std::bad_alloc&) {
      return;
    }
    to->ended = true;
  }
}

void GroupCore::take_gate(GroupPart& part, GatePtr gate) noexcept {
  if (closed_) return;
  part.gate = std::move(gate);
  if (!part.receiver || !part.poster.open()) {
    part.ended = true;
    return move_gate(part);
  }
  try {
    part.gate->arrive(*part.loop);
    if (paused_ || held_back_) part.gate->pause();
  } catch (const std::exception&) {
    part.gate.reset();
  }
}

void GroupCore::leave_loop(GroupPart& part) noexcept {
  part.stop_watching();
  part.gate.reset();
  part.receiver.reset();
  const std::lock_guard lock(mutex_);
  part.there = false;
  left_.notify_all();
}

void GroupCore::close() noexcept {
  closed_ = true;
  loops_.set_near(this, {});
  bool inside = false;
  for (const auto& part : parts_) {
    if (part->on_its_thread()) {
      inside = true;
      leave_loop(*part);
      continue;
    }
    // A loop that has ended is left already, or is about to be.
    for (bool done = false; !done;) {
      try {
        (void)part->poster.post([core = shared_from_this(), part = part.get()] {
          if (part->receiver) core->leave_loop(*part);
        });
        done = true;
      } catch (const std::bad_alloc&) {
        std::this_thread::yield();
      }
    }
  }
  if (inside) return;
  std::unique_lock lock(mutex_);
  left_.wait(lock, [this] {
    return std::none_of(parts_.begin(), parts_.end(), [](const auto& part) { return part->there; });
  });
}

}  // namespace conn
