// SPDX-License-Identifier: BSD-3-Clause
// A server that ends without losing a request. On SIGTERM it stops accepting, answers what has been
// sent to it, lets connections go that have fallen silent, and ends with status 0 when there are no
// more, or after a deadline. A request is whatever arrives together; the answer is the same bytes,
// after some work.
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

constexpr auto kWork = 20ms;      // what an answer takes: a query, say
constexpr auto kSilence = 200ms;  // after SIGTERM: a peer that sends nothing for so long is let go
constexpr auto kDeadline = 10s;   // after SIGTERM: the end, whatever is under way

co::Task<> session(co::Stream peer, ae::EventLoop& loop, co::Event& stopping,
                   co::WaitGroup::Member) {
  std::array<char, 16 * 1024> request;
  for (;;) {
    // A request, the peer's end, or the stop. peek() reads nothing, so nothing can be lost.
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
  acceptor.reset();                                // nobody new
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

  const conn::Registry registry = conn::all_transports();  // it outlives the loop
  ae::LibevLoop loop;
  co::Event stopping(loop);
  co::WaitGroup open(loop);
  loop.add_file_event(signals, ae::kReadable, [&](int fd, ae::Mask) {
    loop.remove_file_event(fd, ae::kReadable);
    stopping.set();
  });
  auto acceptor = std::make_unique<co::Acceptor>(registry, loop, argv[1]);
  for (const auto& at : acceptor->listener().endpoints()) std::cout << at.to_string() << std::endl;
  co::Scope scope;  // after all that its tasks use: it goes first
  scope.spawn(accept(*acceptor, loop, scope, stopping, open));
  scope.spawn(stop(acceptor, loop, stopping, open));
  loop.run();
} catch (const std::exception& error) {
  std::cerr << error.what() << '\n';
  return 1;
}
