// SPDX-License-Identifier: BSD-3-Clause
// An echo server on a program's existing libuv loop. The program's own handles remain unchanged:
// here a uv_signal_t, which begins a graceful stop on SIGTERM.
//
//   g++ ... on_libuv.cc ... -luv
//   ./on_libuv tcp://127.0.0.1:7000
#include <uv.h>

#include <array>
#include <chrono>
#include <csignal>
#include <exception>
#include <iostream>
#include <utility>

#include "adapters/libuv.h"
#include "conn/co.h"
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

co::Task<> accept(co::Acceptor& from, co::Scope& sessions) {
  while (co::Stream peer = co_await from.next()) sessions.spawn(echo(std::move(peer)));
}

int main(int argc, char** argv) try {
  if (argc != 2) throw std::runtime_error("usage: on_libuv URL");
  uv_loop_t* const host = uv_default_loop();
  const conn::Registry registry = conn::all_transports();  // must outlive the loop
  ae::EpollLoop loop;
  std::exception_ptr thrown;  // exceptions of handlers cannot propagate through C code
  const adapters::libuv::Attachment attached(loop, host, [&](std::exception_ptr what) {
    thrown = std::move(what);
    uv_stop(host);
  });
  conn::Stop stop(loop, {.signals = {}, .ends = [&] { uv_stop(host); }});
  uv_signal_t ends;  // the program's
  uv_signal_init(host, &ends);
  ends.data = &stop;
  uv_signal_start(
      &ends, [](uv_signal_t* handle, int) { static_cast<conn::Stop*>(handle->data)->request(); },
      SIGTERM);
  co::Acceptor acceptor(registry, loop, argv[1]);
  for (const auto& at : acceptor.listener().endpoints()) std::cout << at.to_string() << std::endl;
  co::Scope scope;  // declared after all that its tasks use: destroyed first
  scope.spawn(accept(acceptor, scope));
  uv_run(host, UV_RUN_DEFAULT);  // serves the program's handles and our connections
  if (thrown) std::rethrow_exception(thrown);
  return stop.status();
} catch (const std::exception& error) {
  std::cerr << error.what() << '\n';
  return 1;
}
