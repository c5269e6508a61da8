// SPDX-License-Identifier: BSD-3-Clause
// An echo server on a program's existing io_context, with asio's own coroutines: a connection is an
// asio stream, whatever its transport. For standalone asio; for Boost.Asio define
// AECONN_BOOST_ASIO. SIGTERM, through a signal_set of the program, stops it: it accepts nobody, and
// ends when its peers have closed, or after a second. asio's coroutines do not learn of the stop.
//
//   ./on_asio tcp://127.0.0.1:7000
#include <array>
#include <asio.hpp>
#include <chrono>
#include <csignal>
#include <iostream>
#include <utility>

#include "adapters/asio.h"
#include "adapters/asio_loop.h"
#include "conn/stop.h"
#include "conn/transports/transports.h"

namespace aio = adapters::asio;

/// End of stream and errors are exceptions here; they end only this coroutine.
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
  const conn::Registry registry = conn::all_transports();  // must outlive the loop
  ae::EpollLoop loop;                                      // must outlive the context
  asio::io_context host;                                   // the program's, on one thread

  const adapters::asio::Attachment attached(loop, host.get_executor());
  conn::Stop stop(loop,
                  {.limit = std::chrono::seconds(1), .signals = {}, .ends = [&] { host.stop(); }});
  asio::signal_set ends(host, SIGTERM);
  ends.async_wait([&](const asio::error_code&, int) { stop.request(); });
  aio::Acceptor acceptor(host.get_executor(), registry, loop, argv[1]);
  for (const auto& at : acceptor.endpoints()) std::cout << at.to_string() << std::endl;
  const conn::StopHook closes(loop, [&] { acceptor.close(); });
  asio::co_spawn(host, accept(acceptor), asio::detached);
  host.run();  // rethrows exceptions of our handlers
  return stop.status();
} catch (const std::exception& error) {
  std::cerr << error.what() << '\n';
  return 1;
}
