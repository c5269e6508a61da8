#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Expressions that coroutines must not await, read into or write from: the compiler must give one
# clear error for each.
set -u
# shellcheck source=tests/scripts/kit
. "$(dirname "$0")/kit"
cat >"$work/refused.cc" <<'END'
#include <string>
#include <vector>
#include "conn/co.h"
namespace co = conn::co;
struct Trivial {
  bool await_ready();
  void await_suspend(std::coroutine_handle<>);
  int await_resume();
};
struct OfAPromise {
  ~OfAPromise();
  bool await_ready();
  void await_suspend(std::coroutine_handle<int>);
  int await_resume();
};
co::Task<int> task();
co::Task<> use(co::Stream& peer, co::Task<int>& named) {
  int number = co_await named;
  number = co_await Trivial();
  number = co_await OfAPromise();
  number = co_await std::string("text");
  const std::string constant;
  co::Result result = co_await peer.read(constant);
  result = co_await peer.read_exactly(std::vector<char>(8));
  std::vector<int> numbers;
  result = co_await peer.write(numbers);
  result = co_await peer.write(number);
  co_await co::first(task(), named);
}
END
${CXX:-g++} -std=c++20 -I. -Wall -Wextra -fsyntax-only "$work/refused.cc" >"$work/said" 2>&1
is 'it is refused' 1 $?
says() { is "$1: said once for each" "$2" "$(grep -E 'error: ' "$work/said" | grep -cF "$3")"; }
says 'a task that has a name' 1 'a Task is awaited once: co_await std::move(task)'
says 'a destructor that does nothing' 1 "the awaiter's destructor must end the wait"
says 'no awaitable' 2 'this has no await_ready(), await_suspend() of a std::coroutine_handle<>'
says 'no room to read into' 2 'read() takes room in one piece that outlives the call'
says 'no bytes to write' 2 'write() takes bytes in one piece'
says 'a task that has a name, in first()' 1 'deleted function'
is 'and nothing else' 9 "$(grep -cE 'error: ' "$work/said")"
total
