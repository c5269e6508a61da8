// SPDX-License-Identifier: BSD-3-Clause
// The functions of TlsType that create connections and listeners on a loop, and those that run what
// is due there without an event (pending data).

#include "conn/core/connection_core.h"
#include "conn/core/make_connection.h"
#include "conn/core/transport.h"
#include "conn/tls/acceptor.h"
#include "conn/tls/carrier.h"
#include "conn/tls/type.h"

namespace conn { inline namespace AECONN_ABI { namespace tls {
namespace {

AcceptorPtr<Acceptor> make_acceptor(const TlsType& type, ae::EventLoop& loop,
                                    std::shared_ptr<const ContextSource> contexts,
                                    AcceptHandler accepted) {
  return AcceptorPtr<Acceptor>(
      new Acceptor(type, LoopState::of(type, loop), std::move(contexts), std::move(accepted)));
}

/// Starts the acceptor. `open` opens the listener below TLS, which passes its connections to the
/// handler that `open` is given. This is the last step: `open` may take over a socket of the
/// program, and nothing may fail after that.
template <class Open>
void accept_over(Acceptor& to, Open open) {
  to.start();
  to.take_from(open([&to](ConnectionPtr one) { to.arrived(std::move(one)); }));
}

}  // namespace

ListenerPtr TlsType::listen(ae::EventLoop& loop, const Endpoint& endpoint,
                            AcceptHandler accepted) const {
  check(endpoint);
  AcceptorPtr<Acceptor> acceptor = make_acceptor(
      *this, loop, source_for(endpoint.to_string(), endpoint.options), std::move(accepted));
  accept_over(*acceptor, [&](AcceptHandler to) {
    return below_.listen(loop, below_endpoint(endpoint), std::move(to));
  });
  return std::make_unique<AcceptingListener>(std::move(acceptor));
}

ConnectionPtr TlsType::create(ae::EventLoop& loop) const {
  return make_connection<TlsCarrier>(loop, *this, LoopState::of(*this, loop)).first;
}

ConnectionPtr TlsType::adopt(ae::EventLoop&, int fd) const {
  throw Error("descriptor " + std::to_string(fd) + " cannot become a " + name_ +
              " connection at once: adopt it as " + std::string(below_.name()) +
              " and give that to wrap()");
}

ListenerPtr TlsType::adopt_listener(ae::EventLoop& loop, int fd, AcceptHandler accepted,
                                    const Options& options) const {
  AcceptorPtr<Acceptor> acceptor = make_acceptor(
      *this, loop, source_for("descriptor " + std::to_string(fd) + " as " + name_, options),
      std::move(accepted));
  Acceptor& inner = *acceptor;
  auto listener = std::make_unique<AcceptingListener>(std::move(acceptor));
  accept_over(inner, [&](AcceptHandler to) {
    return below_.adopt_listener(loop, fd, std::move(to), below_options(options));
  });
  return listener;
}

PortListenerPtr TlsType::open_port(ae::EventLoop& loop, const Endpoint& endpoint,
                                   PendingHandler arrived) const {
  check(endpoint);
  return Transport::of(below_).open_port(loop, below_endpoint(endpoint), std::move(arrived));
}

PortListenerPtr TlsType::adopt_port(ae::EventLoop& loop, int fd, PendingHandler arrived,
                                    const Options& options) const {
  return Transport::of(below_).adopt_port(loop, fd, std::move(arrived), below_options(options));
}

LoopAcceptorPtr TlsType::open_acceptor(ae::EventLoop& loop, const Endpoint& endpoint,
                                       AcceptHandler accepted) const {
  const bool has_address = !endpoint.hosts.empty() || !endpoint.path.empty();
  LoopAcceptor* below = nullptr;
  AcceptorPtr<Acceptor> acceptor = make_acceptor(
      *this, loop, source_for(has_address ? endpoint.to_string() : name_, endpoint.options),
      std::move(accepted));
  accept_over(*acceptor, [&](AcceptHandler to) {
    LoopAcceptorPtr opened =
        Transport::of(below_).open_acceptor(loop, below_endpoint(endpoint), std::move(to));
    below = opened.get();
    return opened;
  });
  return std::make_unique<TlsLoopAcceptor>(std::move(acceptor), *below);
}

bool TlsType::has_pending_data(ae::EventLoop& loop) const {
  const LoopState* state = LoopState::find(*this, loop);
  return (state != nullptr && state->has_pending()) || below_.has_pending_data(loop);
}

std::size_t TlsType::process_pending_data(ae::EventLoop& loop) const {
  const std::size_t below = below_.process_pending_data(loop);
  LoopState* state = LoopState::find(*this, loop);
  return below + (state != nullptr ? state->process_pending() : 0);
}

ConnectionPtr TlsType::wrap(ConnectionPtr below, Role role, const std::string& name,
                            Connection::Handler done, const Options& options) const {
  if (!below || &below->type() != &below_ || below->state() != State::kConnected ||
      below->loop() == nullptr) {
    throw Error(name_ + ": wrap() takes a connected " + std::string(below_.name()) + " connection");
  }
  const SplitOptions split = split_options(options);
  for (const auto& [key, value] : split.below.values()) {
    if (!is_of_both(key)) {
      throw Error(name_ + " has no option " + key + " that wrap() could take");
    }
  }
  ae::EventLoop& loop = *below->loop();
  LoopState& state = LoopState::of(*this, loop);
  auto [connection, carrier] = make_connection<TlsCarrier>(loop, *this, state);
  // A connection that is being accepted without a connect handler is taken for a listener's.
  if (!done) done = [](Connection&) {};
  ConnectionCore::of(*connection).set_connect_handler(std::move(done));
  carrier.begin(std::move(below), role, context_for(options, state), peer_name(options, name), {});
  return std::move(connection);
}

}}}  // namespace conn::tls
