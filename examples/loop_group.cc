// SPDX-License-Identifier: BSD-3-Clause
// An echo server on several loops that share one port, each on a thread of its own. A connection
// stays on the loop that it was assigned to. SIGTERM or SIGINT ends the server; it then prints the
// number of connections of each loop.
//
//   ./loop_group tcp://127.0.0.1:7000 4
#include <sys/signalfd.h>

#include <array>
#include <chrono>
#include <csignal>
#include <iostream>
#include <memory>
#include <string>
#include <utility>

#include "ae/loop_group.h"
#include "conn/co.h"
#include "conn/listener_group.h"
#include "conn/transports/transports.h"

namespace co = conn::co;
using namespace std::chrono_literals;

co::Task<> echo(co::Stream peer) {
  std::array<char, 16 * 1024> buffer;
  while (const co::Result got = co_await peer.read(buffer, 60s)) {
    if (!co_await peer.write({buffer.data(), got.size}, 60s)) co_return;
  }
}

/// Called once per loop, on its thread. The handler's state is used and destroyed on that thread.
conn::AcceptHandler serve(ae::EventLoop&, std::size_t) {
  return [sessions = std::make_shared<co::Scope>()](conn::ConnectionPtr peer) {
    sessions->spawn(echo(std::move(peer)));
  };
}

int main(int argc, char** argv) try {
  if (argc != 3) throw std::runtime_error("usage: loop_group URL LOOPS");
  sigset_t ends;
  sigemptyset(&ends);
  sigaddset(&ends, SIGTERM);
  sigaddset(&ends, SIGINT);
  sigprocmask(SIG_BLOCK, &ends, nullptr);
  const int signals = signalfd(-1, &ends, SFD_NONBLOCK | SFD_CLOEXEC);

  const conn::Registry registry = conn::all_transports();  // must outlive the loops
  ae::LoopGroup loops({.loops = std::stoul(argv[2])});
  const auto listener = conn::listen(registry, loops, argv[1], serve);
  loops.on_each([&](ae::EventLoop& loop, std::size_t index) {
    if (index == 0)  // one loop watches the signals
      loop.add_file_event(signals, ae::kReadable, [&](int, ae::Mask) { loops.stop(); });
  });
  for (const auto& at : listener->endpoints()) std::cout << at.to_string() << std::endl;
  loops.run();  // runs until stop(); rethrows exceptions of handlers
  const auto shares = listener->shares();
  for (std::size_t i = 0; i < shares.size(); ++i)
    std::cout << "loop " << i << ": " << shares[i].assigned << " connections\n";
} catch (const std::exception& error) {
  std::cerr << error.what() << '\n';
  return 1;
}
