// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Listens on one port for several loops, with any transport.
//
//   ae::LoopGroup loops({.loops = 4});
//   const auto listener = conn::listen(registry, loops, "tls+rdma://10.0.0.1:6379",
//       [](ae::EventLoop& loop, std::size_t) -> conn::AcceptHandler {
//         return [worker = std::make_shared<Worker>(loop)](conn::ConnectionPtr arrived) {
//           worker->serve(std::move(arrived));
//         };
//       });
//
// A pending connection is assigned to a loop before its set-up. The TLS handshake, the RDMA queue
// pair and the receive windows are made on the thread that will serve the connection. The program
// can move it to another loop later (conn/move.h). For an overview see docs/threads.md.

#include <cstdint>
#include <functional>
#include <memory>
#include <string_view>
#include <vector>

#include "ae/abi.h"
#include "ae/loops.h"
#include "conn/connection_type.h"
#include "conn/listener.h"
#include "conn/registry.h"
#include "conn/spread.h"

namespace conn { inline namespace AECONN_ABI {

/// Creates the accept handler of one loop. Called once for each loop, on its thread and on all
/// loops concurrently, before connections can arrive there. The returned handler is called and
/// destroyed on that thread only.
using MakeAcceptHandler = std::function<AcceptHandler(ae::EventLoop& loop, std::size_t index)>;

class GroupCore;

/// A Listener for several loops. All members may be called on any thread, as long as the owner of
/// the loops (ae::Loops) exists.
class AECONN_API ListenerGroup final : public Listener {
 public:
  explicit ListenerGroup(std::shared_ptr<GroupCore> core);  ///< called by listen(), not by programs
  /// Called by listen() for a list of schemes, with one GroupCore, the listener of one scheme on
  /// all loops, for each available scheme.
  ListenerGroup(const ConnectionType& type, std::vector<std::shared_ptr<GroupCore>> cores,
                std::vector<Skipped> not_served);
  /// Stops listening, and destroys the accept handlers of all loops. If it runs on the thread of
  /// one of the loops, this is complete for that loop on return, and for the other loops soon
  /// after.
  ~ListenerGroup() override;

  /// The transport whose connections the group accepts.
  const ConnectionType& type() const noexcept override;
  std::vector<Endpoint> endpoints() const override;
  /// Stops accepting connections. This takes effect immediately on the calling thread's loop, and
  /// on each other loop in its next iteration.
  void pause() override;
  /// Starts accepting connections again. As with pause(), other loops follow in their next
  /// iteration.
  void resume() override;
  /// Sets a handler for refused connections. Each loop calls its own copy, on its thread. A refusal
  /// because of max-connections is reported on the loop that listens.
  void on_refused(const RefusedHandler& handler) override;
  std::vector<Skipped> not_served() const override { return not_served_; }

  /// One loop's share of this listener's connections.
  struct Share {
    /// Number of connections of this listener that have not ended, and belong to the loop or are
    /// assigned to it. A connection that moves to another loop counts there once it has arrived.
    std::uint64_t open = 0;
    /// Number of new connections of this listener that were ever assigned to the loop.
    std::uint64_t assigned = 0;
  };
  /// Returns one Share for each loop, in the order of the loops.
  std::vector<Share> shares() const;

 private:
  const ConnectionType& type_;
  const std::vector<std::shared_ptr<GroupCore>> cores_;
  const std::vector<Skipped> not_served_;
};
/// Owns a listener group; destroying it stops listening.
using ListenerGroupPtr = std::unique_ptr<ListenerGroup>;

/// Listens on `url` for all loops, and returns when all loops are ready. Throws Error like
/// Registry::listen(), ae::LoopError if a loop has ended or if called on the thread of one of the
/// loops, and any exception of `make`; it then does not listen. `registry` and its types must
/// outlive the connections.
[[nodiscard]] AECONN_API ListenerGroupPtr listen(const Registry& registry, ae::Loops& loops,
                                                 std::string_view url,
                                                 const MakeAcceptHandler& make,
                                                 Spread spread = Spread::fewest());
/// Listens on the URL whose parts `endpoint` contains, like listen() with a URL, on all loops.
[[nodiscard]] AECONN_API ListenerGroupPtr listen(const Registry& registry, ae::Loops& loops,
                                                 const Endpoint& endpoint,
                                                 const MakeAcceptHandler& make,
                                                 Spread spread = Spread::fewest());
/// Takes over a socket that is already listening (see ConnectionType::adopt_listener()) and serves
/// it with all loops. Supports every spread except Spread::kernel(), which needs one socket for
/// each loop.
[[nodiscard]] AECONN_API ListenerGroupPtr adopt_listener(const ConnectionType& type,
                                                         ae::Loops& loops, int fd,
                                                         const MakeAcceptHandler& make,
                                                         Spread spread = Spread::fewest(),
                                                         const Options& options = {});

/// Calls ConnectionType::statistics() for each loop on its thread and waits, like
/// ae::Loops::ask_each(). May be called on any thread, also on those of the loops.
[[nodiscard]] AECONN_API std::vector<Statistics> statistics(const ConnectionType& type,
                                                            ae::Loops& loops);

}}  // namespace conn
