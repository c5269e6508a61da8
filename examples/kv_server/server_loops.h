// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The network part on several loops: each has a Server and its clients, on its own thread. Each URL
// has one listener; a new connection goes to the loop with the fewest.

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
  /// Borrows all three, which must outlive the loops. `together` must be for as many loops.
  ServerOnLoops(ae::Loops& loops, const conn::Registry& registry, Together& together);
  ServerOnLoops(const ServerOnLoops&) = delete;
  ServerOnLoops& operator=(const ServerOnLoops&) = delete;
  /// Closes all clients. Must not be called on a thread of the loops.
  ~ServerOnLoops();

  /// Throws conn::Error.
  void listen(const std::string& url);
  /// Takes over a listening socket. If it throws conn::Error the socket still belongs to the
  /// caller.
  void listen(int fd, const service::Activated& speaks);
  std::vector<std::string> urls() const;
  /// The handler runs on the thread of a loop whose clients have ended because the loop or the
  /// listeners ended.
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
