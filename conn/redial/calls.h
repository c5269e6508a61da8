// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// How the event loop calls a Redial, and how a Redial calls the program's handlers.

#include <exception>
#include <memory>
#include <new>
#include <utility>

#include "ae/abi.h"
#include "conn/redial.h"

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

}}  // namespace conn
