// SPDX-License-Identifier: BSD-3-Clause
#include "conn/tcp/socket_receiver.h"

#include <sys/socket.h>

#include <new>

#include "conn/core/make_connection.h"
#include "conn/tcp/socket_carrier.h"

namespace conn { inline namespace AECONN_ABI { namespace tcp {

ConnectionPtr adopt_accepted(const SocketType& type, ae::EventLoop& loop,
                             std::shared_ptr<const Settings> settings, Accepted socket,
                             Quota::Place place) {
  auto [connection, carrier] = make_connection<SocketCarrier>(loop, type, std::move(settings));
  carrier.adopt(std::move(socket), std::move(place));
  return std::move(connection);
}

void SocketPending::refuse(std::string_view why) noexcept {
  try {
    const std::string bytes = type_.refusal(why);
    if (!bytes.empty())
      (void)::send(socket_.fd.get(), bytes.data(), bytes.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
  } catch (const std::bad_alloc&) {  // without memory the client is not told why it is refused
  }
}

void SocketAcceptor::begin(PendingConnectionPtr arrival) {
  ConnectionPtr owner;
  try {
    owner = adopt_accepted(static_cast<const SocketType&>(type()), loop(), settings_,
                           static_cast<SocketPending&>(*arrival).take_socket(),
                           std::move(arrival->place));
  } catch (const std::bad_alloc&) {
    // if memory runs out, only this pending connection is lost; accepting continues
    return lost();
  }
  arrival.reset();
  hand_over(std::move(owner));
}

}}}  // namespace conn::tcp
