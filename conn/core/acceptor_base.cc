// SPDX-License-Identifier: BSD-3-Clause
#include "conn/core/acceptor_base.h"

#include <new>

#include "conn/kit/retry_after.h"

namespace conn { inline namespace AECONN_ABI {
namespace {

// A listener's own port accepts no more while pending connections for this number of iterations
// wait: each has a descriptor, and option max-connections does not count it yet.
constexpr std::size_t kMostBatches = 4;

}  // namespace

AcceptorBase::AcceptorBase(const ConnectionType& type, ReadyList& ready, unsigned batch,
                           AcceptHandler accepted)
    : type_(type),
      loop_(ready.loop()),
      counters_(type.counters(loop_)),
      ready_(ready),
      batch_(batch) {
  accepted_.set(std::move(accepted));
  ConnectionSet& set = ConnectionSet::of(loop_);
  set.add_last(*this);
  set.add(static_cast<ArrivalSource&>(*this));
}

void AcceptorBase::stop(bool loop_ends) noexcept {
  if (std::exchange(stopped_, true)) return;
  stop_watching();
  leave_list();
  unqueue();
  on_stop(loop_ends);
  port_.reset();
  arrivals_.clear();
  done_.clear();
  // The handlers are destroyed last, when their slots are no longer used: destroying a handler may
  // run any code, which may destroy the listener and, if the loop has ended, this object with it.
  const auto refused_handler = refused_.take();
  const auto accepted_handler = accepted_.take();
}

std::vector<Endpoint> AcceptorBase::endpoints() const {
  std::vector<Endpoint> all;
  if (port_) all = port_->endpoints();
  for (Endpoint& endpoint : all) {
    endpoint.scheme = type_.name();
    endpoint.options = {};  // cleared, since the port listener has only some of the options
  }
  return all;
}

void AcceptorBase::set_listening(bool wanted) {
  if (!port_) return;
  if (wanted && !port_full_)
    port_->resume();
  else if (wanted || held_)
    port_->hold_back();
  else
    port_->pause();
}

void AcceptorBase::pause() {
  paused_ = true;
  held_ = false;
  if (!stopped_) set_listening(false);
}

void AcceptorBase::hold_back() {
  paused_ = held_ = true;
  if (!stopped_) set_listening(false);
}

void AcceptorBase::resume() {
  paused_ = held_ = false;
  if (stopped_) return;
  go_on();  // called before set_listening(), which may throw
  set_listening(true);
}

/// Arranges that the loop calls run_ready() if pending or established connections wait. Does
/// nothing while the acceptor is paused or one of its handlers runs: this function is called again
/// after that.
void AcceptorBase::go_on() noexcept {
  if (stopped_ || busy()) return;
  if (!listens_again() || !(done_.empty() && arrivals_.empty())) run_soon();
}

/// Lets the port accept again if it has paused since too many pending connections waited, and fewer
/// wait now. Returns false if memory was missing for that, so that it must be tried again.
bool AcceptorBase::listens_again() noexcept {
  if (!port_full_ || arrivals_.size() > kMostBatches / 2 * batch_) return true;
  port_full_ = false;
  try {
    set_listening(true);
  } catch (const std::bad_alloc&) {
    port_full_ = true;
  }
  return !port_full_;
}

std::size_t AcceptorBase::run_ready() {
  const Then then{*this};
  std::size_t begun = 0, handed = 0;
  // busy() is also true in a nested iteration of the loop that one of the handlers runs.
  while (!stopped_ && !busy()) {
    if (begun + handed != 0 && !loop_.has_time()) break;
    if (!done_.empty() && handed < batch_) {
      ++handed;
      ConnectionPtr owner = std::move(done_.front());
      done_.pop_front();
      accepted_.run(std::move(owner));
    } else if (!arrivals_.empty() && begun < batch_) {
      ++begun;
      admit(give_back());
    } else {
      break;
    }
  }
  return begun + handed;
}

/// Accepts nothing itself: run_ready() passes waiting connections to the accept handler in each
/// iteration. Returns kWaits if connections wait, unless the program has paused the listener.
ArrivalSource::Left AcceptorBase::accept_arrived() {
  if (stopped_ || (paused_ && !held_)) return Left::kNothing;
  return done_.empty() && arrivals_.empty() ? Left::kNothing : Left::kWaits;
}

void AcceptorBase::hand_over(ConnectionPtr connection) {
  const Then then{*this};
  if (!busy() && done_.empty()) return accepted_.run(std::move(connection));
  try {
    done_.push_back(std::move(connection));
  } catch (const std::bad_alloc&) {
    lost();
  }
}

void AcceptorBase::refused(const Failure& why) {
  const Then then{*this};
  refused_.tell(why);
}

// --- pending connections: their set-up has not begun ---------------------------------------------

void AcceptorBase::arrive(PendingConnectionPtr arrival) {
  if (stopped_ || busy() || !arrivals_.empty()) return arrive_later(std::move(arrival));
  admit(std::move(arrival));
}

void AcceptorBase::arrive_later(PendingConnectionPtr arrival) {
  if (stopped_) return;
  try {
    arrivals_.push_back(std::move(arrival));
  } catch (const std::bad_alloc&) {
    return lost();
  }
  if (port_ && !port_full_ && arrivals_.size() >= kMostBatches * batch_) {
    port_full_ = true;
    if (!paused_) port_->hold_back();
  }
  go_on();
}

PendingConnectionPtr AcceptorBase::give_back() noexcept {
  if (arrivals_.empty()) return nullptr;
  PendingConnectionPtr next = std::move(arrivals_.front());
  arrivals_.pop_front();
  return next;
}

void AcceptorBase::admit(PendingConnectionPtr arrival) {
  if (quota_ && quota_->full()) {
    ++counters_.refused;
    Failure why = out_of_memory();
    try {
      arrival->refuse(retry_after_when_full());
      why = quota_->refusal(arrival->peer());
    } catch (const std::bad_alloc&) {
    }
    arrival.reset();
    return refused(why);
  }
  if (quota_) arrival->place = quota_->take();
  begin(std::move(arrival));
}

// --- stopping and destroying an acceptor ---------------------------------------------------------

void StopAcceptor::operator()(AcceptorBase* acceptor) const noexcept {
  std::unique_ptr<ae::Deferred> owner(acceptor);
  if (acceptor->stopped()) return;
  ae::EventLoop& loop = acceptor->loop();
  acceptor->stop();
  loop.destroy_later(std::move(owner));
}

}}  // namespace conn
