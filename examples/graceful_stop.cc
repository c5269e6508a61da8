// SPDX-License-Identifier: BSD-3-Clause
// A server that stops without losing a request. On SIGTERM it stops accepting, answers requests
// already sent to it, closes connections that have become silent, and exits with status 0 when none
// are left, or after a deadline. A request is any data that arrives together; the answer is the
// same data, after some work.
//
//   ./graceful_stop tcp://127.0.0.1:7000
#include <sys/signalfd.h>

#include <array>
#include <chrono>
#include <csignal>
#include <iostream>
#include <memory>
#include <utility>

#include "ae/libev_loop.h"
#include "conn/co.h"
#include "conn/transports/transports.h"

namespace co = conn::co;
using namespace std::chrono_literals;

constexpr auto kWork = 20ms;      // duration of the work for an answer, such as a query
constexpr auto kSilence = 200ms;  // after SIGTERM: a peer that is silent this long is disconnected
constexpr auto kDeadline = 10s;   // after SIGTERM: exit, even with requests in progress

co::Task<> session(co::Stream peer, ae::EventLoop& loop, co::Event& stopping,
                   co::WaitGroup::Member) {
  std::array<char, 16 * 1024> request;
  for (;;) {
    // Waits for a request, end of stream, or the stop. peek() consumes nothing, so nothing is lost.
    (void)co_await co::first(peer.peek(), stopping.wait());
    const co::Result got = co_await peer.read(request, kSilence);
    if (!got) co_return;
    co_await co::sleep(loop, kWork);
    if (!co_await peer.write({request.data(), got.size}, 60s)) co_return;
  }
}

co::Task<> accept(co::Acceptor& from, ae::EventLoop& loop, co::Scope& sessions, co::Event& stopping,
                  co::WaitGroup& open) {
  while (co::Stream peer = co_await from.next())
    sessions.spawn(session(std::move(peer), loop, stopping, open.join()));
}

co::Task<> stop(std::unique_ptr<co::Acceptor>& acceptor, ae::EventLoop& loop, co::Event& stopping,
                co::WaitGroup& open) {
  (void)co_await stopping.wait();
  acceptor.reset();                                // no new connections
  const bool all = co_await open.wait(kDeadline);  // a variable: see docs/coroutines.md, Compilers
  if (!all) std::cerr << open.size() << " connections are cut: the deadline is over" << std::endl;
  loop.stop();
}

int main(int argc, char** argv) try {
  if (argc != 2) throw std::runtime_error("usage: graceful_stop URL");
  sigset_t ends;
  sigemptyset(&ends);
  sigaddset(&ends, SIGTERM);
  sigprocmask(SIG_BLOCK, &ends, nullptr);
  const int signals = signalfd(-1, &ends, SFD_NONBLOCK | SFD_CLOEXEC);

  const conn::Registry registry = conn::all_transports();  // must outlive the loop
  ae::LibevLoop loop;
  co::Event stopping(loop);
  co::WaitGroup open(loop);
  loop.add_file_event(signals, ae::kReadable, [&](int fd, ae::Mask) {
    loop.remove_file_event(fd, ae::kReadable);
    stopping.set();
  });
  auto acceptor = std::make_unique<co::Acceptor>(registry, loop, argv[1]);
  for (const auto& at : acceptor->listener().endpoints()) std::cout << at.to_string() << std::endl;
  co::Scope scope;  // declared after all that its tasks use: destroyed first
  scope.spawn(accept(*acceptor, loop, scope, stopping, open));
  scope.spawn(stop(acceptor, loop, stopping, open));
  loop.run();
} catch (const std::exception& error) {
  std::cerr << error.what() << '\n';
  return 1;
}
