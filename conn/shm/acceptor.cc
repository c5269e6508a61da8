// SPDX-License-Identifier: BSD-3-Clause
#include "conn/shm/acceptor.h"

#include <algorithm>

#include "conn/core/make_connection.h"
#include "conn/kit/retry_after.h"
#include "conn/shm/carrier.h"
#include "conn/shm/type.h"

namespace conn { inline namespace AECONN_ABI { namespace shm {

Acceptor::Acceptor(const ShmType& type, LoopState& shared, SettingsPtr settings,
                   AcceptHandler accepted)
    : type_(type),
      shared_(&shared),
      counters_(type.counters(shared.loop())),
      settings_(std::move(settings)) {
  accepted_.set(std::move(accepted));
  ConnectionSet::of(shared.loop()).add(*this);
}

void Acceptor::stop() noexcept {
  if (shared_ == nullptr) return;
  for (Greeting& client : greetings_) forget(client);
  shared_ = nullptr;
  stop_watching();
  unqueue();
  arrivals_.clear();
  greetings_.clear();
  done_.clear();
  refused_.clear();
  accepted_.clear();  // must come last, because destroying the handler may run any code
}

void Acceptor::arrive(PendingConnectionPtr arrival) {
  if (shared_ == nullptr) return;
  try {
    arrivals_.push_back(std::move(arrival));
  } catch (const std::bad_alloc&) {
    ++counters_.accept_errors;
    return;
  }
  if (!busy()) shared_->ready().push(*this);
}

PendingConnectionPtr Acceptor::give_back() noexcept {
  if (arrivals_.empty()) return nullptr;
  PendingConnectionPtr next = std::move(arrivals_.front());
  arrivals_.pop_front();
  return next;
}

void Acceptor::resume() {
  paused_ = false;
  if (shared_ != nullptr) shared_->ready().push(*this);
}

std::size_t Acceptor::run_ready() {
  struct Then {  // its destructor, which goes on with the rest, runs even if a handler throws
    Acceptor& acceptor;
    ~Then() {
      const bool more = !acceptor.done_.empty() || !acceptor.arrivals_.empty();
      if (acceptor.shared_ != nullptr && more && !acceptor.busy())
        acceptor.shared_->ready().push(acceptor);
    }
  } then{*this};
  std::size_t ran = 0;
  // A handler is on the stack if this iteration is nested in it; then the rest waits.
  while (shared_ != nullptr && !busy() && ran < settings_->socket->accept_batch) {
    if (ran != 0 && !shared_->loop().has_time()) break;
    if (!done_.empty()) {
      ConnectionPtr owner = std::move(done_.front());
      done_.pop_front();
      hand_over(std::move(owner));
    } else if (!arrivals_.empty()) {
      begin(give_back());
    } else {
      break;
    }
    ++ran;
  }
  return ran;
}

// --- hellos --------------------------------------------------------------------------------------

void Acceptor::begin(PendingConnectionPtr arrival) {
  auto& pending = static_cast<tcp::SocketPending&>(*arrival);
  if (quota_ && quota_->full()) {
    ++counters_.refused;
    (void)send_message(pending.socket().get(), encode({Answer::kFull, retry_after_when_full()}));
    const Failure why = quota_->refusal(pending.peer());
    arrival.reset();
    return refused_.tell(why);
  }
  if (greetings_.size() >= settings_->max_handshakes)
    refuse(greetings_.begin(), {Answer::kFull, retry_after_under_overload()});
  if (shared_ == nullptr) return;  // the handler for refusals has stopped this listener
  try {
    Greeting& client = greetings_.emplace_back();
    client.socket = pending.take_socket();
    client.place = quota_ ? quota_->take() : std::move(pending.place);
    client.began = shared_->loop().now();
  } catch (const std::bad_alloc&) {
    ++counters_.accept_errors;
    return;
  }
  receive(std::prev(greetings_.end()));
}

void Acceptor::receive(Greetings::iterator client) {
  Answer refusal{Answer::kRule, ""};
  ConnectionPtr owner;
  try {
    switch (client->hello.receive(client->socket.get())) {
      case Receipt::Step::kMore: {
        if (client->watched) return;
        ae::EventLoop& loop = shared_->loop();
        client->timer = loop.add_time_event(settings_->handshake_timeout, [this, client] {
          client->timer = 0;
          refuse(client, {Answer::kRule, "no hello in time (handshake-timeout)"});
          return ae::kNoMore;
        });
        loop.add_file_event(client->socket.get(), ae::kReadable | ae::kTrusted,
                            [this, client](int, ae::Mask) { receive(client); });
        client->watched = true;
        return;
      }
      case Receipt::Step::kEnded:
        refusal.text = "the client closed the socket before its hello was complete";
        break;
      case Receipt::Step::kForeign:
        refusal.text = "the client does not speak shm, or has sent too many descriptors";
        break;
      case Receipt::Step::kDone:
        owner = welcome(*client, refusal);
        break;
    }
  } catch (const std::bad_alloc&) {
    refusal.text = "out of memory";
  }
  if (!owner) return refuse(client, refusal);
  counters_.accept_time.add(shared_->loop().now() - client->began);
  ++shared_->counters.handshakes;
  forget(*client);
  greetings_.erase(client);
  if (busy() || !done_.empty()) {
    done_.push_back(std::move(owner));
    if (!busy()) shared_->ready().push(*this);
  } else {
    hand_over(std::move(owner));
  }
}

/// Checks a complete hello. Returns the connection, or null with the reason in `refusal`. Throws
/// std::bad_alloc.
ConnectionPtr Acceptor::welcome(Greeting& client, Answer& refusal) {
  Hello hello;
  refusal = decode(client.hello.message(), settings_->max_ring, hello);
  if (refusal.status != Answer::kStands) return nullptr;
  refusal.status = Answer::kRule;
  if (client.hello.descriptors() != 2) {
    refusal.text = "two descriptors have to come with the hello";
    return nullptr;
  }
  Failure why;
  ChannelPtr channel = accept_memories(client.hello.descriptor(0), hello.client_ring,
                                       client.hello.descriptor(1), hello.server_ring, why);
  if (!channel) {
    refusal.text = why.text;
    return nullptr;
  }
  forget(client);  // the connection watches the socket from now on
  auto [owner, carrier] = make_connection<ShmCarrier>(shared_->loop(), type_, *shared_, settings_);
  const int socket = client.socket.get();
  carrier.adopt(std::move(client.socket), std::move(channel), std::move(client.place));
  // If the client has gone meanwhile, the connection learns it as from every other peer.
  (void)send_message(socket, encode(Answer{}));
  return std::move(owner);
}

/// Stops watching a client's socket.
void Acceptor::forget(Greeting& client) noexcept {
  ae::EventLoop& loop = shared_->loop();
  if (client.timer != 0) loop.remove_time_event(std::exchange(client.timer, 0));
  if (client.watched) loop.remove_file_event(client.socket.get(), ae::kReadable);
  client.watched = false;
}

void Acceptor::refuse(Greetings::iterator client, const Answer& answer) {
  forget(*client);
  if (client->socket) (void)send_message(client->socket.get(), encode(answer));
  greetings_.erase(client);
  ++counters_.accept_errors;
  ++shared_->counters.handshake_failures;
  refused_.tell({std::make_error_code(std::errc::connection_refused),
                 "a client of shm is refused: " + answer.text});
}

/// Runs the accept handler. Connections that become ready while it runs a nested iteration of the
/// loop wait until it returns.
void Acceptor::hand_over(ConnectionPtr owner) {
  struct Then {
    Acceptor& acceptor;
    ~Then() {
      if (acceptor.shared_ == nullptr || acceptor.busy()) return;
      if (!acceptor.done_.empty() || !acceptor.arrivals_.empty())
        acceptor.shared_->ready().push(acceptor);
    }
  } then{*this};
  accepted_.run(std::move(owner));
}

// --- the listeners -------------------------------------------------------------------------------

void StopAcceptor::operator()(Acceptor* acceptor) const noexcept {
  std::unique_ptr<ae::Deferred> owner(acceptor);
  ae::EventLoop* const loop = acceptor->loop();
  acceptor->stop();
  if (loop != nullptr) loop->destroy_later(std::move(owner));
}

ShmListener::ShmListener(AcceptorPtr acceptor, PortListenerPtr port)
    : acceptor_(std::move(acceptor)), port_(std::move(port)) {}

const ConnectionType& ShmListener::type() const noexcept { return acceptor_->type(); }

void ShmListener::pause() {
  acceptor_->pause();
  port_->pause();
}

void ShmListener::resume() {
  port_->resume();
  acceptor_->resume();
}

const ConnectionType& ShmLoopAcceptor::type() const noexcept { return acceptor_->type(); }

}}}  // namespace conn::shm
