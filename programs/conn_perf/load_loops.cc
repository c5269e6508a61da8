// SPDX-License-Identifier: BSD-3-Clause
#include "load_loops.h"

#include <algorithm>
#include <utility>

namespace perf {
namespace {

/// Notifies the waiting loop when the loop it belongs to is destroyed.
class Farewell final : public ae::LoopLocal {
 public:
  Farewell(ae::EventLoop& home, std::shared_ptr<bool> ended)
      : home_(home), poster_(home.poster()), ended_(std::move(ended)) {}
  ~Farewell() override {
    (void)poster_.post([&home = home_, ended = ended_] {
      *ended = true;
      home.stop();
    });
  }

 private:
  ae::EventLoop& home_;
  const ae::Poster poster_;
  const std::shared_ptr<bool> ended_;
};

constexpr char kFarewell = 0;

/// How many of `count` items precede part `at` of `places`; the remainder goes to the first parts.
std::uint64_t before(std::uint64_t count, std::uint64_t at, std::uint64_t places) {
  return count / places * at + std::min(count % places, at);
}

}  // namespace

ClientLoops::ClientLoops(ae::EventLoop& home, const conn::Registry& registry, std::size_t count,
                         const ae::Spin& spin, const ae::LoopMaker& make)
    : home_(home),
      ended_(std::make_shared<bool>(false)),
      group_({.loops = count, .name = "perf", .make = make}) {
  shared_.resize(count);
  group_.on_each([&](ae::EventLoop& loop, std::size_t index) {
    loop.set_spin(spin);
    shared_[index] = std::make_unique<ClientShared>(loop, registry);
    loop.local(&kFarewell) = std::make_unique<Farewell>(home_, ended_);
  });
}

void ClientLoops::check() {
  if (!ended()) return;
  group_.stop();
  group_.run();
  throw Failed("a loop has ended");
}

LoadOnLoops::LoadOnLoops(ClientLoops& loops, const Plan& plan)
    : loops_(loops),
      plan_(plan),
      loads_(loops.size()),
      standing_(std::make_shared<std::vector<Standing>>(loops.size())) {
  for (std::size_t i = 0; i < loops.size(); ++i)
    parts_.push_back({before(plan.connections, i, loops.size()), loops.size()});
  loops_.group().on_each([this](ae::EventLoop&, std::size_t i) {
    Plan part = plan_;
    part.connections = before(plan_.connections, i + 1, loops_.size()) - parts_[i].first;
    loads_[i] = std::make_unique<Load>(loops_.shared(i), part, parts_[i]);
  });
}

LoadOnLoops::~LoadOnLoops() {
  try {
    loops_.group().on_each([this](ae::EventLoop&, std::size_t i) { loads_[i].reset(); });
  } catch (const std::exception&) {
    // A loop has ended, and its connections with it. The remaining loads may be destroyed here,
    // once no thread runs any more.
    loops_.group().stop();
    try {
      loops_.group().run();
    } catch (const std::exception&) {  // check() has reported it, or another failure came first
    }
  }
}

void LoadOnLoops::open() {
  phase([](Load& load, const Load::Part&, Load::Over over) { load.begin_open(std::move(over)); });
}

void LoadOnLoops::run(std::uint64_t requests, ae::Duration time) {
  phase([=, all = plan_.connections](Load& load, const Load::Part& part, Load::Over over) {
    std::optional<std::uint64_t> count;
    if (requests != 0) {
      count = before(requests, part.first + load.plan().connections, all) -
              before(requests, part.first, all);
    }
    load.begin_run(count, time, std::move(over));
  });
}

void LoadOnLoops::pass(ae::Duration time, const bool& over) {
  begin_on_all(
      [](Load& load, const Load::Part&, Load::Over done) { load.begin_pass(std::move(done)); });
  bool passed = false;
  const ae::TimerId timer = loops_.home().add_time_event(time, [&] {
    passed = true;
    loops_.home().stop();
    return ae::kNoMore;
  });
  while (!passed && !over && failure_.empty() && !loops_.ended()) loops_.home().run();
  loops_.home().remove_time_event(timer);
  on_all([](Load& load) { load.end_phase(); });
  wait();
}

void LoadOnLoops::phase(const Begin& begin) {
  begin_on_all(begin);
  wait();
}

void LoadOnLoops::begin_on_all(const Begin& begin) {
  running_ = loads_.size();
  const auto over = when_over();
  for (std::size_t i = 0; i < loads_.size(); ++i) {
    (void)loops_.group().poster(i).post([this, i, begin, over] {
      Load& load = *loads_[i];
      try {
        begin(load, parts_[i], [&load, over] { over(load); });
      } catch (const std::exception& error) {
        load.give_up(error.what());
      }
    });
  }
}

/// Called at the end of a phase on any loop; posts to the home loop. If a loop has ended, this
/// object may already be destroyed by then.
std::function<void(const Load&)> LoadOnLoops::when_over() {
  return [this, home = loops_.home().poster(), here = std::weak_ptr(standing_)](const Load& load) {
    (void)home.post([this, here, failure = load.failure()] {
      if (!here.expired()) ended(failure);
    });
  };
}

/// Runs `fn` on each loop's thread without waiting; wait() returns after it ran.
void LoadOnLoops::on_all(const std::function<void(Load&)>& fn) {
  for (std::size_t i = 0; i < loads_.size(); ++i)
    (void)loops_.group().poster(i).post([this, i, fn] { fn(*loads_[i]); });
}

void LoadOnLoops::ended(const std::string& failure) {
  --running_;
  if (failure_.empty() && !failure.empty()) {
    failure_ = failure;
    on_all([failure](Load& load) { load.give_up(failure); });  // the other loops stop as well
  }
  if (running_ == 0 || !failure_.empty()) loops_.home().stop();
}

void LoadOnLoops::wait() {
  while (running_ != 0 && !loops_.ended()) loops_.home().run();
  loops_.check();
  if (!failure_.empty()) throw Failed(failure_);
}

void LoadOnLoops::store(Result& result) const {
  result.requests = result.bytes = 0;
  result.latency.clear();
  result.client_loops.clear();
  std::uint64_t began = UINT64_MAX, ended = 0;
  for (const auto& load : loads_) {
    result.requests += load->requests();
    result.bytes += load->bytes();
    result.latency.merge(load->latency());
    result.client_loops.push_back(load->share());
    if (load->plan().connections == 0) continue;  // this part has no connections
    began = std::min(began, load->began_at());
    ended = std::max(ended, load->ended_at());
  }
  result.elapsed = ended > began ? ae::Duration(ended - began) : ae::Duration::zero();
}

void LoadOnLoops::with_sample(const std::function<void(const conn::Connection&)>& use) {
  loops_.group().on_each([&](ae::EventLoop&, std::size_t index) {
    if (index == 0) loads_[0]->with_sample(use);  // if any loop has a connection, the first has
  });
}

Phases::Standing LoadOnLoops::standing() {
  for (std::size_t i = 0; i < loads_.size(); ++i) {
    (void)loops_.group().poster(i).post([this, i, home = loops_.home().poster(), to = standing_] {
      (void)home.post([i, now = loads_[i]->standing(), to] { (*to)[i] = now; });
    });
  }
  Standing all;
  for (const Standing& each : *standing_) {
    all.opened += each.opened;
    all.begun += each.begun;
  }
  return all;
}

}  // namespace perf
