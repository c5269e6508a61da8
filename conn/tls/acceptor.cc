// SPDX-License-Identifier: BSD-3-Clause
#include "conn/tls/acceptor.h"

#include <algorithm>

#include "conn/core/make_connection.h"
#include "conn/tls/carrier.h"
#include "conn/tls/type.h"
#include "conn/url/coded_failure.h"

namespace conn { inline namespace AECONN_ABI { namespace tls {
namespace {

using namespace std::chrono_literals;

constexpr unsigned kAcceptsPerIteration = 16;
// The listener below TLS passes on at most this many connections in one iteration. Each takes about
// 70 us to set up before its handshake begins, while established connections wait.
constexpr unsigned kArrivalsPerIteration = 8;
// Option max-handshakes limits the handshakes that run at once. At the limit, new connections wait
// in the backlog until a handshake ends or the oldest has run for this long; the next connection
// then replaces the oldest one. The handshake of an honest client takes only milliseconds.
constexpr ae::Duration kGrace = 1s;

}  // namespace

Acceptor::Acceptor(const TlsType& type, LoopState& shared,
                   std::shared_ptr<const ContextSource> contexts, AcceptHandler accepted)
    : AcceptorBase(type, shared.ready(), kAcceptsPerIteration, std::move(accepted)),
      shared_(shared),
      contexts_(std::move(contexts)),
      reloader_(shared, *contexts_, *this) {}

void Acceptor::start() {
  shared_.threads().grow(contexts_->get()->settings().handshake_threads);
  reloader_.begin(contexts_->get());
}

void Acceptor::take_from(ListenerPtr below) {
  below->on_refused([this](const Failure& failure) {
    ++(failure.code == std::errc::connection_refused ? counters().refused
                                                     : counters().accept_errors);
    refused(failure);
  });
  listen_on(std::move(below));
}

void Acceptor::on_stop(bool) noexcept {
  if (room_timer_ != 0) loop().remove_time_event(room_timer_);
  reloader_.stop();
  for (const OwnedHandshake& one : handshakes_) {
    if (one.handshake != nullptr) one.handshake->forget_owner();
  }
  handshakes_.clear();
}

// --- starting and ending handshakes --------------------------------------------------------------

void Acceptor::arrived(ConnectionPtr below) {
  count_arrival();
  // configure() may have replaced the context, so the files of the current one are watched
  reloader_.try_to_follow(contexts_->get());
  if (stopped()) return;
  const std::shared_ptr<const Context> context = contexts_->get();
  max_handshakes_ = context->settings().max_handshakes;
  if (full()) handshakes_.front().handshake->evict();
  // The handler for refused connections, called by evict(), may have stopped this listener.
  if (stopped()) return;
  TlsCarrier* carrier = nullptr;
  try {
    auto [connection, made] =
        make_connection<TlsCarrier>(loop(), static_cast<const TlsType&>(type()), shared_);
    handshakes_.push_back({std::move(connection)});
    carrier = &made;
  } catch (const std::bad_alloc&) {
    // if memory runs out, only this connection is lost; accepting continues
    return lost();
  }
  const Place place = std::prev(handshakes_.end());
  try {
    place->handshake = &carrier->begin(std::move(below), Role::kServer, context, "", {this, place});
  } catch (const std::exception& error) {
    const ConnectionPtr gone = take(place);
    lost();
    return refused(coded_failure(std::make_error_code(std::errc::invalid_argument),
                                 [&] { return error.what(); }));
  }
  check_room();
}

/// Counts a connection that the listener below TLS has passed on in this iteration. After
/// kArrivalsPerIteration of them, pauses that listener; end_iteration() resumes it.
void Acceptor::count_arrival() {
  run_soon();  // lets run_ready() run, which calls end_iteration()
  if (++arrivals_ != kArrivalsPerIteration) return;
  resting_ = true;
  port()->pause();
}

/// Begins a new count of the connections that are passed on in an iteration. If count_arrival() has
/// paused the listener below TLS, resumes it, unless there is another reason for it to be paused.
/// If memory runs out, the next iteration tries again.
void Acceptor::end_iteration() {
  arrivals_ = 0;
  if (!std::exchange(resting_, false) || waiting_ || paused()) return;
  try {
    port()->resume();
  } catch (const std::bad_alloc&) {
    resting_ = true;
    run_soon();
  }
}

bool Acceptor::full() const { return handshakes_.size() >= max_handshakes_; }

/// If max-handshakes handshakes run, pauses the listener below TLS, so that further connections
/// stay in the backlog. The end of a handshake, or a timer, resumes it. Without memory for the
/// timer, the listener is not paused, and each new connection evicts the oldest handshake at once.
void Acceptor::check_room() {
  if (!full()) {
    (void)let_in();
    return;
  }
  if (room_timer_ == 0) {
    const Handshake& oldest = *handshakes_.front().handshake;
    try {
      room_timer_ = loop().add_time_event(oldest.began() + kGrace,
                                          [this] { return let_in() ? ae::kNoMore : kGrace; });
    } catch (const std::bad_alloc&) {
      return;
    }
  }
  if (!std::exchange(waiting_, true)) port()->pause();
}

/// Resumes the listener below TLS if check_room() has paused it. Returns false if there is no
/// memory for that; the timer then tries again.
bool Acceptor::let_in() {
  if (waiting_ && !paused() && !resting_) {
    try {
      port()->resume();
    } catch (const std::bad_alloc&) {
      return false;
    }
  }
  waiting_ = false;
  if (room_timer_ != 0) loop().remove_time_event(room_timer_);
  room_timer_ = 0;
  return true;
}

ConnectionPtr Acceptor::take(Place place) {
  ConnectionPtr owner = std::move(place->connection);
  handshakes_.erase(place);
  return owner;
}

void Acceptor::finished(Place place) {
  ConnectionPtr owner = take(place);
  check_room();
  hand_over(std::move(owner));
}

void Acceptor::failed(Place place, const Failure& failure) {
  // destroying the connection at the end of this function sends the TLS alert to the peer
  const ConnectionPtr owner = take(place);
  lost();
  check_room();
  refused(failure);
}

// --- pausing the listener below TLS --------------------------------------------------------------

void Acceptor::set_listening(bool wanted) {
  if (!wanted || (!waiting_ && !resting_)) AcceptorBase::set_listening(wanted);
}

std::size_t Acceptor::run_ready() {
  end_iteration();
  return AcceptorBase::run_ready();
}

}}}  // namespace conn::tls
