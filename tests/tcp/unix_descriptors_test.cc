// SPDX-License-Identifier: BSD-3-Clause
// Peers of unix, and of TLS over it, that pass descriptors: closing one may wait for as long as the
// peer likes, and the loop does not. Linux refuses them since 6.16; most cases here are as before.

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <optional>

#include "adapters/descriptor.h"
#include "tests/support/lingering.h"

using conn::ConnectionPtr;
using testing::AsOlderKernel;
using testing::Attacked;
using testing::Lingering;
using testing::RawSocket;
using testing::Site;

namespace {

const testing::Transport kUnix{.name = "unix"};

/// A server of unix beside one of tcp.
struct Server : testing::LocalServer {
  explicit Server(const std::string& options = "") : LocalServer(kUnix, options) {}
  conn::Connection& accept() {
    const std::size_t before = accepted.size();
    RUN_UNTIL(loop, accepted.size() > before);
    return *accepted.back();
  }
};

}  // namespace

TEST_CASE("unix descriptors: the kernel refuses them where it can", "[unix][hostile]") {
  Server server;
  const RawSocket client = RawSocket::connect(server.address);
  const int before = testing::pass(client.fd(), "x", {client.fd()});
  conn::Connection& connection = server.accept();
  const int after = testing::pass(client.fd(), "x", {client.fd()});
  CHECK(before == after);
  if (before == EPERM) {
    client.send("y");
    CHECK(testing::receive(server.loop, connection, 1) == "y");
  } else {  // before Linux 6.16
    testing::Collector collector(connection);
    RUN_UNTIL(server.loop, collector.over());
    CHECK(collector.error == EPROTO);
  }
}

TEST_CASE("unix descriptors: one among the data ends its connection alone", "[unix][hostile]") {
  const AsOlderKernel older;
  Lingering lingering;
  Server server;
  Attacked attacked(server, lingering);
  RawSocket client = RawSocket::connect(server.address);
  const int when = GENERATE(0, 1, 2, 3);
  CAPTURE(when);
  const std::size_t before = testing::count_descriptors();  // with `lingering`, which is given
  if (when == 0) lingering.give(client.fd(), "x");          // before accept()
  conn::Connection& connection = server.accept();
  if (when == 1) lingering.give(client.fd(), "x");  // before the first read
  if (when == 2) {
    client.send("before");
    CHECK(testing::receive(server.loop, connection, 6) == "before");
    lingering.give(client.fd(), "x");
  }
  if (when == 3) lingering.give(client.fd(), "x", MSG_OOB);
  SECTION("read()") {
    testing::Collector collector(connection);
    RUN_UNTIL(server.loop, collector.over());
    CHECK(collector.error == EPROTO);
    CHECK(collector.bytes.empty());
    CHECK_THAT(connection.last_error(), testing::Contains("passes descriptors"));
  }
  SECTION("readv()") {
    testing::await_readable(server.loop, connection);
    char a = 0, b = 0;
    const iovec pieces[] = {{&a, 1}, {&b, 1}};
    CHECK(connection.readv(pieces, 2) == -1);
    CHECK(errno == EPROTO);
  }
  SECTION("none") { testing::turns(server.loop, 3); }
  attacked.answers();
  server.accepted.clear();
  attacked.answers();
  CHECK(testing::descriptors_become(server.loop, before - 1));
}

TEST_CASE("unix descriptors: one behind unread data does not stop a close", "[unix][hostile]") {
  const AsOlderKernel older;
  Lingering lingering;
  Server server;
  Attacked attacked(server, lingering);
  const std::size_t before = testing::count_descriptors();
  const RawSocket client = RawSocket::connect(server.address);
  conn::Connection& connection = server.accept();
  const std::size_t unread = GENERATE(0, 1, 16384, 40000);
  client.send(std::string(unread, 'u'));
  lingering.give(client.fd(), "x");
  client.send("behind");
  const bool abort = GENERATE(false, true);
  if (abort) connection.abort();
  server.accepted.clear();
  attacked.answers();
  CHECK(testing::descriptors_become(server.loop, before));  // the client's for the given one
  if (!abort) CHECK(client.receive(1).empty());             // an end of stream
}

TEST_CASE("unix descriptors: abort() resets where plain bytes are unread", "[unix]") {
  const AsOlderKernel older(GENERATE(false, true));
  Server server;
  const RawSocket client = RawSocket::connect(server.address);
  conn::Connection& connection = server.accept();
  client.send(std::string(GENERATE(1, 16384, 16385, 50000), 'u'));
  connection.abort();
  server.accepted.clear();
  testing::turns(server.loop, 2);
  char byte = 0;
  CHECK(::recv(client.fd(), &byte, 1, 0) == -1);
  CHECK(errno == ECONNRESET);
}

TEST_CASE("unix descriptors: what is refused or not accepted does not stop the loop",
          "[unix][hostile]") {
  const AsOlderKernel older;
  Lingering lingering;
  std::optional<Attacked> attacked;
  std::size_t before = 0;
  SECTION("max-connections") {
    Server server("max-connections=1");
    attacked.emplace(server, lingering);
    const RawSocket first = RawSocket::connect(server.address);
    (void)server.accept();
    before = testing::count_descriptors();
    RawSocket second = RawSocket::connect(server.address);
    lingering.give(second.fd(), "x");
    RUN_UNTIL(server.loop, server.refused.size() == 1);
    attacked->answers();
    second.close();
    CHECK(testing::descriptors_become(server.loop, before - 1));
    attacked.reset();
  }
  SECTION("a PROXY header") {
    Server server("proxy-protocol=yes");
    attacked.emplace(server, lingering);
    before = testing::count_descriptors();
    RawSocket client = RawSocket::connect(server.address);
    lingering.give(client.fd(), "PROXY TCP4 192.0.2.1 192.0.2.2 1 2\r\n");
    RUN_UNTIL(server.loop, server.refused.size() == 1);
    CHECK_THAT(server.refused[0], testing::Contains("comes with descriptors"));
    attacked->answers();
    client.close();
    CHECK(testing::descriptors_become(server.loop, before - 1));
    attacked.reset();
  }
  SECTION("the listener ends") {
    Server server;
    attacked.emplace(server, lingering);
    const RawSocket client = RawSocket::connect(server.address);
    lingering.give(client.fd(), "x");
    server.listener.reset();
    attacked->answers();
    lingering.free();  // the other thread waits, as it does not accept
    RUN_UNTIL(server.loop, conn::tcp::closing_aside() == 0);
    attacked.reset();
  }
}

TEST_CASE("unix descriptors: a socket that the program hands over may have some unread",
          "[unix][hostile]") {
  const AsOlderKernel older(GENERATE(false, true));
  Lingering lingering;
  Server server;
  Attacked attacked(server, lingering);
  std::array<int, 2> fds{};
  REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds.data()) == 0);
  const RawSocket far(fds[1]);
  lingering.give(far.fd(), "x");
  ConnectionPtr near = server.type.adopt(server.loop, fds[0]);
  if (GENERATE(false, true)) {
    testing::Collector collector(*near);
    RUN_UNTIL(server.loop, collector.over());
    CHECK(collector.error == EPROTO);
  }
  near.reset();
  attacked.answers();
  RUN_UNTIL(server.loop, conn::tcp::closing_aside() == 0);
}

TEST_CASE("unix descriptors: the client's end does not wait either", "[unix][hostile]") {
  const AsOlderKernel older;
  Lingering lingering;
  Site site(kUnix);
  Attacked attacked(site, lingering);
  const conn::Endpoint at = site.fresh();
  const RawSocket listening(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const conn::SocketAddress address = conn::tcp::unix_address(at.path);
  REQUIRE(::bind(listening.fd(), address.get(), address.size) == 0);
  REQUIRE(::listen(listening.fd(), 4) == 0);
  ConnectionPtr client = site.connect(at);
  RUN_UNTIL(site.loop, client->state() == conn::State::kConnected);
  const RawSocket far = listening.accept();
  lingering.give(far.fd(), "x");
  if (GENERATE(false, true)) {
    testing::Collector collector(*client);
    RUN_UNTIL(site.loop, collector.over());
    CHECK(collector.error == EPROTO);
  }
  client.reset();
  attacked.answers();
  RUN_UNTIL(site.loop, conn::tcp::closing_aside() == 0);
}

TEST_CASE("unix descriptors: while closing is stuck few are held and others are served",
          "[unix][hostile]") {
  const AsOlderKernel older;
  Lingering lingering;
  Server server;
  Attacked attacked(server, lingering);
  std::vector<RawSocket> clients;
  const std::size_t before = testing::count_descriptors();
  clients.push_back(RawSocket::connect(server.address));
  lingering.give_nested(clients[0].fd(), "x");
  testing::Collector first(server.accept());
  RUN_UNTIL(server.loop, first.over());
  REQUIRE(conn::tcp::closing_aside() != 0);
  // The other thread is in close() once the number of the nested socket is free: the lingering one
  // is given away, and both ends of the client have come.
  REQUIRE(testing::descriptors_become(server.loop, before + 1));
  // As many as one message has, from several: none is taken.
  const std::vector<int> many(conn::tcp::kMostPassed, clients[0].fd());
  for (int i = 0; i < 2; ++i) {
    clients.push_back(RawSocket::connect(server.address));
    REQUIRE(testing::pass(clients.back().fd(), "x", many) == 0);
    testing::Collector collector(server.accept());
    RUN_UNTIL(server.loop, collector.over());
    CHECK(collector.error == EPROTO);
  }
  // Honest ones go on.
  clients.push_back(RawSocket::connect(server.address));
  conn::Connection& honest = server.accept();
  clients.back().send("honest");
  CHECK(testing::receive(server.loop, honest, 6) == "honest");
  CHECK(testing::count_descriptors() <= before + 2 * clients.size() + 1);
  // kMostClosing sockets wait: then no more are accepted.
  server.accepted.clear();
  while (conn::tcp::closing_aside() < conn::tcp::kMostClosing) {
    const RawSocket one = RawSocket::connect(server.address);
    REQUIRE(testing::pass(one.fd(), "x", {one.fd()}) == 0);
    (void)server.accept();
    server.accepted.clear();
  }
  const RawSocket late = RawSocket::connect(server.address);
  attacked.answers();
  CHECK(server.accepted.empty());
  CHECK(conn::tcp::closing_lags());
  lingering.free();
  (void)server.accept();
  server.accepted.clear();
  clients.clear();
  RUN_UNTIL(server.loop, conn::tcp::closing_aside() == 0);
  attacked.answers();
}

#ifdef __GLIBC__
TEST_CASE("unix descriptors: without a thread to close them the next connection tries again",
          "[unix][hostile]") {
  const AsOlderKernel older;
  Server server;
  RawSocket client;
  {
    const testing::NoThreads none;
    client = RawSocket::connect(server.address);
    REQUIRE(testing::pass(client.fd(), "x", {client.fd()}) == 0);
    testing::Collector collector(server.accept());
    RUN_UNTIL(server.loop, collector.over());
    CHECK(collector.error == EPROTO);
    const RawSocket honest = RawSocket::connect(server.address);
    honest.send("honest");
    CHECK(testing::receive(server.loop, server.accept(), 6) == "honest");
    CHECK(conn::tcp::closing_aside() == 1);
  }
  const RawSocket next = RawSocket::connect(server.address);
  (void)server.accept();
  CHECK(testing::is_closed_aside());
}
#endif

TEST_CASE("unix descriptors: TLS over unix does not wait either", "[unix][tls][hostile]") {
  const AsOlderKernel older;
  Lingering lingering;
  Site site(kUnix);
  const conn::Registry registry = testing::test_registry("tls+unix");
  conn::ConnectionType* const tls = registry.find("tls+unix");
  if (tls == nullptr) return;  // built without TLS
  Attacked attacked(site, lingering);
  conn::Endpoint at = site.fresh();
  at.scheme = "tls+unix";
  std::vector<std::string> refused;
  const conn::ListenerPtr listener = tls->listen(site.loop, at, [](ConnectionPtr) {});
  listener->on_refused([&](const conn::Failure& why) { refused.push_back(why.text); });
  const RawSocket client = RawSocket::connect(testing::address_of(*listener));
  lingering.give(client.fd(), "\x16");
  RUN_UNTIL(site.loop, refused.size() == 1);
  attacked.answers();
  RUN_UNTIL(site.loop, conn::tcp::closing_aside() == 0);
}

TEST_CASE("unix descriptors: credentials that a socket's owner asked for are none", "[unix]") {
  const bool older = GENERATE(false, true);
  CAPTURE(older);
  std::optional<AsOlderKernel> as_older;
  if (older) as_older.emplace();
  Server server;
  SECTION("adopted") {
    int ends[2];
    const int yes = 1;
    REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0);
    REQUIRE(::setsockopt(ends[0], SOL_SOCKET, SO_PASSCRED, &yes, sizeof yes) == 0);
    ConnectionPtr connection = server.type.adopt(server.loop, ends[0]);
    REQUIRE(::write(ends[1], "x", 1) == 1);
    CHECK(testing::receive(server.loop, *connection, 1) == "x");
    REQUIRE(::write(ends[1], "unread", 6) == 6);
    connection.reset();
    CHECK(conn::tcp::closing_aside() == 0);
    ::close(ends[1]);
  }
  SECTION("of an adopted listener, with a PROXY header") {
    const std::string path = server.fresh().path;
    std::vector<ConnectionPtr> accepted;
    const conn::ListenerPtr listener =
        server.type.adopt_listener(server.loop, testing::listening_with_credentials(path),
                                   [&](ConnectionPtr one) { accepted.push_back(std::move(one)); },
                                   {{"proxy-protocol", "yes"}});
    const RawSocket client = RawSocket::connect(listener->endpoints().front());
    client.send("PROXY TCP4 192.0.2.1 192.0.2.2 5 6\r\nbytes");
    RUN_UNTIL(server.loop, accepted.size() == 1);
    CHECK(testing::receive(server.loop, *accepted.front(), 5) == "bytes");
  }
}

TEST_CASE("unix descriptors: a listening socket lets them pass again for its other holders",
          "[unix]") {
  const RawSocket probe(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  conn::tcp::refuse_descriptors(probe.fd());
  const bool can_refuse = conn::tcp::refuses_descriptors(probe.fd());  // since Linux 6.16
  Server server;
  const int fd = testing::listening_with_credentials(server.fresh().path);
  const RawSocket other(::fcntl(fd, F_DUPFD_CLOEXEC, 0));
  if (GENERATE(false, true)) conn::tcp::refuse_descriptors(fd);
  const bool found = conn::tcp::refuses_descriptors(fd);
  conn::ListenerPtr listener = server.type.adopt_listener(server.loop, fd, [](ConnectionPtr) {});
  CHECK(conn::tcp::refuses_descriptors(other.fd()) == can_refuse);
  const pid_t child = ::fork();
  if (child == 0) {
    server.loop.after_fork();
    listener.reset();
    ::_exit(0);
  }
  REQUIRE(::waitpid(child, nullptr, 0) == child);
  CHECK(conn::tcp::refuses_descriptors(other.fd()) == can_refuse);
  listener.reset();
  CHECK(conn::tcp::refuses_descriptors(other.fd()) == found);
}

TEST_CASE("unix descriptors: a program's descriptor lets them pass as before", "[unix]") {
  Server server;
  const RawSocket client = RawSocket::connect(server.address);
  (void)server.accept();
  ConnectionPtr connection = std::move(server.accepted.front());
  server.accepted.clear();
  const int fd = adapters::to_descriptor(std::move(connection));
  REQUIRE(fd >= 0);
  CHECK(testing::pass(client.fd(), "x", {client.fd()}) == 0);
  ::close(fd);
}

TEST_CASE("unix: who adopts a listening socket leaves it to its other owners", "[unix][adopt]") {
  const std::string scheme = GENERATE("unix", "shm");
  CAPTURE(scheme);
  const testing::TempFolder folder;
  const std::string path = folder.path() + "/s";
  const RawSocket owner(testing::listening_with_credentials(path));
  const conn::Endpoint at = conn::Endpoint::parse("unix:" + path);
  testing::AnyLoop loop;
  const conn::Registry registry = testing::test_registry();
  conn::ListenerPtr listener =
      registry.require(scheme).adopt_listener(loop, ::dup(owner.fd()), [](const ConnectionPtr&) {});
  const RawSocket waiting = RawSocket::connect(at);
  listener.reset();
  REQUIRE(testing::is_closed_aside());
  const RawSocket accepted = owner.accept();
  const RawSocket later = RawSocket::connect(at);
  CHECK(owner.accept().fd() >= 0);
}
