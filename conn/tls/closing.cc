// SPDX-License-Identifier: BSD-3-Clause
#include "conn/tls/closing.h"

#include <cassert>
#include <cerrno>

namespace conn { inline namespace AECONN_ABI { namespace tls {

void Closing::move_to(State next) noexcept {
  assert(allowed(state_, next));
  state_ = next;
}

bool Closing::end_reading() noexcept {
  if (state_ == State::kOpen) {
    move_to(State::kReadEnded);
  } else if (state_ == State::kWriteEnded) {
    move_to(State::kBothEnded);
  }
  return write_ended();
}

bool Closing::end_writing() {
  if (!write_ended()) {
    move_to(state_ == State::kReadEnded ? State::kBothEnded : State::kWriteEnded);
    session_.engine().close_notify();
  }
  return read_ended();
}

void Closing::end_below_too() {
  if (state_ == State::kWriteEnded || state_ == State::kBothEnded) move_to(State::kEndsBelow);
  (void)session_.engine().flush();
  output_left();
}

void Closing::end_below() {
  if (session_.engine().output().unsent() > 0) return;
  move_to(State::kBelowEnded);
  session_.below().shutdown_both();
}

bool Closing::begin(bool established) {
  if (!session_.begun()) return false;
  Engine& engine = session_.engine();
  if (established && !write_ended()) engine.close_notify();
  if (engine.wire_failed() || engine.flush()) return false;
  if (session_.settings().linger <= ae::Duration::zero()) return false;
  move_to(State::kLingering);
  return true;
}

void Closing::linger(ae::EventLoop& loop, CarrierHost& host) {
  timer_ = loop.add_time_event(session_.settings().linger, [this, &host] {
    timer_ = 0;
    finish(host);
    return ae::kNoMore;
  });
}

ae::Mask Closing::wanted() const noexcept {
  ae::Mask wanted = ae::kNone;
  if (session_.engine().wire_failed()) return wanted;
  if (state_ == State::kLingering) wanted = wanted | ae::kReadable;
  if (session_.engine().output().unsent() > 0) wanted = wanted | ae::kWritable;
  return wanted;
}

bool Closing::discard(std::array<char, Engine::kRecord>& scratch) {
  for (int i = 0; i < 16; ++i) {
    const ssize_t n = session_.below().receive(scratch.data(), scratch.size());
    if (n > 0) continue;
    if (n < 0 && errno == EAGAIN) return false;
    // no more input can arrive: the peer has ended the stream, or an error occurred that the next
    // flush() reports
    move_to(State::kDeaf);
    return true;
  }
  return false;
}

void Closing::finish(CarrierHost& host) noexcept {
  leave(host.loop());
  move_to(State::kClosed);
  Below& below = session_.below();
  // After its close_notify the peer sends nothing more. So no input can provoke a reset, and the
  // connection below TLS can be closed without waiting for the peer.
  if (below.open() != nullptr && session_.begun() && session_.engine().progress().ended())
    below.carrier().expect_no_more();
  session_.drop_engine();
  below.close(host.aborts());
  if (!below.exists()) host.release();
}

void Closing::leave(ae::EventLoop* loop) noexcept {
  if (timer_ != 0) loop->remove_time_event(timer_);
  timer_ = 0;
}

}}}  // namespace conn::tls
