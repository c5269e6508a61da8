// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The server on several loops: on each a Server with the connections that were given to it, on its
// thread. Every URL is listened on once.

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "ae/loops.h"
#include "conn/listener_group.h"
#include "conn/registry.h"
#include "server.h"

namespace perf {

class ServerOnLoops {
 public:
  /// As Server. Borrows `loops` and `registry`, which outlive it.
  ServerOnLoops(ae::Loops& loops, const conn::Registry& registry, bool echo, std::string options);
  ServerOnLoops(const ServerOnLoops&) = delete;
  ServerOnLoops& operator=(const ServerOnLoops&) = delete;
  /// Ends all connections. Not on a thread of the loops.
  ~ServerOnLoops();

  /// The loop with the fewest connections gets the next, those that ask for costs not counted: a
  /// load is spread as evenly as if nobody asked (and nobody asks an echo). Throws conn::Error.
  void listen(const std::string& url);
  std::vector<std::string> urls() const;
  /// Runs on the thread of a loop whose connections have ended, with it or with the listeners. To
  /// be called before listen().
  void on_loop_left(std::function<void()> handler);

 private:
  struct Part;
  struct Shared;
  std::shared_ptr<Part> part(ae::EventLoop& loop, std::size_t index);

  ae::Loops& loops_;
  const conn::Registry& registry_;
  const bool echo_;
  const std::shared_ptr<Shared> shared_;
  std::vector<conn::ListenerGroupPtr> listeners_;
};

}  // namespace perf
