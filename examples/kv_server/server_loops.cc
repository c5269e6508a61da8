// SPDX-License-Identifier: BSD-3-Clause
#include "server_loops.h"

#include <utility>

#include "server.h"

namespace kv {

struct ServerOnLoops::Shared {
  std::vector<std::weak_ptr<Part>> parts;  ///< each used on its loop's thread
  std::function<void()> loop_left;         ///< constant from the first listen() on
};

/// Owned by the accept handlers of its loop: destroyed with the last of them, on its thread.
struct ServerOnLoops::Part {
  Part(std::shared_ptr<Shared> its_shared, ae::EventLoop& loop, const conn::Registry& registry,
       Together& together, std::size_t index)
      : shared(std::move(its_shared)), server(together, index), network(loop, registry, server) {}
  Part(const Part&) = delete;
  Part& operator=(const Part&) = delete;
  ~Part() {
    if (shared->loop_left) shared->loop_left();
  }
  const std::shared_ptr<Shared> shared;
  Server server;
  LoopNetwork<DividedSession> network;
};

ServerOnLoops::ServerOnLoops(ae::Loops& loops, const conn::Registry& registry, Together& together)
    : loops_(loops), registry_(registry), together_(together), shared_(std::make_shared<Shared>()) {
  shared_->parts.resize(loops.size());
  std::vector<ae::Poster> posters;
  for (std::size_t i = 0; i < loops.size(); ++i) posters.push_back(loops.poster(i));
  together_.post = [posters = std::move(posters)](std::size_t loop, std::function<void()> fn) {
    return posters[loop].post(std::move(fn));
  };
}

ServerOnLoops::~ServerOnLoops() = default;

void ServerOnLoops::on_loop_left(std::function<void()> handler) {
  shared_->loop_left = std::move(handler);
}

std::shared_ptr<ServerOnLoops::Part> ServerOnLoops::part(ae::EventLoop& loop, std::size_t index) {
  std::weak_ptr<Part>& known = shared_->parts[index];
  std::shared_ptr<Part> made = known.lock();
  if (!made) {
    made = std::make_shared<Part>(shared_, loop, registry_, together_, index);
    known = made;
  }
  return made;
}

void ServerOnLoops::listen(const std::string& url) {
  add(conn::listen(registry_, loops_, url, accepting()));
  const auto missing = listeners_.back()->not_served();
  if (!missing.empty() && together_.log) together_.log(url + ": " + conn::describe(missing));
}

void ServerOnLoops::listen(int fd, const service::Activated& speaks) {
  add(conn::adopt_listener(registry_.require(speaks.transport(fd)), loops_, fd, accepting(),
                           conn::Spread::fewest(), speaks.options()));
}

conn::MakeAcceptHandler ServerOnLoops::accepting() {
  return [this](ae::EventLoop& loop, std::size_t index) -> conn::AcceptHandler {
    return [here = part(loop, index)](conn::ConnectionPtr connection) {
      here->network.accept(std::move(connection));
    };
  };
}

void ServerOnLoops::add(conn::ListenerGroupPtr listener) {
  listeners_.push_back(std::move(listener));
  listeners_.back()->on_refused(
      [&together = together_](const conn::Failure& why) { together.log_refused(why.text); });
}

std::vector<std::string> ServerOnLoops::urls() const {
  std::vector<std::string> urls;
  for (const auto& listener : listeners_) {
    for (const auto& endpoint : listener->endpoints()) urls.push_back(endpoint.to_string());
  }
  return urls;
}

}  // namespace kv
