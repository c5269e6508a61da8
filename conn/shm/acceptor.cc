// SPDX-License-Identifier: BSD-3-Clause
#include "conn/shm/acceptor.h"

#include <algorithm>

#include "conn/core/make_connection.h"
#include "conn/kit/retry_after.h"
#include "conn/shm/carrier.h"
#include "conn/shm/type.h"

namespace conn { inline namespace AECONN_ABI { namespace shm {

Acceptor::Acceptor(const ShmType& type, LoopState& shared, SettingsPtr settings, Served served,
                   AcceptHandler accepted)
    : type_(type),
      shared_(&shared),
      counters_(type.counters(shared.loop())),
      settings_(std::move(settings)),
      served_(std::move(served)) {
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
  go_on();
}

PendingConnectionPtr Acceptor::give_back() noexcept {
  if (arrivals_.empty()) return nullptr;
  PendingConnectionPtr next = std::move(arrivals_.front());
  arrivals_.pop_front();
  return next;
}

void Acceptor::resume() {
  paused_ = false;
  go_on();
}

/// Has run_ready() called in the next iteration, for the clients that wait. Does nothing while
/// paused or while a handler runs: it is called again after that.
void Acceptor::go_on() {
  if (shared_ != nullptr && !busy() && !(done_.empty() && arrivals_.empty()))
    shared_->ready().push(*this);
}

std::size_t Acceptor::run_ready() {
  const Then then{*this};
  std::size_t begun = 0, handed = 0;
  // busy() is true if a handler runs this iteration of the loop nested in another.
  while (shared_ != nullptr && !busy()) {
    if (begun + handed != 0 && !shared_->loop().has_time()) break;
    if (!done_.empty() && handed < settings_->socket->accept_batch) {
      ++handed;
      ConnectionPtr owner = std::move(done_.front());
      done_.pop_front();
      accepted_.run(std::move(owner));
    } else if (!arrivals_.empty() && begun < settings_->socket->accept_batch) {
      ++begun;
      begin(give_back());
    } else {
      break;
    }
  }
  return begun + handed;
}

// --- hellos --------------------------------------------------------------------------------------

void Acceptor::begin(PendingConnectionPtr arrival) {
  auto& pending = static_cast<tcp::SocketPending&>(*arrival);
  if (quota_ && quota_->full()) {
    ++counters_.refused;
    Failure why = out_of_memory();
    try {
      pending.refuse(retry_after_when_full());
      why = quota_->refusal(pending.peer());
    } catch (const std::bad_alloc&) {
    }
    arrival.reset();
    return tell(why);
  }
  if (greetings_.size() >= settings_->max_handshakes) evict();
  if (shared_ == nullptr) return;  // the handler for refusals has stopped this listener
  try {
    Greeting& client = greetings_.emplace_back();
    tcp::Accepted socket = pending.take_socket();
    client.made.fd = std::move(socket.fd);
    client.made.peer = socket.peer;
    client.made.place = quota_ ? quota_->take() : std::move(pending.place);
    client.began = shared_->loop().now();
  } catch (const std::bad_alloc&) {
    ++counters_.accept_errors;
    return;
  }
  receive(std::prev(greetings_.end()));
}

/// Makes room for one more hello: refuses the client that has waited for longest.
void Acceptor::evict() {
  Answer why{Answer::kFull, ""};
  try {
    why.text = retry_after_under_overload();
  } catch (const std::bad_alloc&) {
  }
  refuse(greetings_.begin(), why);
}

void Acceptor::receive(Greetings::iterator client) {
  if (client->made_here.inherited()) return leave_to_parent(client);
  Answer answer{Answer::kRule, ""};
  try {
    switch (client->hello.receive(client->made.fd.get())) {
      case Receipt::Step::kMore:
        return watch(client);
      case Receipt::Step::kEnded:
        answer.text = "the client closed the socket before its hello was complete";
        break;
      case Receipt::Step::kForeign:
        answer.text =
            "the client does not speak shm, or its hello is not one message with two memories";
        break;
      case Receipt::Step::kNoDescriptors:
        answer = {Answer::kFull, "this process has no descriptors left (ulimit -n)"};
        break;
      case Receipt::Step::kDone:
        answer = welcome(*client);
    }
  } catch (const std::bad_alloc&) {
    answer = {Answer::kRule, "out of memory"};
  }
  if (answer.status != Answer::kStands) return refuse(client, answer);
  counters_.accept_time.add(shared_->loop().now() - client->began);
  ++shared_->counters.hellos;
  greetings_.erase(client);
  go_on();
}

/// Waits for more of the hello, unless it waits already.
void Acceptor::watch(Greetings::iterator client) {
  if (client->watched) return;
  ae::EventLoop& loop = shared_->loop();
  client->timer = loop.add_time_event(settings_->handshake_timeout, [this, client] {
    client->timer = 0;
    refuse(client, {Answer::kRule, "no hello in time (handshake-timeout)"});
    return ae::kNoMore;
  });
  loop.add_file_event(client->made.fd.get(), ae::kReadable | ae::kTrusted,
                      [this, client](int, ae::Mask) { receive(client); });
  client->watched = true;
}

/// Checks a complete hello, and makes the connection. Returns the answer to a client that is
/// refused, else kStands. Throws std::bad_alloc.
Answer Acceptor::welcome(Greeting& client) {
  Hello hello;
  Answer refusal = decode(client.hello.message(), settings_->max_ring, hello);
  if (refusal.status != Answer::kStands) return refusal;
  refusal = {Answer::kNotHere, served_.why_not(hello.destination)};
  if (!refusal.text.empty()) return refusal;
  if (client.hello.descriptors() != 2)
    return {Answer::kRule, "two descriptors have to come with the hello"};
  Failure why;
  client.made.channel = accept_memories(client.hello.descriptor(0), hello.client_ring,
                                        client.hello.descriptor(1), hello.server_ring, why);
  if (!client.made.channel) return {Answer::kRule, why.text};
  client.hello.used();
  // Made now, since nothing may fail once the connection is in done_.
  const std::string answer = encode(Answer{});
  forget(client);  // the connection watches the socket from now on
  auto [owner, carrier] = make_connection<ShmCarrier>(shared_->loop(), type_, *shared_, settings_);
  const int socket = client.made.fd.get();
  tcp::refuse_descriptors(socket);  // those that come from now on
  carrier.adopt(std::move(client.made));
  done_.push_back(std::move(owner));
  // An error is ignored: if the client has gone, the connection learns that from the socket.
  (void)send_message(socket, answer);
  return {};
}

/// Stops watching a client's socket.
void Acceptor::forget(Greeting& client) noexcept {
  ae::EventLoop& loop = shared_->loop();
  if (client.timer != 0) loop.remove_time_event(std::exchange(client.timer, 0));
  if (client.watched) loop.remove_file_event(client.made.fd.get(), ae::kReadable);
  client.watched = false;
}

/// Drops a client in a child of fork(): the parent goes on with it.
void Acceptor::leave_to_parent(Greetings::iterator client) noexcept {
  forget(*client);
  greetings_.erase(client);
}

void Acceptor::refuse(Greetings::iterator client, const Answer& answer) {
  if (client->made_here.inherited()) return leave_to_parent(client);
  forget(*client);
  Failure why = out_of_memory();
  try {
    if (client->made.fd) (void)send_message(client->made.fd.get(), encode(answer));
    why = {std::make_error_code(std::errc::connection_refused),
           "a client of shm is refused: " + answer.text};
  } catch (const std::bad_alloc&) {
  }
  greetings_.erase(client);
  ++counters_.accept_errors;
  ++shared_->counters.hello_failures;
  tell(why);
}

/// Runs the user's handler for refused clients. While it runs, a nested iteration of the loop does
/// not hand out or begin other connections; they are made ready again when it has returned.
void Acceptor::tell(const Failure& why) {
  const Then then{*this};
  refused_.tell(why);
}

// --- the listeners -------------------------------------------------------------------------------

void StopAcceptor::operator()(Acceptor* acceptor) const noexcept {
  std::unique_ptr<ae::Deferred> owner(acceptor);
  ae::EventLoop* const loop = acceptor->loop();
  acceptor->stop();
  if (loop != nullptr) loop->destroy_later(std::move(owner));
}

const ConnectionType& ShmListener::type() const noexcept { return acceptor_->type(); }

std::vector<Endpoint> ShmListener::endpoints() const {
  return port_ ? port_->endpoints() : std::vector<Endpoint>();
}

void ShmListener::pause() {
  acceptor_->pause();
  if (port_) port_->pause();
}

void ShmListener::resume() {
  if (port_) port_->resume();
  acceptor_->resume();
}

}}}  // namespace conn::shm
