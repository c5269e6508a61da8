// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The network part: connections on one side, sessions on the other. It names no transport; what
// --listen says decides.

#include <memory>
#include <string>
#include <type_traits>
#include <unordered_map>
#include <vector>

#include "ae/event_loop.h"
#include "conn/registry.h"
#include "programs/service/systemd.h"
#include "server_state.h"
#include "session.h"

namespace kv {

/// The clients of one loop. `OneSession` is Session, or DividedSession where there are several.
template <class OneSession>
class LoopNetwork : private ae::Source {
 public:
  /// Borrows all three.
  LoopNetwork(ae::EventLoop& loop, const conn::Registry& registry, Server& server);
  ~LoopNetwork() override;

  /// Throws conn::Error.
  void listen(const std::string& url);
  /// A socket that listens already. Throws conn::Error, and it is still the caller's.
  void listen(int fd, const service::Activated& speaks);
  /// The URLs that are served, with the ports that were chosen for port 0.
  std::vector<std::string> urls() const;
  void accept(conn::ConnectionPtr connection);

 private:
  struct Client {
    Client(conn::ConnectionPtr from, Server& server);
    conn::ConnectionPtr connection;
    OneSession session;
    bool queued = false;  ///< in dirty_
    bool busy = false;    ///< requests wait for their turn
    bool ended = false;   ///< the peer sends no more
    bool failed = false;  ///< the connection is dead
  };

  static constexpr std::size_t kScratch = 64 * 1024;
  static constexpr bool kDivided = std::is_same_v<OneSession, DividedSession>;

  void add(conn::ListenerPtr listener);
  bool full();
  Client& enter(conn::ConnectionPtr connection);
  void watch(Client& client);
  void read(Client& client);
  void run(Client& client);
  /// Its output is sent, or the client dropped, before the loop sleeps: one write for all replies
  /// of an iteration, and one place where clients end.
  void queue(Client& client);
  void flush_clients();
  void send(Client& client);
  void send_values(Client& client);
  void value_released(Client& client) noexcept;
  static bool finished(const Client& client);
  void drop(Client& client);

  bool has_pending() const override { return !busy_.empty() || released_; }
  std::size_t process_pending() override;

  ae::EventLoop& loop_;
  const conn::Registry& registry_;
  Server& server_;
  const std::unique_ptr<char[]> scratch_{new char[kScratch]};
  std::vector<conn::ListenerPtr> listeners_;
  std::unordered_map<std::uint64_t, std::unique_ptr<Client>> clients_;  ///< by session id
  std::vector<Client*> dirty_, flushing_, busy_, running_;
  bool released_ = false;  ///< one is in dirty_ whose last large value was handed on
  ae::HookId before_sleep_;
  ae::TimerId ticker_;
};
extern template class LoopNetwork<Session>;
extern template class LoopNetwork<DividedSession>;

/// A server on one loop.
using NetworkServer = LoopNetwork<Session>;

}  // namespace kv
