// SPDX-License-Identifier: BSD-3-Clause
// An echo server on the io_context that a program has already, with asio's own coroutines: a
// connection is a stream of asio's, whatever carries it. Standalone asio; for Boost's define
// AECONN_BOOST_ASIO. SIGTERM ends it, by a signal_set of the program.
//
//   ./on_asio tcp://127.0.0.1:7000
#include <array>
#include <asio.hpp>
#include <csignal>
#include <iostream>
#include <utility>

#include "adapters/asio.h"
#include "adapters/asio_loop.h"
#include "conn/transports/transports.h"

namespace aio = adapters::asio;

/// The peer's end and its errors are exceptions here; they end this coroutine and nothing else.
asio::awaitable<void> echo(aio::Stream peer) {
  std::array<char, 16 * 1024> buffer;
  for (;;) {
    const std::size_t size =
        co_await peer.async_read_some(asio::buffer(buffer), asio::use_awaitable);
    co_await asio::async_write(peer, asio::buffer(buffer, size), asio::use_awaitable);
  }
}

asio::awaitable<void> accept(aio::Acceptor& acceptor) {
  const auto executor = co_await asio::this_coro::executor;
  for (;;) {
    aio::Stream peer = co_await acceptor.async_accept(asio::use_awaitable);
    asio::co_spawn(executor, echo(std::move(peer)), asio::detached);
  }
}

int main(int argc, char** argv) try {
  if (argc != 2) throw std::runtime_error("usage: on_asio URL");
  const conn::Registry registry = conn::all_transports();  // it outlives the loop
  ae::EpollLoop loop;                                      // it outlives the context
  asio::io_context host;                                   // of the program, on one thread
  asio::signal_set ends(host, SIGTERM);
  ends.async_wait([&](const asio::error_code&, int) { host.stop(); });

  const adapters::asio::Attachment attached(loop, host.get_executor());
  aio::Acceptor acceptor(host.get_executor(), registry, loop, argv[1]);
  for (const auto& at : acceptor.endpoints()) std::cout << at.to_string() << std::endl;
  asio::co_spawn(host, accept(acceptor), asio::detached);
  host.run();  // what a handler of ours throws comes out here
} catch (const std::exception& error) {
  std::cerr << error.what() << '\n';
  return 1;
}
