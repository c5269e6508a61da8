// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Moves established connections between the loops of a group, for programs that rebalance.
//
//   const bool moved = conn::move(client, loops, 2, [&worker](conn::ConnectionPtr here) {
//     worker.take(std::move(here));
//   });
//   if (!moved) log(client->type().name(), std::strerror(errno));
//
// The library moves nothing by itself: the program decides which connection goes where. For the
// costs see docs/threads.md.

#include <cstddef>

#include "ae/abi.h"
#include "ae/loops.h"
#include "conn/connection.h"
#include "conn/listener.h"

namespace conn { inline namespace AECONN_ABI {

/// Moves `connection`, with its handlers and unread bytes, to loop `index` of `loops`, as
/// Connection::leave() and join() do. To be called on the thread of the connection's loop, which
/// need not be one of `loops`.
///
/// Returns true if the connection has left its loop; `connection` is null then. Once it has joined
/// the new loop, `arrived`, which must not be empty, is called there, exactly once, before any of
/// its handlers. If the state is kError then, the connection has failed, for example for lack of
/// memory there; its handlers may not run any more, and loop() may be null. If the new loop ends
/// first, the connection ends with it, and `arrived` is not called. `arrived` is then destroyed on
/// the new loop's thread.
///
/// Returns false with errno if the connection stays where it is: the errors of rebind(), such as
/// EOPNOTSUPP and, inside a handler of the connection, EBUSY (call it in a posted function
/// instead); EALREADY if the connection is on that loop already, EINVAL if there is no such loop,
/// ECANCELED if that loop has ended. After ECANCELED and ENOMEM the connection may have failed:
/// check state() and loop().
///
/// A connection that a ListenerGroup has accepted counts for the new loop from its arrival on, so
/// Spread::fewest() chooses loops for new connections accordingly. The same holds for rebind().
[[nodiscard]] AECONN_API bool move(ConnectionPtr& connection, ae::Loops& loops, std::size_t index,
                                   AcceptHandler arrived);

}}  // namespace conn
