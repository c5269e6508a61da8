// SPDX-License-Identifier: BSD-3-Clause
// A server that stops without losing a request. On SIGTERM or SIGINT it stops accepting, answers
// requests already sent to it, and exits with status 0 when no connection is left. After a
// deadline, or at a second signal, it cuts those that are left and exits with status 1. A request
// is any data that arrives together; the answer is the same data, after some work.
//
//   ./graceful_stop tcp://127.0.0.1:7000
#include <array>
#include <chrono>
#include <iostream>
#include <utility>

#include "ae/libev_loop.h"
#include "conn/co.h"
#include "conn/stop.h"
#include "conn/transports/transports.h"

namespace co = conn::co;
using namespace std::chrono_literals;

constexpr auto kWork = 20ms;     // duration of the work for an answer, such as a query
constexpr auto kDeadline = 10s;  // after the signal: exit, even with requests in progress

co::Task<> session(co::Stream peer, ae::EventLoop& loop) {
  std::array<char, 16 * 1024> request;
  while (co_await peer.next_request()) {  // false at the end of the stream, and after a signal
    const co::Result got = co_await peer.read(request);
    co_await co::sleep(loop, kWork);
    if (!co_await peer.write({request.data(), got.size}, 60s)) co_return;
  }
}

co::Task<> accept(co::Acceptor& from, ae::EventLoop& loop, co::Scope& sessions) {
  while (co::Stream peer = co_await from.next()) sessions.spawn(session(std::move(peer), loop));
}

int main(int argc, char** argv) try {
  if (argc != 2) throw std::runtime_error("usage: graceful_stop URL");
  const conn::Registry registry = conn::all_transports();  // must outlive the loop
  ae::LibevLoop loop;
  conn::Stop stop(loop, {.limit = kDeadline});
  co::Acceptor acceptor(registry, loop, argv[1]);
  for (const auto& at : acceptor.listener().endpoints()) std::cout << at.to_string() << std::endl;
  co::Scope scope;  // declared after all that its tasks use: destroyed first
  scope.spawn(accept(acceptor, loop, scope));
  loop.run();
  if (const auto left = stop.left(); left.connections != 0)
    std::cerr << left.connections << " connections are cut, with " << left.bytes << " bytes unsent"
              << std::endl;
  return stop.status();
} catch (const std::exception& error) {
  std::cerr << error.what() << '\n';
  return 1;
}
