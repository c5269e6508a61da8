// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Redial::Attempt: one attempt of a Redial (a client connection that is opened again when it is
// lost) to connect. Also the functions through which the event loop calls a Redial and its attempts
// (enter()), and through which these call the program's handlers (tell()).

#include <exception>
#include <functional>
#include <memory>
#include <new>
#include <utility>
#include <vector>

#include "ae/abi.h"
#include "conn/lists/dial.h"
#include "conn/redial.h"
#include "conn/redial/one_shot_timer.h"

namespace conn { inline namespace AECONN_ABI {

/// Runs `step`. Every call of the event loop into this object or its attempts goes through this
/// function. An exception from the program's handlers is rethrown at the end; if memory runs out in
/// the library's own code, recover() schedules that work again. This object may have been destroyed
/// when the call returns.
template <class Step>
void Redial::enter(Step step) {
  const std::shared_ptr<Life> life = life_;
  ++life->steps;
  try {
    step();
  } catch (const std::bad_alloc&) {
    if (life->alive) recover();
  }
  if (--life->steps == 0 && life->thrown)
    std::rethrow_exception(std::exchange(life->thrown, nullptr));
}

/// Calls a handler of the program. If the handler throws, stores the exception, which enter()
/// rethrows. Returns false if the handler destroyed or stopped this object.
template <class Call>
bool Redial::tell(Call call) {
  const std::shared_ptr<Life> life = life_;
  const std::shared_ptr<const Handlers> handlers = handlers_;
  try {
    call(*handlers);
  } catch (...) {
    if (!life->thrown) life->thrown = std::current_exception();
  }
  return life->alive && phase_ != Phase::kStopped;
}

/// Returns the reason why `connection` has ended. `otherwise`: the text to use if the connection
/// has no error.
Failure failure_of(const Connection& connection, const char* otherwise) noexcept;

/// One attempt to connect. Waits until the DialLimit permits it, connects, and tests the new
/// connection with the program's probe (Handlers::prove). Ends with a connection that passed the
/// probe, or with a failure. Destroying an attempt closes its connection.
class Redial::Attempt {
 public:
  /// Receives the connection that passed the probe, or null and the reason of the failure; also the
  /// schemes of a list that were skipped. Called once, from the loop. The function may destroy the
  /// attempt.
  using Done = std::function<void(ConnectionPtr, Failure, std::vector<Skipped>)>;
  /// Says whether the attempt tries all schemes of a list, or only the first.
  enum class Which : bool { kAny, kPreferred };

  /// Makes an attempt, which start() begins; `done` gets its result. `owner` must outlive the
  /// attempt. Throws std::bad_alloc.
  Attempt(Redial& owner, Which which, Done done);
  ~Attempt() { *alive_ = false; }
  Attempt(const Attempt&) = delete;
  Attempt& operator=(const Attempt&) = delete;

  /// Begins the attempt; to be called once. Handlers of the program that run inside this call may
  /// destroy the attempt.
  void start();

 private:
  bool show(Phase phase);
  void dial();
  void dialled(ConnectionPtr connection);
  void prove();
  void on_timer();
  void finish(Failure why);

  Redial& owner_;
  const Which which_;
  Done done_;
  const std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
  DialLimit::PlacePtr place_;
  bool begun_ = false;  // true if dial() was called
  const FallbackType* list_ = nullptr;
  std::unique_ptr<Dial> dial_;
  ConnectionPtr connection_;
  std::vector<Skipped> skipped_;
  // Time-out of the probe. While the attempt waits in the DialLimit's queue, expires every 50 ms to
  // check whether the attempt may connect now.
  OneShotTimer timer_;
  // The failure to report when the timer expires; empty while the attempt waits in the DialLimit's
  // queue.
  Failure end_;
};

}}  // namespace conn
