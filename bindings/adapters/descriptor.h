// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// A connection as a descriptor, for code that knows only read(2), write(2) and poll(2): libraries,
// other languages, threads of the program that have no loop.
//
//   const int fd = adapters::to_descriptor(std::move(connection));  // on the loop's thread
//   std::thread([fd] { serve(fd); ::close(fd); }).detach();         // any thread
//
// Of a connection over tcp, unix or vsock it is the socket itself, where that is all there is. Else
// the descriptor is one end of a pair of Unix sockets, and the connection's loop moves the bytes
// between the other end and the connection, so the loop must run. docs/adapters.md says what the
// user of the descriptor sees of the end of a connection, and the peer of that of the descriptor.
// Each such connection needs two descriptors besides its own, and each loop one.

#include <functional>
#include <memory>
#include <system_error>
#include <utility>

#include "adapters/descriptor_pump.h"
#include "ae/abi.h"
#include "conn/connection.h"
#include "conn/core/connection_core.h"
#include "conn/error.h"

namespace adapters { inline namespace AECONN_ABI {

/// Called from the loop, once, when the connection of a descriptor has ended, just before the
/// descriptor shows it. The failure is empty if both directions ended or the descriptor was closed;
/// ECANCELED says that the loop has ended. Must not throw, and must not destroy the loop.
using DescriptorEnded = std::function<void(const conn::Failure&)>;

/// Turns an established connection into a descriptor, a stream socket that blocks and has
/// close-on-exec set; both can be changed. To be called on the thread of the connection's loop; the
/// descriptor may be used on any thread, and given to another process. It belongs to the caller,
/// the connection from now on to its loop: its handlers are removed, and closing the descriptor
/// closes it. Data that has arrived and was not read yet is read from the descriptor.
///
/// Without `ended` the descriptor is the connection's own socket if it is a plain one (tcp, unix,
/// vsock) that has no option idle-timeout and has not sent from the program's memory, and all
/// unread and unsent bytes are in the kernel. The library then knows nothing more of the
/// connection: it is closed, and counts neither in statistics nor for max-connections.
///
/// Throws std::system_error, and leaves the connection to the caller as it was: ENOTCONN if its
/// state is not kConnected, EMFILE or ENFILE if there are too few descriptors. Throws
/// std::bad_alloc and leaves the connection, without its handlers.
[[nodiscard]] inline int to_descriptor(conn::ConnectionPtr&& connection,
                                       DescriptorEnded ended = {}) {
  if (!connection || connection->loop() == nullptr ||
      connection->state() != conn::State::kConnected) {
    throw std::system_error(ENOTCONN, std::generic_category(),
                            "only an established connection becomes a descriptor");
  }
  if (!ended) {
    if (const int fd = conn::ConnectionCore::release_descriptor(connection); fd >= 0) return fd;
  }
  return detail::Pumps::of(*connection->loop()).add(connection, std::move(ended));
}

}}  // namespace adapters
