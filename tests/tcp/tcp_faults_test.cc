// SPDX-License-Identifier: BSD-3-Clause
// Faults below a socket: errors of accept, a window that stays closed, a network that is lost.

#include <dlfcn.h>
#include <net/if.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/types.h>

#include <cerrno>
#include <cstring>
#include <deque>
#include <thread>

#include "conn/tcp/tcp_type.h"
#include "tests/support/catch.h"
#include "tests/support/raw_socket.h"
#include "tests/support/testing.h"

using conn::Connection;
using conn::ConnectionPtr;
using conn::State;
using testing::RawSocket;
using namespace std::chrono_literals;
using testing::Contains;

namespace {

std::deque<int> accept_errors;  // errors of the next accept4() calls

}  // namespace

/// Weak: another file of the tests may define it, too.
extern "C" __attribute__((weak)) int accept4(int fd, sockaddr* address, socklen_t* size,
                                             int flags) {
  using Function = int (*)(int, sockaddr*, socklen_t*, int);
  static const auto real = reinterpret_cast<Function>(dlsym(RTLD_NEXT, "accept4"));
  if (accept_errors.empty()) return real(fd, address, size, flags);
  errno = accept_errors.front();
  accept_errors.pop_front();
  return -1;
}

TEST_CASE("tcp: errors that accept() tells of one arrival do not stop the next", "[tcp][hostile]") {
  conn::tcp::TcpType tcp;
  testing::AnyLoop loop;
  std::vector<ConnectionPtr> accepted;
  const conn::ListenerPtr listener =
      tcp.listen(loop, conn::Endpoint::parse("tcp://127.0.0.1:0"),
                 [&](ConnectionPtr one) { accepted.push_back(std::move(one)); });
  const std::deque<int> of_one{ECONNABORTED, EPROTO,      EPERM,     ENETDOWN,
                               ENOPROTOOPT,  EHOSTDOWN,   ENONET,    EHOSTUNREACH,
                               EOPNOTSUPP,   ENETUNREACH, ETIMEDOUT, EINTR};
  accept_errors = of_one;
  const RawSocket client = RawSocket::connect(testing::address_of(*listener));
  RUN_UNTIL(loop, accepted.size() == 1);
  REQUIRE(accept_errors.empty());
  REQUIRE(tcp.counters(loop).accept_errors == of_one.size() - 1);  // EINTR does not count

  // Errors of the listener itself: it waits, and tries again.
  std::uint64_t errors = tcp.counters(loop).accept_errors;
  for (const int err : {EMFILE, ENFILE, ENOBUFS, ENOMEM, EINVAL}) {
    CAPTURE(err);
    accept_errors = {err};
    const RawSocket next = RawSocket::connect(testing::address_of(*listener));
    RUN_UNTIL(loop, tcp.counters(loop).accept_errors == errors + 1);
    testing::turns(loop, 20);
    REQUIRE(tcp.counters(loop).accept_errors == errors + 1);
    const std::size_t before = accepted.size();
    RUN_UNTIL(loop, accepted.size() == before + 1);
    ++errors;
  }
}

TEST_CASE("tcp: with user-timeout a peer whose window stays shut ends the connection",
          "[tcp][hostile]") {
  conn::tcp::TcpType tcp;
  tcp.configure({{"user-timeout", "500ms"}, {"send-buffer", "16k"}});
  testing::AnyLoop loop;
  const RawSocket listening = RawSocket::listening();
  ConnectionPtr client = tcp.create(loop);
  client->connect(listening.endpoint(), {});
  RUN_UNTIL(loop, client->state() == State::kConnected);
  const RawSocket peer = listening.accept();  // never reads
  const std::string much(64 << 10, 'x');
  int error = 0;
  client->set_write_handler([&](Connection& c) {
    if (c.write(much.data(), much.size()) < 0 && errno != EAGAIN) {
      error = errno;
      c.set_write_handler(nullptr);
    }
  });
  RUN_UNTIL(loop, error != 0);
  REQUIRE(error == ETIMEDOUT);
  REQUIRE(client->state() == State::kError);
}

TEST_CASE("tcp: a peer whose network is gone is noticed by keepalive", "[tcp][hostile]") {
  // A thread in a network namespace of its own, whose only link goes down.
  std::string skipped, failed, told;
  std::thread([&] {
    if (::unshare(CLONE_NEWNET) != 0) {
      skipped = std::strerror(errno);
      return;
    }
    const auto link = [](bool up) {
      const int fd = ::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
      ifreq request{};
      std::strcpy(request.ifr_name, "lo");
      request.ifr_flags = up ? IFF_UP : 0;
      const int result = ::ioctl(fd, SIOCSIFFLAGS, &request);
      ::close(fd);
      return result == 0;
    };
    if (!link(true)) {
      skipped = std::strerror(errno);
      return;
    }
    try {
      conn::tcp::TcpType tcp;
      tcp.configure({{"keepalive", "1s"}});
      testing::AnyLoop loop;
      ConnectionPtr server;
      const conn::ListenerPtr listener =
          tcp.listen(loop, conn::Endpoint::parse("tcp://127.0.0.1:0"),
                     [&](ConnectionPtr one) { server = std::move(one); });
      const ConnectionPtr client = tcp.create(loop);
      client->connect(testing::address_of(*listener), {});
      const auto until = [&](auto condition) {
        const ae::TimerId alarm = loop.add_time_event(30s, [&] {
          failed = "it took too long";
          return ae::kNoMore;
        });
        while (failed.empty() && !condition()) loop.process_events(ae::kFullIteration);
        loop.remove_time_event(alarm);
      };
      until([&] { return server && client->state() == State::kConnected; });
      int error = 0;
      server->set_read_handler([&](Connection& c) {
        char byte;
        if (c.read(&byte, 1) < 0 && errno != EAGAIN) error = errno;
      });
      if (!link(false)) failed = "the link does not go down";
      until([&] { return error != 0; });
      told = server->last_error();
    } catch (const std::exception& error) {
      failed = error.what();
    }
  }).join();
  if (!skipped.empty()) {
    WARN("not tested: a network namespace is needed: " << skipped);
    return;
  }
  REQUIRE(failed.empty());
  CAPTURE(told);
  REQUIRE_THAT(told, Contains("timed out") || Contains("unreachable"));
}
