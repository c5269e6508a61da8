// SPDX-License-Identifier: BSD-3-Clause
#include "conn/kit/interruption.h"

namespace conn { inline namespace AECONN_ABI {
namespace {

struct State {
  Interruption::Ask ask = nullptr;
  void* context = nullptr;
  int depth = 0;  // number of blocking calls of this thread that are nested in each other
  bool ends = false;
};
thread_local State state;

}  // namespace

void Interruption::ask(Ask ask, void* context) noexcept {
  state.ask = ask;
  state.context = context;
}

Interruption::Scope::Scope() noexcept {
  if (state.depth++ == 0) state.ends = false;
}
Interruption::Scope::~Scope() {
  if (--state.depth == 0) state.ends = false;
}

bool Interruption::came() noexcept {
  if (!state.ends && state.depth != 0 && state.ask != nullptr)
    state.ends = state.ask(state.context) != 0;
  return state.ends;
}

bool Interruption::ends() noexcept { return state.ends; }

}}  // namespace conn
