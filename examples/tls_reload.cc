// SPDX-License-Identifier: BSD-3-Clause
// A TLS echo server that reloads its certificate and key on SIGHUP. New connections use the new
// certificate; existing ones keep theirs and continue. If the new files are invalid, it reports
// that and keeps the old ones. SIGTERM and SIGINT end the server gracefully.
//
//   ./tls_reload tls://127.0.0.1:7000 server.pem server.key
//   cp renewed.pem server.pem; cp renewed.key server.key; kill -HUP PID
#include <sys/signalfd.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <csignal>
#include <iostream>
#include <system_error>
#include <utility>

#include "ae/libev_loop.h"
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

/// Returns a descriptor that becomes readable when the signal arrives.
int signal_descriptor(int signal) {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, signal);
  sigprocmask(SIG_BLOCK, &set, nullptr);
  const int fd = signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC);
  if (fd < 0) throw std::system_error(errno, std::generic_category(), "signalfd");
  return fd;
}

int main(int argc, char** argv) try {
  if (argc != 4) throw std::runtime_error("usage: tls_reload URL CERTIFICATE KEY");
  const conn::Endpoint at = conn::Endpoint::parse(argv[1]);
  const conn::Registry registry = conn::all_transports();  // must outlive the loop
  registry.require(at.scheme).configure({{"cert", argv[2]}, {"key", argv[3]}});

  ae::LibevLoop loop;
  conn::Stop stop(loop);
  const int hangups = signal_descriptor(SIGHUP);
  loop.add_file_event(hangups, ae::kReadable, [&](int fd, ae::Mask) {
    signalfd_siginfo info;
    if (::read(fd, &info, sizeof info) != sizeof info) return;
    try {
      registry.reload_tls();
      std::cout << "reloaded" << std::endl;
    } catch (const conn::Error& error) {
      std::cerr << "the old certificate stays: " << error.what() << std::endl;
    }
  });

  co::Acceptor acceptor(registry, loop, at);
  acceptor.listener().on_refused(  // a failed handshake affects only its own connection
      [](const conn::Failure& why) { std::cerr << why.text << std::endl; });
  for (const auto& each : acceptor.listener().endpoints())
    std::cout << each.to_string() << std::endl;
  co::Scope scope;  // declared after all that its tasks use: destroyed first
  scope.spawn(accept(acceptor, scope));
  loop.run();
  return stop.status();
} catch (const std::exception& error) {
  std::cerr << error.what() << '\n';
  return 1;
}
