// SPDX-License-Identifier: BSD-3-Clause
// How a ShmType makes connections and listeners.

#include <unistd.h>

#include "conn/core/make_connection.h"
#include "conn/shm/acceptor.h"
#include "conn/shm/carrier.h"
#include "conn/shm/type.h"

namespace conn { inline namespace AECONN_ABI { namespace shm {
namespace {

/// Makes a listener on one loop. `open` opens its listening socket, which passes pending
/// connections to the handler that `open` is given.
template <class Open>
ListenerPtr listen_with(const ShmType& type, ae::EventLoop& loop, SettingsPtr settings,
                        Served served, AcceptHandler accepted, Open open) {
  const std::uint64_t most = settings->socket->max_connections;
  AcceptorPtr<> acceptor(new Acceptor(type, LoopState::of(type, loop), std::move(settings),
                                      std::move(served), std::move(accepted)));
  acceptor->limit(most);
  AcceptorBase* const to = acceptor.get();
  ListenerPtr port = open([to](PendingConnectionPtr one) { to->arrive_later(std::move(one)); });
  port->on_refused([to](const Failure& why) { to->refused(why); });
  acceptor->listen_on(std::move(port));
  return std::make_unique<AcceptingListener>(std::move(acceptor));
}

}  // namespace

ListenerPtr ShmType::listen(ae::EventLoop& loop, const Endpoint& endpoint,
                            AcceptHandler accepted) const {
  check(endpoint);
  return listen_with(
      *this, loop, settings_for(endpoint.options), Served(endpoint), std::move(accepted),
      [&](PendingHandler arrived) { return open_port(loop, endpoint, std::move(arrived)); });
}

ListenerPtr ShmType::adopt_listener(ae::EventLoop& loop, int fd, AcceptHandler accepted,
                                    const Options& options) const {
  ListenerPtr listener = listen_with(
      *this, loop, settings_for(options), {}, std::move(accepted),
      [&](PendingHandler arrived) { return adopt_port(loop, fd, std::move(arrived), options); });
  ::close(fd);  // the listener uses a duplicate of `fd`
  return listener;
}

LoopAcceptorPtr ShmType::open_acceptor(ae::EventLoop& loop, const Endpoint& endpoint,
                                       AcceptHandler accepted) const {
  return std::make_unique<AcceptingListener>(
      AcceptorPtr<>(new Acceptor(*this, LoopState::of(*this, loop), settings_for(endpoint.options),
                                 Served(endpoint), std::move(accepted))));
}

ConnectionPtr ShmType::create(ae::EventLoop& loop) const {
  return make_connection<ShmCarrier>(loop, *this, LoopState::of(*this, loop), settings_).first;
}

}}}  // namespace conn::shm
