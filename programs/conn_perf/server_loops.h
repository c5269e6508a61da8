// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The server on several loops, each with its own thread and a Server for its connections. Each URL
// has one listener.

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
  /// With `echo`, returns all bytes uninterpreted. `options` are recorded in the report. `loops`
  /// and `registry` are borrowed and must outlive this.
  ServerOnLoops(ae::Loops& loops, const conn::Registry& registry, bool echo, std::string options);
  ServerOnLoops(const ServerOnLoops&) = delete;
  ServerOnLoops& operator=(const ServerOnLoops&) = delete;
  /// Closes all connections. Must not be called on a thread of the loops.
  ~ServerOnLoops();

  /// Listens on a URL. Each new connection goes to the loop with the fewest connections. Control
  /// connections do not count, so the load is spread as evenly as without them (an echo has none).
  /// Throws conn::Error.
  void listen(const std::string& url);
  std::vector<std::string> urls() const;
  /// Sets a handler that runs on a loop's thread once the connections of that loop have ended, with
  /// the loop or with the listeners. Call it before listen().
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
