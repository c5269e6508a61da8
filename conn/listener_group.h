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
// A pending connection is assigned to a loop before its set-up: handshake, queue pair and windows
// are made on the thread that will serve the connection, and the connection stays there. For an
// overview see docs/threads.md.

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

/// Called once for each loop, on its thread and on all loops concurrently, before connections can
/// arrive there. The returned handler runs and is destroyed on that thread only.
using MakeAcceptHandler = std::function<AcceptHandler(ae::EventLoop& loop, std::size_t index)>;

class GroupCore;

/// A Listener for several loops. All members may be called on any thread while the owner of the
/// loops lives.
class AECONN_API ListenerGroup final : public Listener {
 public:
  explicit ListenerGroup(std::shared_ptr<GroupCore> core);  ///< For listen().
  /// For a list of schemes: one core for each scheme that is available.
  ListenerGroup(const ConnectionType& type, std::vector<std::shared_ptr<GroupCore>> cores,
                std::vector<Skipped> not_served);
  /// Stops all accept handlers and destroys them. When called on the thread of one of the loops,
  /// this is complete for that loop on return, and for the others soon after.
  ~ListenerGroup() override;

  const ConnectionType& type() const noexcept override;  ///< the transport
  std::vector<Endpoint> endpoints() const override;
  /// Takes effect immediately on the calling loop, and in the next iteration on each of the others.
  void pause() override;
  void resume() override;  ///< as pause()
  /// Each loop gets a copy that runs on its thread. Refusals because of max-connections are
  /// reported on the loop that listens.
  void on_refused(const RefusedHandler& handler) override;
  std::vector<Skipped> not_served() const override { return not_served_; }

  /// The distribution of this listener's connections over the loops.
  struct Share {
    std::uint64_t open = 0;      ///< assigned to the loop and not yet ended
    std::uint64_t assigned = 0;  ///< total ever assigned to it
  };
  std::vector<Share> shares() const;  ///< one for each loop

 private:
  const ConnectionType& type_;
  const std::vector<std::shared_ptr<GroupCore>> cores_;
  const std::vector<Skipped> not_served_;
};
using ListenerGroupPtr = std::unique_ptr<ListenerGroup>;  ///< destroying it stops listening

/// Returns when all loops are ready. Throws Error as Registry::listen(), ae::LoopError if a loop
/// has ended or if called on the thread of one of the loops, and any exception of `make`; it does
/// not listen in these cases. `registry` and its types must outlive the connections.
[[nodiscard]] AECONN_API ListenerGroupPtr listen(const Registry& registry, ae::Loops& loops,
                                                 std::string_view url,
                                                 const MakeAcceptHandler& make,
                                                 Spread spread = Spread::fewest());
/// The same for a parsed URL.
[[nodiscard]] AECONN_API ListenerGroupPtr listen(const Registry& registry, ae::Loops& loops,
                                                 const Endpoint& endpoint,
                                                 const MakeAcceptHandler& make,
                                                 Spread spread = Spread::fewest());
/// For a socket that is already listening (see ConnectionType::adopt_listener()). Supports every
/// spread except Spread::kernel(), which needs sockets made for it.
[[nodiscard]] AECONN_API ListenerGroupPtr adopt_listener(const ConnectionType& type,
                                                         ae::Loops& loops, int fd,
                                                         const MakeAcceptHandler& make,
                                                         Spread spread = Spread::fewest(),
                                                         const Options& options = {});

/// Calls ConnectionType::statistics() for each loop on its thread and waits, so it must not be
/// called on one of these threads.
[[nodiscard]] AECONN_API std::vector<Statistics> statistics(const ConnectionType& type,
                                                            ae::Loops& loops);

}}  // namespace conn
