// SPDX-License-Identifier: BSD-3-Clause
#include "conn/shm/acceptor.h"

#include <new>

#include "conn/core/make_connection.h"
#include "conn/kit/retry_after.h"
#include "conn/shm/carrier.h"
#include "conn/shm/type.h"
#include "conn/url/coded_failure.h"

namespace conn { inline namespace AECONN_ABI { namespace shm {

Acceptor::Acceptor(const ShmType& type, LoopState& shared, SettingsPtr settings, Served served,
                   AcceptHandler accepted)
    : AcceptorBase(type, shared.ready(), settings->socket->accept_batch, std::move(accepted)),
      shared_(shared),
      settings_(std::move(settings)),
      served_(std::move(served)) {}

void Acceptor::on_stop(bool) noexcept {
  for (Greeting& client : greetings_) forget(client);
  greetings_.clear();
}

void Acceptor::begin(PendingConnectionPtr arrival) {
  if (greetings_.size() >= settings_->max_handshakes) evict();
  if (stopped()) return;  // the program's handler of refusals has stopped this listener
  try {
    Greeting& client = greetings_.emplace_back();
    tcp::Accepted socket = static_cast<tcp::SocketPending&>(*arrival).take_socket();
    client.made.fd = std::move(socket.fd);
    client.made.peer = socket.peer;
    client.made.place = std::move(arrival->place);
    client.began = loop().now();
  } catch (const std::bad_alloc&) {
    return lost();
  }
  arrival.reset();
  receive(std::prev(greetings_.end()));
}

/// Refuses the client that has waited for longest, so that a new one can set up its connection.
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
  ConnectionPtr made;
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
        answer = welcome(*client, made);
    }
  } catch (const std::bad_alloc&) {
    answer = {Answer::kRule, "out of memory"};
  }
  if (answer.status != Answer::kStands) return refuse(client, answer);
  counters().accept_time.add(loop().now() - client->began);
  ++shared_.counters.hellos;
  greetings_.erase(client);
  hand_over(std::move(made));
}

/// Watches the client's socket for the rest of its hello (the message that sets up a connection),
/// for at most the time of option handshake-timeout; no effect if it is watched already.
void Acceptor::watch(Greetings::iterator client) {
  if (client->watched) return;
  client->timer = loop().add_time_event(settings_->handshake_timeout, [this, client] {
    client->timer = 0;
    refuse(client, {Answer::kRule, "no hello in time (handshake-timeout)"});
    return ae::kNoMore;
  });
  loop().add_file_event(client->made.fd.get(), ae::kReadable | ae::kTrusted,
                        [this, client](int, ae::Mask) { receive(client); });
  client->watched = true;
}

/// Checks the complete hello (set-up message) of `client`, and stores a connection in `made`.
/// Returns the answer that refuses the client, or one with the status kStands. Throws
/// std::bad_alloc.
Answer Acceptor::welcome(Greeting& client, ConnectionPtr& made) {
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
  // Encodes the answer to the client now: that may throw, and nothing must fail once the connection
  // exists.
  const std::string answer = encode(Answer{});
  forget(client);  // the connection, not this acceptor, watches the socket from now on
  auto [owner, carrier] =
      make_connection<ShmCarrier>(loop(), static_cast<const ShmType&>(type()), shared_, settings_);
  const int socket = client.made.fd.get();
  tcp::refuse_descriptors(socket);  // the client has no reason to pass further descriptors
  carrier.adopt(std::move(client.made));
  made = std::move(owner);
  // An error is ignored: if the client has gone, the connection learns that from the socket.
  (void)send_message(socket, answer);
  return {};
}

/// Stops watching a client's socket.
void Acceptor::forget(Greeting& client) noexcept {
  if (client.timer != 0) loop().remove_time_event(std::exchange(client.timer, 0));
  if (client.watched) loop().remove_file_event(client.made.fd.get(), ae::kReadable);
  client.watched = false;
}

/// Drops a client in a child of fork(): the parent continues its set-up.
void Acceptor::leave_to_parent(Greetings::iterator client) noexcept {
  forget(*client);
  greetings_.erase(client);
}

void Acceptor::refuse(Greetings::iterator client, const Answer& answer) {
  if (client->made_here.inherited()) return leave_to_parent(client);
  forget(*client);
  const Failure why = coded_failure(std::make_error_code(std::errc::connection_refused), [&] {
    if (client->made.fd) (void)send_message(client->made.fd.get(), encode(answer));
    return "a client of shm is refused: " + answer.text;
  });
  greetings_.erase(client);
  lost();
  ++shared_.counters.hello_failures;
  refused(why);
}

}}}  // namespace conn::shm
