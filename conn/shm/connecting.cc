// SPDX-License-Identifier: BSD-3-Clause
// How a connection of shm begins: the client's lookup, socket, hello and the server's answer.

#include <poll.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <new>

#include "conn/kit/descriptor.h"
#include "conn/kit/interruption.h"
#include "conn/kit/retry_after.h"
#include "conn/setup_trace.h"
#include "conn/shm/carrier.h"
#include "conn/shm/type.h"

namespace conn { inline namespace AECONN_ABI { namespace shm {

void ShmCarrier::connect(const Endpoint& to) {
  settings_ = shm_type().settings_for(to.options);
  SetupTrace::begin("connect");
  deadline_ = loop()->now() + settings_->socket->connect_timeout;
  if (settings_->path.empty()) return dial(to);
  try {
    limit_time();
    lookup_ = std::make_unique<DestinationLookup>(*loop(), to,
                                                  [this, to](Destination found, Failure why) {
                                                    looked_up(to, std::move(found), std::move(why));
                                                  });
  } catch (const std::bad_alloc&) {
    stop_watching();
    throw;
  }
}

void ShmCarrier::looked_up(const Endpoint& to, Destination found, Failure why) {
  // Owns the lookup, which called this function, and `to`, until this function returns.
  const std::unique_ptr<DestinationLookup> lookup = std::move(lookup_);
  if (why) return not_connected(std::move(why));
  try {
    destination_ = std::make_unique<const Destination>(std::move(found));
    dial(to);
  } catch (const std::bad_alloc&) {
    not_connected(out_of_memory());
  }
}

void ShmCarrier::dial(const Endpoint& to) {
  dial_ = std::make_unique<tcp::Dial>(*loop(), settings_->socket, shm_type().addresses(),
                                      shm_type().socket_endpoint(to),
                                      [this](tcp::Dialed result) { dialed(std::move(result)); });
  dial_->start();
}

/// Ends the attempt at deadline_, in whatever step it is then.
void ShmCarrier::limit_time() {
  if (timer_ != 0) return;
  timer_ = loop()->add_time_event(deadline_, [this] {
    timer_ = 0;
    not_connected(ETIMEDOUT, lookup_ ? "the lookup takes too long" : "no answer");
    return ae::kNoMore;
  });
}

void ShmCarrier::dialed(tcp::Dialed result) {
  // Owns the Dial, which called this function, until this function returns.
  const std::unique_ptr<tcp::Dial> dial = std::move(dial_);
  try {
    if (!greet(std::move(result))) return;
    limit_time();
    watch();
  } catch (const std::bad_alloc&) {
    not_connected(out_of_memory());
  }
}

/// Sends the hello, if the socket is connected. Otherwise fails the connection and returns false.
bool ShmCarrier::greet(tcp::Dialed result) {
  if (!result.fd) return not_connected(std::move(result.failure)), false;
  host().occupy(std::move(result.place));
  socket_ = std::move(result.fd);
  SetupTrace::begin("hello");
  Offer offer = make_memories(settings_->ring);
  if (!offer.channel) return not_connected(std::move(offer.failure)), false;
  channel_ = std::move(offer.channel);
  const std::array<int, 2> memories{offer.client.get(), offer.server.get()};
  awaited_ = std::make_unique<Awaited>();
  awaited_->server_memory = std::move(offer.server);
  Hello hello{settings_->ring, settings_->ring};
  if (destination_) hello.destination = *destination_;
  const int err = send_message(socket_.get(), encode(hello), memories.data(), memories.size());
  if (err == 0) return true;
  // A server that has closed the socket may have said why before.
  Answer why;
  if (err == EPIPE && awaited_->answer.receive(socket_.get()) == Receipt::Step::kDone &&
      decode(awaited_->answer.message(), why) && why.status != Answer::kStands)
    return refused(why), false;
  return not_connected(err, "send the hello"), false;
}

void ShmCarrier::take_answer() {
  Receipt& receipt = awaited_->answer;
  switch (receipt.receive(socket_.get())) {
    case Receipt::Step::kMore:
      return;
    case Receipt::Step::kEnded:
      return not_connected(ECONNRESET, "the server closed the socket before its answer");
    case Receipt::Step::kForeign:
    case Receipt::Step::kNoDescriptors:
      return not_connected(EPROTO, "the server does not speak shm");
    case Receipt::Step::kDone:
      break;
  }
  Answer answer;
  if (receipt.descriptors() != 0 || !decode(receipt.message(), answer))
    return not_connected(EPROTO, "the server's answer breaks a rule");
  if (answer.status != Answer::kStands) return refused(answer);
  if (check_sealed(awaited_->server_memory, channel_->reader.size()))
    return not_connected(EPROTO, "the server has not sealed the memory that it writes");
  established();
}

void ShmCarrier::refused(const Answer& answer) {
  not_connected({std::make_error_code(std::errc::connection_refused),
                 "connect to " + peer_address() + ": refused: " + answer.text,
                 retry_after_in(answer.text)});
}

void ShmCarrier::not_connected(Failure why) {
  SetupTrace::failed();
  stop_watching();
  fail(std::move(why));
  update_ready();
}

void ShmCarrier::not_connected(int err, std::string_view what) noexcept {
  not_connected(failure(err, "connect to ", ": ", what));
}

/// Returns a failure whose text is `before`, the peer's address, `after` and `more`. Without memory
/// for that text, the code is set all the same.
Failure ShmCarrier::failure(int err, std::string_view before, std::string_view after,
                            std::string_view more) const noexcept {
  Failure why = out_of_memory();
  why.code = {err, std::generic_category()};
  try {
    why = errno_failure(err, std::string(before)
                                 .append(socket_ ? peer_address() : settings_->path)
                                 .append(after)
                                 .append(more));
  } catch (const std::bad_alloc&) {
  }
  return why;
}

void ShmCarrier::established() {
  awaited_.reset();
  destination_.reset();
  if (timer_ != 0) loop()->remove_time_event(std::exchange(timer_, 0));
  if (state() == State::kConnecting) SetupTrace::end();
  shared_->counters.ring_bytes += channel_->reader.size() + channel_->writer.size();
  shared_->on_spin_wish(settings_->spin);
  move_to(State::kConnected);
  shared_->heat(*this);
  update_ready();
}

void ShmCarrier::connect_blocking(const Endpoint& to, ae::TimePoint deadline) {
  settings_ = shm_type().settings_for(to.options);
  SetupTrace::begin("connect");
  const ae::TimePoint until =
      std::min(deadline, std::chrono::steady_clock::now() + settings_->socket->connect_timeout);
  if (!settings_->path.empty()) {
    Failure why;
    destination_ = std::make_unique<const Destination>(DestinationLookup::wait(to, until, why));
    if (why) return not_connected(std::move(why));
  }
  if (!greet(tcp::Dial::wait(*settings_->socket, shm_type().addresses(),
                             shm_type().socket_endpoint(to), until)))
    return;
  while (state() == State::kConnecting) {
    const bool came = poll_until(socket_.get(), POLLIN, until);
    if (came)
      take_answer();
    else
      not_connected(Interruption::ends() ? EINTR : ETIMEDOUT, "no answer");
  }
  if (state() == State::kConnected) watch();
}

void ShmCarrier::adopt(Fd socket, ChannelPtr channel, Quota::Place place) {
  host().occupy(std::move(place));
  socket_ = std::move(socket);
  tcp::refuse_descriptors(socket_.get());  // for those that come from now on
  channel_ = std::move(channel);
  watch();
  established();
}

}}}  // namespace conn::shm
