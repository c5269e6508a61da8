// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The network part on several loops: on each a Server with the clients that were given to it, on
// its thread. Every URL is listened on once, and who has the fewest connections gets the next.

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "ae/loops.h"
#include "conn/listener_group.h"
#include "conn/registry.h"
#include "programs/service/systemd.h"
#include "together.h"

namespace kv {

class ServerOnLoops {
 public:
  /// Borrows all three, which outlive the loops. `together` is for as many loops as there are.
  ServerOnLoops(ae::Loops& loops, const conn::Registry& registry, Together& together);
  ServerOnLoops(const ServerOnLoops&) = delete;
  ServerOnLoops& operator=(const ServerOnLoops&) = delete;
  /// Ends all clients. Not on a thread of the loops.
  ~ServerOnLoops();

  /// Throws conn::Error.
  void listen(const std::string& url);
  /// A socket that listens already. Throws conn::Error, and it is still the caller's.
  void listen(int fd, const service::Activated& speaks);
  std::vector<std::string> urls() const;
  /// Runs on the thread of a loop whose clients have ended, with it or with the listeners.
  void on_loop_left(std::function<void()> handler);

 private:
  struct Part;
  struct Shared;
  conn::MakeAcceptHandler accepting();
  void add(conn::ListenerGroupPtr listener);
  std::shared_ptr<Part> part(ae::EventLoop& loop, std::size_t index);

  ae::Loops& loops_;
  const conn::Registry& registry_;
  Together& together_;
  const std::shared_ptr<Shared> shared_;
  std::vector<conn::ListenerGroupPtr> listeners_;
};

}  // namespace kv
