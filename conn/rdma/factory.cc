// SPDX-License-Identifier: BSD-3-Clause
// The functions of RdmaType, the transport rdma, that create objects on an event loop: connections,
// listeners and acceptors.

#include "conn/core/make_connection.h"
#include "conn/rdma/carrier.h"
#include "conn/rdma/device/availability.h"
#include "conn/rdma/listener.h"
#include "conn/rdma/loop/loop_state.h"
#include "conn/rdma/type.h"

namespace conn { inline namespace AECONN_ABI { namespace rdma {
namespace {

template <typename Make>
auto made(Make make) {
  try {
    return make();
  } catch (const VerbsError& error) {
    throw unavailable(error);
  }
}

}  // namespace

ListenerPtr RdmaType::listen(ae::EventLoop& loop, const Endpoint& endpoint,
                             AcceptHandler accepted) const {
  check(endpoint);
  return made([&] {
    return std::make_unique<RdmaListener>(*this, LoopState::of(loop, *this), endpoint,
                                          Settings::from(options_for(endpoint)),
                                          ListenTo{.accepted = std::move(accepted)});
  });
}

PortListenerPtr RdmaType::open_port(ae::EventLoop& loop, const Endpoint& endpoint,
                                    PendingHandler arrived) const {
  check(endpoint);
  return made([&] {
    return std::make_unique<RdmaListener>(*this, LoopState::of(loop, *this), endpoint,
                                          Settings::from(options_for(endpoint)),
                                          ListenTo{.arrived = std::move(arrived)});
  });
}

LoopAcceptorPtr RdmaType::open_acceptor(ae::EventLoop& loop, const Endpoint& endpoint,
                                        AcceptHandler accepted) const {
  return made([&] {
    return std::make_unique<RdmaLoopAcceptor>(*this, LoopState::of(loop, *this),
                                              Settings::from(options_for(endpoint)),
                                              std::move(accepted));
  });
}

ConnectionPtr RdmaType::create(ae::EventLoop& loop) const {
  try {
    LoopState& state = LoopState::of(loop, *this);
    return make_connection<RdmaCarrier>(loop, *this, state,
                                        state.settings().get(Settings::from(options_for({}))))
        .first;
  } catch (const VerbsError& error) {
    throw unavailable(error);
  }
}

}}}  // namespace conn::rdma
