// SPDX-License-Identifier: BSD-3-Clause
#include "conn/tls/loop_state.h"

#include <utility>

namespace conn { inline namespace AECONN_ABI { namespace tls {
namespace {

using namespace std::chrono_literals;

constexpr ae::Duration kStepsTime = 1ms;  // time that handshakes may take in each loop iteration
// A connection's buffers are released once it was neither read nor written for this long.
constexpr ae::Duration kIdleAfter = 1s;
// A sweep (search for connections whose buffers can be released) looks at no more than this many
// connections in one iteration: releasing the buffers of one takes one to two microseconds.
constexpr int kSweptAtOnce = 256;

}  // namespace

LoopState& LoopState::of(const ConnectionType& type, ae::EventLoop& loop) {
  // Creates the ConnectionSet before the LoopState, so that it is destroyed after the LoopState.
  ConnectionSet& set = ConnectionSet::of(loop);
  std::unique_ptr<ae::LoopLocal>& slot = loop.local(&type);
  if (!slot) slot = std::make_unique<LoopState>(type, loop, set);
  return static_cast<LoopState&>(*slot);
}

LoopState* LoopState::find(const ConnectionType& type, ae::EventLoop& loop) {
  return static_cast<LoopState*>(loop.local(&type).get());
}

LoopState::LoopState(const ConnectionType& type, ae::EventLoop& loop, ConnectionSet& set)
    : type_(type), loop_(loop), set_(set) {
  loop_.add_source(*this);
}

LoopState::~LoopState() {
  set_.loop_ends();
  set_.abandon(type_);
  if (sweeper_ != 0) loop_.remove_time_event(sweeper_);
  loop_.remove_source(*this);
}

std::size_t LoopState::process_pending() {
  steps_end_ = {};
  const std::size_t stepped = steps_.process_pending();
  return stepped + ready_.process_pending();
}

bool LoopState::another_step() noexcept {
  const ae::TimePoint now = std::chrono::steady_clock::now();
  if (steps_end_ == ae::TimePoint{}) {
    steps_end_ = now + kStepsTime;
    // So the next iteration calls process_pending(), which ends this period for handshake steps.
    wake();
  }
  return now < steps_end_;
}

void LoopState::start_sweeping(Warm& connection) noexcept {
  try {
    if (sweeper_ == 0) sweeper_ = loop_.add_time_event(kIdleAfter, [this] { return sweep(); });
  } catch (const std::bad_alloc&) {
    return;  // if there is no memory for the timer, the next use of the connection tries again
  }
  connection.link_before(warm_);
}

/// Releases the buffers of connections that were not in use since the last sweep, and takes these
/// connections off the list of recently used ones. So a sweep visits only connections that were in
/// use since the last sweep or the one before it. Goes on in the next iteration if there are many.
/// Returns the time until the next call.
ae::Duration LoopState::sweep() {
  if (!swept_.linked()) swept_.link_before(warm_);
  for (int seen = 0; warm_.next() != &swept_; ++seen) {
    if (seen == kSweptAtOnce) return ae::Duration::zero();
    Warm& one = *warm_.next();
    one.unlink();
    if (std::exchange(one.in_use, false)) {
      one.link_before(warm_);
    } else {
      one.cool();
    }
  }
  swept_.unlink();
  if (warm_.linked()) return kIdleAfter;
  sweeper_ = 0;
  return ae::kNoMore;
}

}}}  // namespace conn::tls
