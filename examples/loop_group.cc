// SPDX-License-Identifier: BSD-3-Clause
// An echo server on several loops that share one port, each on a thread of its own. A connection
// stays on the loop that it was assigned to. SIGTERM or SIGINT ends the server gracefully; it then
// prints the number of connections that each loop had.
//
//   ./loop_group tcp://127.0.0.1:7000 4
#include <array>
#include <chrono>
#include <iostream>
#include <memory>
#include <string>
#include <utility>

#include "ae/loop_group.h"
#include "conn/co.h"
#include "conn/listener_group.h"
#include "conn/stop.h"
#include "conn/transports/transports.h"

namespace co = conn::co;
using namespace std::chrono_literals;

co::Task<> echo(co::Stream peer) {
  std::array<char, 16 * 1024> buffer;
  while (co_await peer.next_request(60s)) {  // false also when the server stops
    const co::Result got = co_await peer.read(buffer);
    if (!co_await peer.write({buffer.data(), got.size}, 60s)) co_return;
  }
}

/// The sessions of one loop, used and destroyed on its thread.
struct Worker {
  explicit Worker(std::size_t its_index) : index(its_index) {}
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;
  ~Worker() {
    std::cout << "loop " + std::to_string(index) + ": " + std::to_string(count) + " connections\n";
  }
  const std::size_t index;
  std::size_t count = 0;
  co::Scope sessions;
};

/// Called once per loop, on its thread.
conn::AcceptHandler serve(ae::EventLoop&, std::size_t index) {
  return [worker = std::make_shared<Worker>(index)](conn::ConnectionPtr peer) {
    ++worker->count;
    worker->sessions.spawn(echo(std::move(peer)));
  };
}

int main(int argc, char** argv) try {
  if (argc != 3) throw std::runtime_error("usage: loop_group URL LOOPS");
  const conn::Registry registry = conn::all_transports();  // must outlive the loops
  ae::LoopGroup loops({.loops = std::stoul(argv[2])});
  conn::Stop stop(loops);
  // keep(): sessions outlive the listener, which the stop destroys first.
  auto listener = conn::listen(registry, loops, argv[1], stop.keep(serve));
  for (const auto& at : listener->endpoints()) std::cout << at.to_string() << std::endl;
  stop.add(std::move(listener));
  loops.run();  // runs until the stop has ended; rethrows exceptions of handlers
} catch (const std::exception& error) {
  std::cerr << error.what() << '\n';
  return 1;
}
