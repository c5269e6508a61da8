// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// One attempt of a Redial to connect; how the event loop calls a Redial and its attempts, and how
// these call the program's handlers.

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

/// Runs `step`. Every call that the event loop makes into this object goes through here. An
/// exception from the program's handlers is rethrown at the end; if memory runs out in the
/// library's own code, recover() restarts that work. This object may have been destroyed when the
/// call returns.
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

/// Calls a handler of the program and keeps its exception for enter(). Returns false if the handler
/// destroyed or stopped this object.
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

/// Returns why `connection` has ended; `otherwise`: the text if it has no error.
Failure failure_of(const Connection& connection, const char* otherwise) noexcept;

/// It waits until the DialLimit grants a place, connects, and proves the connection with the
/// program's probe; it ends with a proven connection or a failure. Destroying it closes its
/// connection.
class Redial::Attempt {
 public:
  /// Receives the proven connection, or why there is none; also the schemes of a list that were
  /// skipped. Called once, by the loop; the attempt does not use itself afterwards, so that it may
  /// be destroyed.
  using Done = std::function<void(ConnectionPtr, Failure, std::vector<Skipped>)>;
  /// Whether the attempt tries all schemes of a list, or only the first.
  enum class Which : bool { kAny, kPreferred };

  /// `owner` must outlive the attempt. Throws std::bad_alloc.
  Attempt(Redial& owner, Which which, Done done);
  ~Attempt() { *alive_ = false; }
  Attempt(const Attempt&) = delete;
  Attempt& operator=(const Attempt&) = delete;

  /// Begins the attempt; to be called once. The program's handlers that this runs may destroy it.
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
  bool begun_ = false;  // whether dial() was called
  const FallbackType* list_ = nullptr;
  std::unique_ptr<Dial> dial_;
  ConnectionPtr connection_;
  std::vector<Skipped> skipped_;
  // Limits the probe. While the attempt waits for a place of the DialLimit, looks whether it was
  // granted.
  OneShotTimer timer_;
  // The failure to report when timer_ expires; empty while the attempt waits for a place.
  Failure end_;
};

}}  // namespace conn
