// SPDX-License-Identifier: BSD-3-Clause
#include "conn/tls/acceptor.h"

#include <algorithm>

#include "conn/core/make_connection.h"
#include "conn/tls/carrier.h"
#include "conn/tls/type.h"

namespace conn { inline namespace AECONN_ABI { namespace tls {
namespace {

using namespace std::chrono_literals;

constexpr int kAcceptsPerIteration = 16;
// Most connections taken from the listener below in one iteration. Each costs some 70 us before its
// handshake begins, and established connections wait meanwhile.
constexpr unsigned kArrivalsPerIteration = 8;
// While max-handshakes handshakes run, new connections wait in the backlog until one handshake
// ends, or until the oldest one is this old; the next connection then replaces the oldest. Honest
// clients need only milliseconds.
constexpr ae::Duration kGrace = 1s;

}  // namespace

Acceptor::Acceptor(const TlsType& type, LoopState& shared,
                   std::shared_ptr<const ContextSource> contexts, AcceptHandler accepted)
    : type_(type),
      shared_(&shared),
      counters_(type.counters(shared.loop())),
      contexts_(std::move(contexts)),
      reloader_(shared, *contexts_, refused_) {
  accepted_.set(std::move(accepted));
  shared.add(*this);
}

void Acceptor::start() {
  shared_->threads().grow(contexts_->get()->settings().handshake_threads);
  reloader_.begin(contexts_->get());
}

void Acceptor::listen_on(ListenerPtr below) {
  below_ = std::move(below);
  below_->on_refused([this](const Failure& failure) {
    ++(failure.code == std::errc::connection_refused ? counters_.refused : counters_.accept_errors);
    refused_.tell(failure);
  });
}

void Acceptor::stop() noexcept {
  if (shared_ == nullptr) return;
  if (room_timer_ != 0) shared_->loop().remove_time_event(room_timer_);
  room_timer_ = 0;
  reloader_.stop();
  forget();
  shared_ = nullptr;
  unqueue();
  below_.reset();
  for (const OwnedHandshake& one : handshakes_) {
    if (one.handshake != nullptr) one.handshake->forget_owner();
  }
  handshakes_.clear();
  done_.clear();
  refused_.clear();
  accepted_.clear();  // must come last, because destroying the handler may run any code
}

// --- handshakes ----------------------------------------------------------------------------------

void Acceptor::arrived(ConnectionPtr below) {
  count_arrival();
  // configure() may have named other files
  reloader_.try_to_follow(contexts_->get());
  if (shared_ == nullptr) return;
  const std::shared_ptr<const Context> context = contexts_->get();
  max_handshakes_ = context->settings().max_handshakes;
  if (full()) handshakes_.front().handshake->evict();
  // shared_ is null if the handler for refused connections, called by evict(), stopped this
  // listener
  if (shared_ == nullptr) return;
  TlsCarrier* carrier = nullptr;
  try {
    auto [connection, made] = make_connection<TlsCarrier>(shared_->loop(), type_, *shared_);
    handshakes_.push_back({std::move(connection)});
    carrier = &made;
  } catch (const std::bad_alloc&) {
    // if memory runs out, only this connection is lost; accepting continues
    ++counters_.accept_errors;
    return;
  }
  const Place place = std::prev(handshakes_.end());
  try {
    place->handshake = &carrier->begin(std::move(below), Role::kServer, context, "", {this, place});
  } catch (const std::exception& error) {
    const ConnectionPtr gone = take(place);
    ++counters_.accept_errors;
    Failure failure = out_of_memory();
    try {
      failure = {std::make_error_code(std::errc::invalid_argument), error.what()};
    } catch (const std::bad_alloc&) {
    }
    refused_.tell(failure);
    return;
  }
  check_room();
}

/// Counts a connection that was taken in this iteration. After kArrivalsPerIteration of them pauses
/// the listener below.
void Acceptor::count_arrival() {
  shared_->ready().push(*this);  // run_ready() calls end_iteration()
  if (++arrivals_ != kArrivalsPerIteration) return;
  resting_ = true;
  below_->pause();
}

/// Lets the listener below accept again after the arrivals of an iteration, unless there is another
/// reason for it to be paused. Without memory for that, the next iteration tries again.
void Acceptor::end_iteration() {
  arrivals_ = 0;
  if (!std::exchange(resting_, false) || waiting_ || paused_) return;
  try {
    below_->resume();
  } catch (const std::bad_alloc&) {
    resting_ = true;
    shared_->ready().push(*this);
  }
}

bool Acceptor::full() const { return handshakes_.size() >= max_handshakes_; }

/// While max-handshakes handshakes run, stops accepting, so that further connections stay in the
/// backlog. Without memory for the timer, connections are still accepted, and each one evicts the
/// oldest handshake at once.
void Acceptor::check_room() {
  if (!full()) {
    (void)let_in();
    return;
  }
  if (room_timer_ == 0) {
    const Handshake& oldest = *handshakes_.front().handshake;
    try {
      room_timer_ = shared_->loop().add_time_event(
          oldest.began() + kGrace, [this] { return let_in() ? ae::kNoMore : kGrace; });
    } catch (const std::bad_alloc&) {
      return;
    }
  }
  if (!std::exchange(waiting_, true)) below_->pause();
}

/// Resumes accepting. Returns false if there is no memory for that; the timer then tries again.
bool Acceptor::let_in() {
  if (waiting_ && !paused_ && !resting_) {
    try {
      below_->resume();
    } catch (const std::bad_alloc&) {
      return false;
    }
  }
  waiting_ = false;
  if (room_timer_ != 0) shared_->loop().remove_time_event(room_timer_);
  room_timer_ = 0;
  return true;
}

ConnectionPtr Acceptor::take(Place place) {
  ConnectionPtr owner = std::move(place->connection);
  handshakes_.erase(place);
  return owner;
}

void Acceptor::finished(Place place) {
  if (paused_ || accepted_.running() || !done_.empty()) {
    done_.splice(done_.end(), handshakes_, place);
    if (!paused_ && !accepted_.running()) shared_->ready().push(*this);
    check_room();
  } else {
    ConnectionPtr owner = take(place);
    check_room();
    hand_over(std::move(owner));
  }
}

/// Runs the accept handler. Connections that become ready while it runs a nested iteration of the
/// loop wait until it returns.
void Acceptor::hand_over(ConnectionPtr owner) {
  // its destructor, which continues with further connections, runs even if the handler throws
  struct Then {
    Acceptor& acceptor;
    ~Then() {
      const bool more = acceptor.shared_ != nullptr && !acceptor.paused_ && !acceptor.done_.empty();
      if (more) acceptor.shared_->ready().push(acceptor);
    }
  } then{*this};
  accepted_.run(std::move(owner));
}

void Acceptor::failed(Place place, const Failure& failure) {
  // destroying the connection at the end of this function sends the TLS alert to the peer
  const ConnectionPtr owner = take(place);
  ++counters_.accept_errors;
  check_room();
  refused_.tell(failure);
}

// --- pausing -------------------------------------------------------------------------------------

void Acceptor::pause() {
  paused_ = true;
  if (shared_ != nullptr) below_->pause();
}

void Acceptor::resume() {
  paused_ = false;
  if (shared_ == nullptr) return;
  if (!waiting_ && !resting_) below_->resume();
  if (!done_.empty()) shared_->ready().push(*this);
}

std::size_t Acceptor::run_ready() {
  end_iteration();
  std::size_t ran = 0;
  for (int i = 0; i < kAcceptsPerIteration && !paused_ && !done_.empty(); ++i) {
    // the accept handler runs a nested iteration of the loop, which called this
    if (accepted_.running()) return ran;
    if (i != 0 && !shared_->loop().has_time()) break;
    ConnectionPtr owner = std::move(done_.front().connection);
    done_.pop_front();
    hand_over(std::move(owner));
    ++ran;
    // shared_ is null if the accept handler stopped this listener
    if (shared_ == nullptr) return ran;
  }
  return ran;
}

// --- the listener --------------------------------------------------------------------------------

TlsListener::TlsListener(const TlsType& type, std::unique_ptr<Acceptor> acceptor)
    : type_(type), acceptor_(std::move(acceptor)) {}

TlsListener::~TlsListener() {
  LoopState* const shared = acceptor_->shared();
  if (shared == nullptr) return;
  ae::EventLoop& loop = shared->loop();
  acceptor_->stop();
  loop.destroy_later(std::move(acceptor_));
}

std::vector<Endpoint> TlsListener::endpoints() const {
  std::vector<Endpoint> all;
  if (acceptor_->below() != nullptr) all = acceptor_->below()->endpoints();
  for (Endpoint& endpoint : all) {
    endpoint.scheme = type_.name();
    // removed, since showing only the options of the layer below would be misleading
    endpoint.options = {};
  }
  return all;
}

}}}  // namespace conn::tls
