// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// One port, several loops, any transport.
//
//   ae::LoopGroup loops({.loops = 4});
//   const auto listener = conn::listen(registry, loops, "tls+rdma://10.0.0.1:6379",
//       [](ae::EventLoop& loop, std::size_t) -> conn::AcceptHandler {
//         return [worker = std::make_shared<Worker>(loop)](conn::ConnectionPtr arrived) {
//           worker->serve(std::move(arrived));
//         };
//       });
//
// An arrival is given to a loop before it begins: handshake, queue pair and windows are made on the
// thread that will serve the connection, and there it stays. docs/threads.md has the whole picture.

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

/// Called once for each loop, on its thread, before anything can arrive there; on all of them at
/// the same time. What it returns runs on that thread alone, and is destroyed there.
using MakeAcceptHandler = std::function<AcceptHandler(ae::EventLoop& loop, std::size_t index)>;

class GroupCore;

/// A Listener of several loops. All members: any thread, as long as the loops' owner lives.
class AECONN_API ListenerGroup final : public Listener {
 public:
  explicit ListenerGroup(std::shared_ptr<GroupCore> core);  ///< For listen().
  /// Of a list of schemes: one core for each that can be had.
  ListenerGroup(const ConnectionType& type, std::vector<std::shared_ptr<GroupCore>> cores,
                std::vector<Skipped> not_served);
  /// Afterwards no accept handler runs any more, and the handlers are destroyed. On the thread of
  /// one of the loops that is so for this loop; for the others soon.
  ~ListenerGroup() override;

  const ConnectionType& type() const noexcept override;  ///< the transport
  std::vector<Endpoint> endpoints() const override;
  /// At once on the calling loop, on each other in its next iteration.
  void pause() override;
  void resume() override;  ///< as pause()
  /// Each loop has a copy, which runs on its thread; of max-connections the loop that listens
  /// tells.
  void on_refused(const RefusedHandler& handler) override;
  std::vector<Skipped> not_served() const override { return not_served_; }

  /// How connections are spread: those of this listener, by loop.
  struct Share {
    std::uint64_t open = 0;      ///< given to the loop and not yet ended
    std::uint64_t assigned = 0;  ///< ever given to it
  };
  std::vector<Share> shares() const;  ///< one for each loop

 private:
  const ConnectionType& type_;
  const std::vector<std::shared_ptr<GroupCore>> cores_;
  const std::vector<Skipped> not_served_;
};
using ListenerGroupPtr = std::unique_ptr<ListenerGroup>;  ///< dropping it ends listening

/// Returns when all loops are ready. Throws Error as Registry::listen() would, ae::LoopError where
/// a loop has ended or on the thread of one of the loops, and what `make` threw; nothing listens
/// then. `registry`, and its types, have to outlive the connections.
[[nodiscard]] AECONN_API ListenerGroupPtr listen(const Registry& registry, ae::Loops& loops,
                                                 std::string_view url,
                                                 const MakeAcceptHandler& make,
                                                 Spread spread = Spread::fewest());
/// The same, of a URL that is parsed already.
[[nodiscard]] AECONN_API ListenerGroupPtr listen(const Registry& registry, ae::Loops& loops,
                                                 const Endpoint& endpoint,
                                                 const MakeAcceptHandler& make,
                                                 Spread spread = Spread::fewest());
/// For a socket that listens already (ConnectionType::adopt_listener()). Any spread but the
/// kernel's, whose sockets have to be made for it.
[[nodiscard]] AECONN_API ListenerGroupPtr adopt_listener(const ConnectionType& type,
                                                         ae::Loops& loops, int fd,
                                                         const MakeAcceptHandler& make,
                                                         Spread spread = Spread::fewest(),
                                                         const Options& options = {});

/// ConnectionType::statistics() of each loop, asked on its thread; waits, so not on one of them.
[[nodiscard]] AECONN_API std::vector<Statistics> statistics(const ConnectionType& type,
                                                            ae::Loops& loops);

}}  // namespace conn
