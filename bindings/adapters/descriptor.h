// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// A connection as a descriptor, for code that knows only read(2), write(2) and poll(2): libraries,
// other languages, threads of the program that have no loop.
//
//   const int fd = adapters::to_descriptor(std::move(connection));  // on the loop's thread
//   std::thread([fd] { serve(fd); ::close(fd); }).detach();         // any thread
//
// The descriptor of a connection over tcp, unix or vsock is its own socket if that is all there is
// to the connection (see to_descriptor()). Otherwise the descriptor is one end of a pair of Unix
// sockets, and the connection's loop moves the bytes between the other end and the connection, so
// the loop must run. docs/adapters.md describes what the user of the descriptor sees when the
// connection ends, and what the peer sees when the descriptor is closed. Each such connection needs
// two descriptors besides its own, and each loop needs one.

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
/// ECANCELED means that the loop has ended. Must not throw, and must not destroy the loop.
using DescriptorEnded = std::function<void(const conn::Failure&)>;

/// Turns an established connection into a descriptor, a stream socket that blocks and has
/// close-on-exec set; both can be changed. To be called on the thread of the connection's loop; the
/// descriptor may be used on any thread, and passed to another process. The caller owns the
/// descriptor. From now on the loop owns the connection: its handlers are removed, and closing the
/// descriptor closes it. Data that has arrived and was not read yet is read from the descriptor.
///
/// Without `ended` the descriptor is the connection's own socket if the connection is a plain one
/// (tcp, unix, vsock) without option idle-timeout, has never sent from the program's memory, and
/// has all its unread and unsent bytes in the kernel. The library then keeps nothing of the
/// connection: for the library it is closed, and counts neither in statistics nor for
/// max-connections.
///
/// If it throws std::system_error, the caller still owns the connection, which is unchanged:
/// ENOTCONN if its state is not kConnected, EMFILE or ENFILE if there are too few descriptors. If
/// it throws std::bad_alloc, the caller still owns the connection, without its handlers.
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
