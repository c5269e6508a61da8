// Echo server on every URL of its command line: docs/echo_server.cc, with coroutines.
#include <array>
#include <chrono>
#include <iostream>
#include <list>
#include <utility>

#include "ae/libev_loop.h"
#include "conn/co.h"
#include "conn/transports/transports.h"

namespace co = conn::co;
using namespace std::chrono_literals;

co::Task<> echo(co::Stream peer) {
  std::array<char, 16 * 1024> buffer;
  while (const co::Result got = co_await peer.read(buffer, 60s)) {  // a silent peer is disconnected
    if (!co_await peer.write({buffer.data(), got.size})) co_return;
  }
}

co::Task<> accept(co::Acceptor& from, co::Scope& sessions) {
  while (co::Stream peer = co_await from.next()) sessions.spawn(echo(std::move(peer)));
}

int main(int argc, char** argv) try {
  if (argc < 2) throw conn::Error("name the URLs to listen on, such as tcp://127.0.0.1:7000");
  const conn::Registry registry = conn::all_transports();  // must outlive the loop
  ae::LibevLoop loop;
  std::list<co::Acceptor> acceptors;
  co::Scope scope;  // declared after all that its tasks use: destroyed first
  for (int i = 1; i < argc; ++i) {
    acceptors.emplace_back(registry, loop, argv[i]);
    for (const auto& at : acceptors.back().listener().endpoints())
      std::cout << at.to_string() << std::endl;
    scope.spawn(accept(acceptors.back(), scope));
  }
  loop.run();
} catch (const std::exception& error) {
  std::cerr << error.what() << '\n';
  return 1;
}
