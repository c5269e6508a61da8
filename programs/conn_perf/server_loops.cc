// SPDX-License-Identifier: BSD-3-Clause
#include "server_loops.h"

#include <utility>

namespace perf {
namespace {

struct alignas(64) Controls {
  Count count;
};
/// Counters of one listener, one per loop.
using ControlsOfLoops = std::vector<Controls>;

/// The loop with the fewest connections, control connections not counted; ties are resolved
/// round-robin.
conn::Spread fewest_under_load(std::shared_ptr<const ControlsOfLoops> controls) {
  return conn::Spread::by([controls = std::move(controls),
                           last = std::size_t{0}](const conn::Arriving& arriving) mutable {
    const std::size_t count = arriving.connections.size();
    std::size_t best = count;  // no loop chosen: the listener chooses
    std::uint64_t fewest = UINT64_MAX;
    for (std::size_t i = 1; i <= count; ++i) {
      const std::size_t at = (last + i) % count;
      if (arriving.connections[at] == UINT64_MAX) continue;  // this loop has ended
      const std::uint64_t all = arriving.connections[at], asking = (*controls)[at].count.value();
      const std::uint64_t load = all > asking ? all - asking : 0;
      if (load >= fewest) continue;
      fewest = load;
      best = at;
    }
    if (best != count) last = best;
    return best;
  });
}

}  // namespace

struct ServerOnLoops::Shared {
  ServerFacts facts;
  /// Of each listener; here, since its sessions count in them longer than it exists.
  std::vector<std::shared_ptr<ControlsOfLoops>> controls;
  std::vector<std::weak_ptr<Part>> parts;  ///< each is used on its loop's thread
  std::function<void()> loop_left;         ///< must not change after the first listen()
};

/// Owned by the accept handlers of its loop, so it is destroyed with the last of them, on that
/// thread.
struct ServerOnLoops::Part {
  Part(std::shared_ptr<Shared> its_shared, ae::EventLoop& loop, const conn::Registry& registry,
       bool echo, std::size_t index)
      : shared(std::move(its_shared)), server(loop, registry, echo, shared->facts, index) {}
  Part(const Part&) = delete;
  Part& operator=(const Part&) = delete;
  ~Part() {
    if (shared->loop_left) shared->loop_left();
  }
  const std::shared_ptr<Shared> shared;
  Server server;
};

ServerOnLoops::ServerOnLoops(ae::Loops& loops, const conn::Registry& registry, bool echo,
                             std::string options)
    : loops_(loops), registry_(registry), echo_(echo), shared_(std::make_shared<Shared>()) {
  shared_->facts.options = std::move(options);
  shared_->facts.meter = std::make_unique<Meter>(loops);
  shared_->facts.loops = std::vector<LoopCounts>(loops.size());
  shared_->parts.resize(loops.size());
}

ServerOnLoops::~ServerOnLoops() = default;

void ServerOnLoops::on_loop_left(std::function<void()> handler) {
  shared_->loop_left = std::move(handler);
}

std::shared_ptr<ServerOnLoops::Part> ServerOnLoops::part(ae::EventLoop& loop, std::size_t index) {
  std::weak_ptr<Part>& known = shared_->parts[index];
  std::shared_ptr<Part> made = known.lock();
  if (!made) {
    made = std::make_shared<Part>(shared_, loop, registry_, echo_, index);
    known = made;
  }
  return made;
}

void ServerOnLoops::listen(const std::string& url) {
  const auto controls =
      shared_->controls.emplace_back(std::make_shared<ControlsOfLoops>(loops_.size()));
  listeners_.push_back(conn::listen(
      registry_, loops_, url,
      [this, controls](ae::EventLoop& loop, std::size_t index) -> conn::AcceptHandler {
        return [here = part(loop, index), controls, index](conn::ConnectionPtr connection) {
          here->server.accept(std::move(connection), &(*controls)[index].count);
        };
      },
      echo_ ? conn::Spread::fewest() : fewest_under_load(controls)));
  listeners_.back()->on_refused(log_refused);
  log_not_served(url, *listeners_.back());
}

std::vector<std::string> ServerOnLoops::urls() const {
  std::vector<std::string> urls;
  for (const auto& listener : listeners_) {
    for (const auto& endpoint : listener->endpoints()) urls.push_back(endpoint.to_string());
  }
  return urls;
}

}  // namespace perf
