// SPDX-License-Identifier: BSD-3-Clause
// Moving a connection to another loop: rebind(), leave() and join().

#include <cerrno>
#include <memory>
#include <mutex>

#include "conn/connection.h"
#include "conn/connection_type.h"
#include "conn/core/close_watch.h"
#include "conn/core/connection_core.h"
#include "conn/core/connection_set.h"
#include "conn/core/in_place_state.h"
#include "conn/kit/errno_of.h"

namespace conn { inline namespace AECONN_ABI {

bool Connection::rebind(ae::EventLoop& loop) { return ConnectionCore::of(*this).move(&loop); }

bool Connection::leave() { return ConnectionCore::of(*this).move(nullptr); }

// Completes the move that leave() has begun. After rebind() a function that was posted to the new
// loop completes the move instead.
bool Connection::join(ae::EventLoop& loop) {
  ConnectionCore& c = ConnectionCore::of(*this);
  if (c.given_up() || !c.moves() || c.loop_ != nullptr) {
    errno = EINVAL;
    return false;
  }
  const bool was_open = c.state_ != State::kError;
  c.arrive(loop);
  if (c.loop_ != nullptr && (!was_open || c.state_ != State::kError)) return true;
  errno = was_open ? errno_of(c.failure_) : ENOMEM;
  return false;
}

bool ConnectionCore::move(ae::EventLoop* to) {
  if (!carrier_->type().capabilities().rebind && !carrier_->can_move()) {
    errno = EOPNOTSUPP;
    return false;
  }
  if (given_up() || abandoned_ || loop_ == nullptr) {
    errno = ENOTCONN;
    return false;
  }
  if (to == loop_) return true;
  // A connection does not move while one of its handlers runs, because the new loop's thread must
  // not use the slot that contains the handler; nor while a connect handler is due, because that
  // has to run before the other handlers.
  if (state_ == State::kConnecting || state_ == State::kAccepting || running_ != 0 || moves() ||
      reserved_ != 0 || connect_due()) {
    errno = EBUSY;
    return false;
  }
  // Nor does it move inside a release function of its output: the function that has called it still
  // uses the InPlace object, which would belong to the new loop.
  if (in_place_ != nullptr &&
      (in_place_->busy() || !in_place_->flush() || !in_place_->output().all_reported())) {
    errno = EAGAIN;
    return false;
  }
  try {
    (void)rare();
    const auto moving = std::make_shared<Moving>();
    const std::lock_guard leaving(moving->leaving);
    if (to != nullptr) {
      to->post([moving, to] {
        const std::lock_guard left(moving->leaving);
        if (moving->connection != nullptr) moving->connection->arrive(*to);
      });
    }
    if (!carrier_->leave(to)) return false;  // on failure the posted function moves nothing
    leave_set();
    if (in_place_ != nullptr) in_place_->leave_loop();
    loop_ = to;
    rare_->moving = moving;
    moving->connection = this;
  } catch (const std::bad_alloc&) {
    errno = ENOMEM;
    return false;
  }
  return true;
}

void ConnectionCore::arrive(ae::EventLoop& loop) noexcept {
  // The function that move() posted may still run: it then finds no connection to move.
  rare_->moving->connection = nullptr;
  // A posted function uses the Moving object after arrive() has returned, and so owns a reference
  // of its own. join(), the other caller of arrive(), does not use the object.
  rare_->moving.reset();
  enter_loop(loop);
  try {
    set_ = &ConnectionSet::of(loop);
    // The connection is counted as served first: if one of the next calls throws, the catch block
    // below calls abandon(), which decreases that count.
    if (served_) set_->enter_served();
    if (in_place_ != nullptr) in_place_->arrive(set_->in_place(loop));
    if (close_watch_ || (rare_ && rare_->path)) (void)set_->ready(loop);
    set_->add(*this);  // only the thread of this loop may use the set
  } catch (const std::bad_alloc&) {
    if (!given_up()) fail(out_of_memory());
    abandon();  // the connection is in no set, so the end of the loop would not find it
    return;
  }
  queue_close();
  if (rare_ && rare_->path && take_waiting(*rare_->path)) path_changed();
  try {
    enter_counters(loop);
  } catch (const std::bad_alloc&) {
    if (!given_up()) fail(out_of_memory());
  }
  // This comes before carrier_->interest_changed(), which needs the Carrier on its new loop.
  if (!carrier_->join(loop) && !given_up()) fail(out_of_memory());
  follow_idle(*this);
  if (events_wanted()) watch_or_fail();
}

}}  // namespace conn
