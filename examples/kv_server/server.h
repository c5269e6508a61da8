// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The network part: connects connections with sessions, on one loop or on several. It depends on no
// transport; the URLs of --listen select them.

#include <sys/types.h>

#include <bit>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "ae/event_loop.h"
#include "ae/loops.h"
#include "conn/listener_group.h"
#include "conn/registry.h"
#include "conn/stop.h"
#include "programs/service/systemd.h"
#include "server_state.h"
#include "session.h"

namespace kv {

/// The clients of one loop. When the server stops (conn::Stop) it stops listening, and closes each
/// client when its requests have been answered.
class NetworkServer : private ae::Source {
 public:
  /// Borrows `loop`, `registry` and `server`.
  NetworkServer(ae::EventLoop& loop, const conn::Registry& registry, Server& server);
  ~NetworkServer() override;

  /// Throws conn::Error.
  void listen(const std::string& url);
  /// Takes over a listening socket. If it throws conn::Error the socket still belongs to the
  /// caller.
  void listen(int fd, const service::Activated& speaks);
  /// The URLs being served, with the actual ports in place of port 0.
  std::vector<std::string> urls() const;
  void accept(conn::ConnectionPtr connection);
  /// Moves a client to loop `to`. `there` is called on that loop's thread, and returns its
  /// NetworkServer, or null if that has ended. See Server::move_session.
  std::string move(Session& session, ae::Loops& loops, std::size_t to,
                   std::function<NetworkServer*()> there);

 private:
  struct Moving;
  struct Marks {          // all false for most clients, so that one comparison looks at all
    bool done = false;    ///< whether it is in done_
    bool busy = false;    ///< whether requests wait to be executed
    bool ended = false;   ///< whether the peer has ended its stream
    bool failed = false;  ///< whether the connection has failed
    bool any() const noexcept { return std::bit_cast<std::uint32_t>(*this) != 0; }
  };
  struct Client : Marks {
    Client(conn::ConnectionPtr from, Server& server);
    conn::ConnectionPtr connection;
    bool waits = false;  ///< whether output waits for the connection, which has a write handler
    Session session;
  };

  static constexpr std::size_t kScratch = 64 * 1024;

  void add(conn::ListenerPtr listener);
  Client& enter(conn::ConnectionPtr connection);
  void arrive(Moving& moving, conn::ConnectionPtr connection);
  void watch(Client& client);
  void read(Client& client);
  [[gnu::noinline]] void read_apart(Client& client);
  [[gnu::noinline]] void read_nothing(Client& client, ssize_t size);
  void run(Client& client);
  [[gnu::noinline]] void run_on(Client& client, Session::Progress progress);
  void continue_later(Client& client, Session::Progress progress);
  /// Sends what it can of the output: one write for all replies of a batch.
  void send(Client& client);
  void send_on(Client& client);
  void send_output(Client& client);
  [[gnu::noinline]] void send_rest(Client& client);
  [[gnu::noinline]] void wait_to_send(Client& client, bool wait);
  void send_values(Client& client);
  void value_released(Client& client) noexcept;
  bool finished(const Client& client) const {
    if (client.failed || client.session.killed()) return true;
    const bool last = client.ended || (stops_ && !client.session.midway());
    const bool ends = client.session.wants_close() || (last && !client.busy);
    return ends && !client.session.output_waits();
  }
  /// A finished client is dropped soon, outside of its handlers.
  void drop_if_finished(Client& client) {
    if (client.any() || client.session.stops() || stops_) [[unlikely]]
      drop_soon_if_finished(client);
  }
  [[gnu::noinline]] void drop_soon_if_finished(Client& client);
  void drop(Client& client);
  void begin_stop();

  bool has_pending() const override { return !busy_.empty() || !done_.empty(); }
  std::size_t process_pending() override { return has_pending() ? run_later() : 0; }
  void flush() override {
    if (!has_pending()) rest();
  }
  std::size_t run_later();

  ae::EventLoop& loop_;
  const conn::Registry& registry_;
  Server& server_;
  const std::unique_ptr<char[]> scratch_{new char[kScratch]};
  std::vector<conn::ListenerPtr> listeners_;
  std::unordered_map<std::uint64_t, std::unique_ptr<Client>> clients_;  ///< by session id
  std::vector<Client*> done_, busy_;
  std::vector<Client*> running_;  ///< those of busy_ whose turn it is; null: it has moved
  ae::TimerId ticker_;
  bool stops_ = false;
  const conn::StopHook stop_hook_{loop_, [this] { begin_stop(); }};
};

/// The clients of several loops: each loop has a Server and its clients, on its own thread. Each
/// URL has one listener; a new connection goes to the loop with the fewest.
class ServerOnLoops {
 public:
  /// Borrows all; the first three must outlive the loops. `together` must be for as many loops.
  /// `stop` gets the listeners, and keeps the clients until it is destroyed.
  ServerOnLoops(ae::Loops& loops, const conn::Registry& registry, Together& together,
                conn::Stop& stop);
  ServerOnLoops(const ServerOnLoops&) = delete;
  ServerOnLoops& operator=(const ServerOnLoops&) = delete;
  ~ServerOnLoops();

  /// Throws conn::Error.
  void listen(const std::string& url);
  /// Takes over a listening socket. If it throws conn::Error the socket still belongs to the
  /// caller.
  void listen(int fd, const service::Activated& speaks);
  const std::vector<std::string>& urls() const { return urls_; }
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
  conn::Stop& stop_;
  const std::shared_ptr<Shared> shared_;
  std::vector<std::string> urls_;
};

}  // namespace kv
