// SPDX-License-Identifier: BSD-3-Clause
#include "conn/move.h"

#include <cerrno>
#include <functional>
#include <memory>
#include <new>
#include <utility>

namespace conn { inline namespace AECONN_ABI {
namespace {

/// A connection that has left one loop, and the function to call on the new loop.
struct Traveller {
  void arrive(ae::EventLoop& loop) {
    // The handler is moved into a local variable, so that it is destroyed on this thread, that of
    // the new loop. This object may be destroyed later, by move() on the old loop's thread.
    const AcceptHandler handler = std::move(arrived);
    // If the loop is being destroyed, the connection ends like the other connections of that loop.
    if (!poster.open()) return connection.reset();
    (void)connection->join(loop);
    handler(std::move(connection));
  }
  const ae::Poster poster;
  AcceptHandler arrived;
  ConnectionPtr connection;
};

bool fails(int reason) noexcept {
  errno = reason;
  return false;
}

}  // namespace

bool move(ConnectionPtr& connection, ae::Loops& loops, std::size_t index, AcceptHandler arrived) {
  if (index >= loops.size()) return fails(EINVAL);
  ae::EventLoop* const from = connection->loop();
  ae::EventLoop* const to = loops.loop(index);
  const ae::Poster poster = loops.poster(index);
  if (!poster.open()) return fails(ECANCELED);
  if (from == to) return fails(EALREADY);
  try {
    const auto traveller =
        std::make_shared<Traveller>(Traveller{poster, std::move(arrived), nullptr});
    std::function<void()> arrive = [traveller, to] { traveller->arrive(*to); };
    if (!connection->leave()) return false;
    // Once the post succeeds, the connection belongs to the new loop's thread.
    traveller->connection = std::move(connection);
    int reason = ECANCELED;
    try {
      if (poster.post(std::move(arrive))) return true;
    } catch (const std::bad_alloc&) {
      reason = ENOMEM;
    }
    connection = std::move(traveller->connection);
    (void)connection->join(*from);
    return fails(reason);
  } catch (const std::bad_alloc&) {
    return fails(ENOMEM);
  }
}

}}  // namespace conn
