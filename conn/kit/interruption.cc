// SPDX-License-Identifier: BSD-3-Clause
#include "conn/kit/interruption.h"

namespace conn { inline namespace AECONN_ABI {
namespace {

struct BlockingCalls {
  Interruption::Ask ask = nullptr;
  void* context = nullptr;
  int depth = 0;  // number of blocking calls of this thread that are nested in each other
  bool ends = false;
};
thread_local BlockingCalls blocking_calls;

}  // namespace

void Interruption::ask(Ask ask, void* context) noexcept {
  blocking_calls.ask = ask;
  blocking_calls.context = context;
}

Interruption::Scope::Scope() noexcept {
  if (blocking_calls.depth++ == 0) blocking_calls.ends = false;
}
Interruption::Scope::~Scope() {
  if (--blocking_calls.depth == 0) blocking_calls.ends = false;
}

bool Interruption::came() noexcept {
  if (!blocking_calls.ends && blocking_calls.depth != 0 && blocking_calls.ask != nullptr)
    blocking_calls.ends = blocking_calls.ask(blocking_calls.context) != 0;
  return blocking_calls.ends;
}

bool Interruption::ends() noexcept { return blocking_calls.ends; }

}}  // namespace conn
