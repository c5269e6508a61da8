// SPDX-License-Identifier: BSD-3-Clause
// What is specific to conn/tcp (the conformance suite has the rest): addresses, options, connecting
// to several addresses, errors.

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <map>
#include <set>

#include "conn/error.h"
#include "conn/tcp/socket.h"
#include "tests/support/catch.h"
#include "tests/support/raw_socket.h"
#include "tests/support/testing.h"

using conn::Connection;
using conn::ConnectionPtr;
using conn::Endpoint;
using conn::State;
using testing::RawSocket;
using testing::Site;
using namespace std::chrono_literals;
using Catch::Matchers::StartsWith;
using testing::Contains;

namespace {

const testing::Transport kTcp{.name = "tcp"};

bool has_ipv6() {
  const conn::SocketAddress loopback = conn::resolve("::1", 0, true).addresses.front();
  const conn::tcp::Fd fd = conn::tcp::open_socket(AF_INET6);
  return fd && ::bind(fd.get(), loopback.get(), loopback.size) == 0;
}

/// Connects and returns the connection as the connect handler saw it.
ConnectionPtr connect_to(Site& site, const Endpoint& to) {
  bool done = false;
  ConnectionPtr connection = site.connect(to, [&](Connection&) { done = true; });
  REQUIRE_FALSE(done);
  RUN_UNTIL(site.loop, done);
  return connection;
}

Endpoint at(std::string_view url) { return Endpoint::parse(url); }

/// A port without a listener.
std::uint16_t free_port() { return RawSocket::listening().endpoint().port; }

std::string url(const std::string& hosts, std::uint16_t port, const std::string& options = {}) {
  return "tcp://" + hosts + ":" + std::to_string(port) + (options.empty() ? "" : "?" + options);
}

int option(const Connection& connection, int level, int name) {
  int value = -1;
  socklen_t size = sizeof value;
  REQUIRE(getsockopt(connection.fd(), level, name, &value, &size) == 0);
  return value;
}

}  // namespace

// --- listening -----------------------------------------------------------------------------------

TEST_CASE("tcp: port 0 is replaced by the port that the kernel chose", "[tcp]") {
  Site site(kTcp);
  const auto listener = site.type.listen(site.loop, at("tcp://127.0.0.1:0"), [](auto) {});
  REQUIRE(listener->endpoints().size() == 1);
  REQUIRE(listener->endpoints()[0].port != 0);
  REQUIRE(listener->endpoints()[0].to_string() == url("127.0.0.1", listener->endpoints()[0].port));
  REQUIRE(&listener->type() == &site.type);
}

TEST_CASE("tcp: several addresses listen on one port, chosen by the first", "[tcp]") {
  Site site(kTcp);
  std::vector<ConnectionPtr> accepted;
  const auto listener =
      site.type.listen(site.loop, at("tcp://127.0.0.1,127.0.0.2,127.0.0.3:0"),
                       [&](ConnectionPtr c) { accepted.push_back(std::move(c)); });
  REQUIRE(listener->endpoints().size() == 3);
  std::set<std::uint16_t> ports;
  for (const Endpoint& endpoint : listener->endpoints()) {
    ports.insert(endpoint.port);
    REQUIRE(connect_to(site, endpoint)->state() == State::kConnected);
  }
  REQUIRE(ports.size() == 1);
  RUN_UNTIL(site.loop, accepted.size() == 3);
  REQUIRE_THAT(accepted[2]->local_address(), StartsWith("127.0.0.3:"));
}

TEST_CASE("tcp: any IPv4 and any IPv6 address listen side by side", "[tcp]") {
  if (!has_ipv6()) return;
  Site site(kTcp);
  const auto listener = site.type.listen(site.loop, at("tcp://*,[::]:0"), [](auto) {});
  REQUIRE(listener->endpoints().size() == 2);
  const std::uint16_t port = listener->endpoints()[0].port;
  const ConnectionPtr four = connect_to(site, at(url("127.0.0.1", port)));
  const ConnectionPtr six = connect_to(site, at(url("[::1]", port)));
  REQUIRE(four->state() == State::kConnected);
  REQUIRE(six->state() == State::kConnected);
  REQUIRE(six->peer_address() == "[::1]:" + std::to_string(port));
  REQUIRE(six->is_local() == true);
}

TEST_CASE("tcp: an optional address that this machine lacks is left out", "[tcp]") {
  Site site(kTcp);
  const auto listener =
      site.type.listen(site.loop, at("tcp://127.0.0.1,-192.0.2.1,-no-such.invalid:0"), [](auto) {});
  REQUIRE(listener->endpoints().size() == 1);
  REQUIRE_THROWS_WITH(site.type.listen(site.loop, at("tcp://127.0.0.1,192.0.2.1:0"), [](auto) {}),
                      Contains("192.0.2.1:") && Contains("Cannot assign requested address"));
  REQUIRE_THROWS_WITH(site.type.listen(site.loop, at("tcp://-192.0.2.1:0"), [](auto) {}),
                      Contains("Cannot assign requested address"));
  REQUIRE_THROWS_WITH(site.type.listen(site.loop, at("tcp://no-such.invalid:0"), [](auto) {}),
                      Contains("resolve no-such.invalid"));
}

TEST_CASE("tcp: a port in use is one sentence, for an optional address too", "[tcp]") {
  Site site(kTcp);
  const RawSocket other = RawSocket::listening();
  const std::uint16_t port = other.endpoint().port;
  REQUIRE_THROWS_WITH(site.type.listen(site.loop, at(url("127.0.0.1", port)), [](auto) {}),
                      url("127.0.0.1", port) + ": listen on 127.0.0.1:" + std::to_string(port) +
                          ": Address already in use");
  REQUIRE_THROWS_AS(site.type.listen(site.loop, at(url("-127.0.0.1", port)), [](auto) {}),
                    conn::Error);
}

TEST_CASE("tcp: a port is free again once its listener is gone, whatever is still open", "[tcp]") {
  Site site(kTcp);
  ConnectionPtr server;
  auto listener = site.type.listen(site.loop, at("tcp://127.0.0.1:0"),
                                   [&](ConnectionPtr c) { server = std::move(c); });
  const Endpoint where = testing::address_of(*listener);
  const ConnectionPtr client = connect_to(site, where);
  RUN_UNTIL(site.loop, server != nullptr);
  listener.reset();
  REQUIRE_NOTHROW(listener = site.type.listen(site.loop, where, [](auto) {}));
  testing::send(site.loop, *client, "still here");
  REQUIRE(testing::receive(site.loop, *server, 10) == "still here");
}

TEST_CASE("tcp: reuseport lets two listeners share a port", "[tcp]") {
  Site site(kTcp);
  const auto first =
      site.type.listen(site.loop, at("tcp://127.0.0.1:0?reuseport=yes"), [](auto) {});
  const std::uint16_t port = testing::address_of(*first).port;
  REQUIRE_NOTHROW(
      site.type.listen(site.loop, at(url("127.0.0.1", port, "reuseport=yes")), [](auto) {}));
  REQUIRE_THROWS_AS(site.type.listen(site.loop, at(url("127.0.0.1", port)), [](auto) {}),
                    conn::Error);
}

// --- options -------------------------------------------------------------------------------------

TEST_CASE("tcp: options reach both ends' sockets", "[tcp]") {
  Site site(kTcp);
  site.type.configure({{"keepalive", "90s"}, {"user-timeout", "1500ms"}});
  ConnectionPtr server;
  const auto listener = site.type.listen(site.loop, at("tcp://127.0.0.1:0?keepalive=60s"),
                                         [&](ConnectionPtr c) { server = std::move(c); });
  Endpoint where = testing::address_of(*listener);
  where.options.set("nodelay", "no");
  const ConnectionPtr client = connect_to(site, where);
  RUN_UNTIL(site.loop, server != nullptr);

  REQUIRE(option(*server, IPPROTO_TCP, TCP_NODELAY) == 1);
  REQUIRE(option(*server, SOL_SOCKET, SO_KEEPALIVE) == 1);
  REQUIRE(option(*server, IPPROTO_TCP, TCP_KEEPIDLE) == 60);
  REQUIRE(option(*server, IPPROTO_TCP, TCP_KEEPINTVL) == 20);
  REQUIRE(option(*server, IPPROTO_TCP, TCP_KEEPCNT) == 3);
  REQUIRE(option(*server, IPPROTO_TCP, TCP_USER_TIMEOUT) == 1500);
  REQUIRE(option(*client, IPPROTO_TCP, TCP_NODELAY) == 0);
  REQUIRE(option(*client, IPPROTO_TCP, TCP_KEEPIDLE) == 90);
  REQUIRE(fcntl(server->fd(), F_GETFD) == FD_CLOEXEC);
  REQUIRE(fcntl(client->fd(), F_GETFD) == FD_CLOEXEC);

  const auto info = client->info();
  REQUIRE(std::count(info.begin(), info.end(),
                     std::pair<std::string, std::string>{"nodelay", "no"}) == 1);
}

TEST_CASE("tcp: mark, traffic-class and bind-device reach both ends' sockets", "[tcp]") {
  Site site(kTcp);
  const std::string host = GENERATE(as<std::string>{}, "127.0.0.1", "[::1]");
  if (host == "[::1]" && !has_ipv6()) return;
  const bool root = ::geteuid() == 0;  // SO_MARK needs a capability
  const std::string options =
      std::string("traffic-class=184&bind-device=lo") + (root ? "&mark=4000000001" : "");
  ConnectionPtr server;
  const auto listener = site.type.listen(site.loop, at(url(host, 0, options)),
                                         [&](ConnectionPtr c) { server = std::move(c); });
  const std::uint16_t port = testing::address_of(*listener).port;
  const ConnectionPtr client = connect_to(site, at(url(host, port, options)));
  INFO(client->last_error());
  RUN_UNTIL(site.loop, server != nullptr);
  for (const Connection* each : {client.get(), server.get()}) {
    if (root) CHECK(static_cast<std::uint32_t>(option(*each, SOL_SOCKET, SO_MARK)) == 4000000001U);
    CHECK((host == "[::1]" ? option(*each, IPPROTO_IPV6, IPV6_TCLASS)
                           : option(*each, IPPROTO_IP, IP_TOS)) == 184);
    char device[64] = {};
    socklen_t size = sizeof device;
    REQUIRE(getsockopt(each->fd(), SOL_SOCKET, SO_BINDTODEVICE, device, &size) == 0);
    CHECK(std::string(device) == "lo");
  }
  // The DSCP alone is a quarter of the traffic class; the blocking connect has the options, too.
  const ConnectionPtr blocking = site.type.create(site.loop);
  REQUIRE(blocking->connect_blocking(at(url(host, port, "dscp=46&bind-device=lo")), 5s));
  CHECK((host == "[::1]" ? option(*blocking, IPPROTO_IPV6, IPV6_TCLASS)
                         : option(*blocking, IPPROTO_IP, IP_TOS)) == 184);
}

TEST_CASE("tcp: an option for the packets' way that fails is an error, not ignored", "[tcp]") {
  Site site(kTcp);
  const RawSocket listening = RawSocket::listening();
  const std::string there = url("127.0.0.1", listening.endpoint().port, "bind-device=nowhere0");
  const std::string why = "option bind-device=nowhere0: this machine has no such network device";
  const std::string peer = "127.0.0.1:" + std::to_string(listening.endpoint().port);
  REQUIRE(connect_to(site, at(there))->last_error() == "connect to " + peer + ": " + why);
  const ConnectionPtr blocking = site.type.create(site.loop);
  REQUIRE_FALSE(blocking->connect_blocking(at(there), 5s));
  REQUIRE(blocking->last_error() == "connect to " + peer + ": " + why);
  REQUIRE_THROWS_WITH(
      site.type.listen(site.loop, at("tcp://127.0.0.1:0?bind-device=nowhere0"), [](auto) {}),
      Contains("listen on 127.0.0.1:0: " + why));
  for (const char* bad : {"", "a/b", "a%20b", "a:b", "sixteen-letters-", "%00"}) {
    CAPTURE(bad);
    CHECK_THROWS_WITH(site.type.check(at(std::string("tcp://127.0.0.1:1?bind-device=") + bad)),
                      Contains("must be the name of a network device"));
  }
  // An adopted socket, too.
  site.type.configure({{"bind-device", "nowhere0"}});
  RawSocket connected = RawSocket::connect(listening.endpoint());
  REQUIRE_THROWS_WITH((void)site.type.adopt(site.loop, connected.fd()), Contains(why));
}

TEST_CASE("tcp: a mark without the right to set one says what is missing", "[tcp]") {
  const pid_t child = fork();  // drops root's privileges, which allow it
  REQUIRE(child >= 0);
  if (child == 0) {
    if (::geteuid() == 0 && ::setresuid(65534, 65534, 65534) != 0) _exit(2);
    conn::tcp::Fd fd;
    conn::tcp::Settings settings;
    settings.mark = 7;
    const conn::Failure why = conn::tcp::open_socket_for(settings, AF_INET, fd);
    _exit(why.code == std::errc::operation_not_permitted && !fd &&
                  why.text.starts_with("option mark=7: ") &&
                  why.text.find("CAP_NET_ADMIN") != std::string::npos
              ? 0
              : 1);
  }
  int status = -1;
  REQUIRE(waitpid(child, &status, 0) == child);
  REQUIRE(status == 0);
}

TEST_CASE("tcp: keepalive=0 leaves keepalive off, and a second is the least", "[tcp]") {
  Site site(kTcp);
  ConnectionPtr server;
  const std::string time = GENERATE(as<std::string>{}, "0", "1s");
  const auto listener = site.type.listen(site.loop, at("tcp://127.0.0.1:0?keepalive=" + time),
                                         [&](ConnectionPtr c) { server = std::move(c); });
  const RawSocket client = RawSocket::connect(testing::address_of(*listener));
  RUN_UNTIL(site.loop, server != nullptr);
  REQUIRE(option(*server, SOL_SOCKET, SO_KEEPALIVE) == (time == "0" ? 0 : 1));
  if (time == "0") return;
  REQUIRE(option(*server, IPPROTO_TCP, TCP_KEEPIDLE) == 1);
  REQUIRE(option(*server, IPPROTO_TCP, TCP_KEEPINTVL) == 1);
}

TEST_CASE("tcp: a bad configuration throws and changes nothing", "[tcp]") {
  Site site(kTcp);
  site.type.configure({{"linger", "1s"}});
  REQUIRE_THROWS_WITH(site.type.configure({{"linger", "soon"}}), Contains("option linger=soon"));
  REQUIRE_THROWS_WITH(site.type.configure({{"mode", "770"}}), Contains("tcp has no option mode"));
  REQUIRE_THROWS_WITH(site.type.configure({{"source", "localhost"}}), Contains("must be an IPv4"));
  REQUIRE_NOTHROW(site.type.configure({{"linger", "2s"}, {"source", "127.0.0.1"}}));
}

TEST_CASE("tcp: check refuses what is not fit for tcp", "[tcp]") {
  Site site(kTcp);
  REQUIRE_NOTHROW(site.type.check(at("tcp://127.0.0.1:0?backlog=5")));
  const auto refused = [&](const char* text, const char* why) {
    REQUIRE_THROWS_WITH(site.type.check(at(text)), StartsWith(text) && Contains(why));
  };
  refused("tcp://127.0.0.1", "a tcp URL needs a port, as in tcp://127.0.0.1:6379");
  refused("unix:///run/x", "not a tcp endpoint");
  refused("tcp://127.0.0.1:1?colour=red", "tcp has no option colour");
  refused("tcp://127.0.0.1:1?backlog=0", "must be a number from 1 to 65535");
  Endpoint nowhere;
  nowhere.scheme = "tcp";
  REQUIRE_THROWS_WITH(site.type.check(nowhere), Contains("needs a host"));
}

TEST_CASE("tcp: source is the address that connections come from", "[tcp]") {
  Site site(kTcp);
  ConnectionPtr server;
  const auto listener = site.type.listen(site.loop, at("tcp://127.0.0.1:0"),
                                         [&](ConnectionPtr c) { server = std::move(c); });
  Endpoint where = testing::address_of(*listener);
  where.options.set("source", "127.0.0.9");
  const ConnectionPtr client = connect_to(site, where);
  RUN_UNTIL(site.loop, server != nullptr);
  REQUIRE_THAT(server->peer_address(), StartsWith("127.0.0.9:"));
  REQUIRE(server->peer_address() == client->local_address());
  where.options.set("source", "192.0.2.7");
  const ConnectionPtr failed = connect_to(site, where);
  REQUIRE(failed->state() == State::kError);
  REQUIRE(failed->error_code() == std::errc::address_not_available);
}

// --- connecting ----------------------------------------------------------------------------------

TEST_CASE("tcp: a refused connect names the address and the reason", "[tcp]") {
  Site site(kTcp);
  const std::uint16_t port = free_port();
  const std::string text = "connect to 127.0.0.1:" + std::to_string(port) + ": Connection refused";
  const ConnectionPtr refused = connect_to(site, at(url("127.0.0.1", port)));
  REQUIRE(refused->state() == State::kError);
  REQUIRE(refused->last_error() == text);
  REQUIRE(refused->error_code() == std::errc::connection_refused);
  char byte;
  REQUIRE(refused->read(&byte, 1) == -1);
  REQUIRE(errno == ECONNREFUSED);
  REQUIRE(refused->read(&byte, 1) == -1);
  REQUIRE(errno == ENOTCONN);

  const ConnectionPtr waited = site.type.create(site.loop);
  REQUIRE_FALSE(waited->connect_blocking(at(url("127.0.0.1", port)), 5s));
  REQUIRE(errno == ECONNREFUSED);
  REQUIRE(waited->last_error() == text);
}

TEST_CASE("tcp: every host and address is tried until one answers", "[tcp]") {
  Site site(kTcp);
  const RawSocket server = RawSocket::listening();
  const std::uint16_t port = server.endpoint().port;
  // The first two refuse.
  const Endpoint where = at(url("127.0.0.2,127.0.0.3,127.0.0.1", port));
  const ConnectionPtr client = connect_to(site, where);
  REQUIRE(client->state() == State::kConnected);
  REQUIRE(client->peer_address() == "127.0.0.1:" + std::to_string(port));
  const ConnectionPtr waited = site.type.create(site.loop);
  REQUIRE(waited->connect_blocking(where, 5s));
  REQUIRE(waited->peer_address() == "127.0.0.1:" + std::to_string(port));
}

TEST_CASE("tcp: the first host that answers is it, in a blocking connect too", "[tcp]") {
  Site site(kTcp);
  const auto listener = site.type.listen(site.loop, at("tcp://127.0.0.1,127.0.0.2:0"), [](auto) {});
  const std::uint16_t port = listener->endpoints().front().port;
  const ConnectionPtr client = site.type.create(site.loop);
  REQUIRE(client->connect_blocking(at(url("127.0.0.1,127.0.0.2", port)), 2s));
  REQUIRE(client->peer_address() == "127.0.0.1:" + std::to_string(port));
}

/// A listener at 127.0.0.2 with a full backlog, so that further connects get no answer.
class BlackHole {
 public:
  BlackHole() {
    for (int i = 0; i < 4; ++i) {
      RawSocket one(::socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
      const auto to = conn::resolve("127.0.0.2", port(), false).addresses.front();
      (void)::connect(one.fd(), to.get(), to.size);
      fill_.push_back(std::move(one));
    }
  }
  std::uint16_t port() const { return listener_.endpoint().port; }

 private:
  const RawSocket listener_ = RawSocket::listening(0, "127.0.0.2");
  std::vector<RawSocket> fill_;
};

TEST_CASE("tcp: with spread an address that somebody gave up waiting for rests", "[tcp][spread]") {
  Site site(kTcp);
  const BlackHole hole;
  const auto listener = site.type.listen(site.loop, at(url("127.0.0.1", hole.port())), [](auto) {});
  const Endpoint where = at(url("127.0.0.2,127.0.0.1", hole.port(), "spread=least"));
  std::vector<ConnectionPtr> clients;
  int given_up = 0;
  for (int i = 0; i < 8; ++i) {
    clients.push_back(site.type.create(site.loop));
    clients.back()->connect(where, [](Connection&) {});
    bool waited = false;
    const ae::TimerId limit = site.loop.add_time_event(150ms, [&] {
      waited = true;
      return ae::kNoMore;
    });
    RUN_UNTIL(site.loop, waited || clients.back()->state() != State::kConnecting);
    site.loop.remove_time_event(limit);
    if (clients.back()->state() == State::kConnected) continue;
    ++given_up;
    clients.pop_back();
  }
  CHECK(given_up == 1);  // one of the two comes first by chance; later the address rests
}

TEST_CASE("tcp: spread=least divides connections among all addresses of all hosts",
          "[tcp][spread]") {
  Site site(kTcp);
  const auto listener =
      site.type.listen(site.loop, at("tcp://127.0.0.1,127.0.0.2,127.0.0.3:0"), [](auto) {});
  const std::uint16_t port = listener->endpoints().front().port;
  const bool blocking = GENERATE(false, true);
  const std::string spread = GENERATE(as<std::string>{}, "first", "least", "near");
  const Endpoint where = at(url("127.0.0.1,127.0.0.2,127.0.0.3", port, "spread=" + spread));
  std::vector<ConnectionPtr> clients;
  const auto peers = [&] {
    std::map<std::string, int> all;
    for (const ConnectionPtr& each : clients) ++all[each->peer_address()];
    return all;
  };
  const auto connect = [&](int count) {
    for (int i = 0; i < count; ++i) {
      ConnectionPtr client = site.type.create(site.loop);
      if (blocking)
        REQUIRE(client->connect_blocking(where, 5s));
      else
        client->connect(where, [](Connection&) {});
      clients.push_back(std::move(client));
    }
    RUN_UNTIL(site.loop, std::all_of(clients.begin(), clients.end(), [](const auto& each) {
                return each->state() == State::kConnected;
              }));
  };
  connect(12);
  if (spread == "first") {
    CHECK(peers() == std::map<std::string, int>{{"127.0.0.1:" + std::to_string(port), 12}});
    return;
  }
  const std::string second = "127.0.0.2:" + std::to_string(port);
  const auto four_each = [&] {
    return peers().size() == 3 && peers()[second] == 4 &&
           peers()["127.0.0.1:" + std::to_string(port)] == 4;
  };
  CHECK(four_each());
  // Closed connections no longer count.
  std::erase_if(clients, [&](const ConnectionPtr& each) { return each->peer_address() == second; });
  testing::turns(site.loop, 3);
  connect(4);
  CHECK(four_each());
}

TEST_CASE("tcp: with spread a name that is unknown is left out, wherever it stands",
          "[tcp][spread]") {
  Site site(kTcp);
  const RawSocket server = RawSocket::listening();
  const std::uint16_t port = server.endpoint().port;
  const std::string hosts = GENERATE(as<std::string>{}, "no-such.invalid,127.0.0.1",
                                     "127.0.0.1,no-such.invalid", "no-such.invalid");
  const Endpoint where = at(url(hosts, port, "spread=least&connect-timeout=1m"));
  const ConnectionPtr client = connect_to(site, where), waited = site.type.create(site.loop);
  const bool known = hosts != "no-such.invalid";
  CHECK(client->state() == (known ? State::kConnected : State::kError));
  CHECK(waited->connect_blocking(where, 1min) == known);
  if (known) return;
  CHECK_THAT(client->last_error(), StartsWith("resolve no-such.invalid: "));
  CHECK_THAT(waited->last_error(), StartsWith("resolve no-such.invalid: "));
}

TEST_CASE("tcp: with spread an address that refuses costs one connect, not each", "[tcp][spread]") {
  Site site(kTcp);
  RawSocket hole = RawSocket::listening(0, "127.0.0.2");
  const std::uint16_t port = hole.endpoint().port;
  const auto listener = site.type.listen(site.loop, at(url("127.0.0.1", port)), [](auto) {});
  hole.close();
  const bool blocking = GENERATE(false, true);
  const Endpoint where = at(url("127.0.0.2,127.0.0.1", port, "spread=least"));
  std::vector<ConnectionPtr> clients;
  const auto began = std::chrono::steady_clock::now();
  const auto connect = [&] {
    clients.push_back(site.type.create(site.loop));
    if (blocking) return (void)clients.back()->connect_blocking(where, 5s);
    bool done = false;
    clients.back()->connect(where, [&](Connection&) { done = true; });
    RUN_UNTIL(site.loop, done);
  };
  for (int i = 0; i < 5; ++i) {
    connect();
    CHECK(clients.back()->state() == State::kConnected);
    CHECK(clients.back()->peer_address() == "127.0.0.1:" + std::to_string(port));
  }
  // It listens again: until its rest is over no connect tries it, although it has the fewest
  // connections.
  const auto second = site.type.listen(site.loop, at(url("127.0.0.2", port)), [](auto) {});
  for (int i = 0; i < 5; ++i) {
    connect();
    if (std::chrono::steady_clock::now() - began >= conn::AddressBook::kRest) return;  // too slow
    CHECK(clients.back()->peer_address() == "127.0.0.1:" + std::to_string(port));
  }
}

TEST_CASE("tcp: localhost is reached on the only family that listens", "[tcp]") {
  Site site(kTcp);
  for (const char* address : {"127.0.0.1", "::1"}) {
    if (conn::resolve("localhost", 1, false).addresses.size() < 2 || !has_ipv6()) {
      if (std::string(address) == "::1") continue;  // localhost has only IPv4 here
    }
    const RawSocket server = RawSocket::listening(16, address);
    const Endpoint where = at(url("localhost", server.endpoint().port));
    REQUIRE(connect_to(site, where)->state() == State::kConnected);
    REQUIRE(site.type.create(site.loop)->connect_blocking(where, 5s));
  }
}

TEST_CASE("tcp: the last failure is told when every address fails", "[tcp]") {
  Site site(kTcp);
  const std::uint16_t port = free_port();
  const ConnectionPtr failed = connect_to(site, at(url("no-such.invalid,127.0.0.2", port)));
  REQUIRE_THAT(failed->last_error(), StartsWith("connect to 127.0.0.2:"));
  const ConnectionPtr unknown = connect_to(site, at(url("no-such.invalid", port)));
  REQUIRE_THAT(unknown->last_error(), StartsWith("resolve no-such.invalid: "));
  REQUIRE(unknown->read(nullptr, 1) == -1);
  REQUIRE(errno == EHOSTUNREACH);
}

TEST_CASE("tcp: an address that does not answer costs its share of the time only", "[tcp]") {
  Site site(kTcp);
  const BlackHole hole;
  const std::uint16_t port = hole.port();
  const auto begin = std::chrono::steady_clock::now();
  const ConnectionPtr late = connect_to(site, at(url("127.0.0.2", port, "connect-timeout=200ms")));
  const auto took = std::chrono::steady_clock::now() - begin;
  REQUIRE(late->last_error() ==
          "connect to 127.0.0.2:" + std::to_string(port) + ": Connection timed out");
  REQUIRE(took >= 190ms);
  REQUIRE(took < 5s);

  const auto second = site.type.listen(site.loop, at(url("127.0.0.3", port)), [](auto) {});
  const Endpoint both = at(url("127.0.0.2,127.0.0.3", port, "connect-timeout=2s"));
  REQUIRE(connect_to(site, both)->state() == State::kConnected);
  REQUIRE(site.type.create(site.loop)->connect_blocking(both, 2s));
  const ConnectionPtr waited = site.type.create(site.loop);
  REQUIRE_FALSE(waited->connect_blocking(at(url("127.0.0.2", port)), 100ms));
  REQUIRE(errno == ETIMEDOUT);
}

TEST_CASE("tcp: an endpoint that is not fit fails through the handler", "[tcp]") {
  Site site(kTcp);
  for (const char* text :
       {"tcp://127.0.0.1", "unix:///x", "tcp://127.0.0.1:1?colour=red", "tcp://*:1"}) {
    const ConnectionPtr failed = connect_to(site, at(text));
    REQUIRE(failed->state() == State::kError);
    REQUIRE(failed->error_code() == std::errc::invalid_argument);
    REQUIRE_FALSE(site.type.create(site.loop)->connect_blocking(at(text), 1s));
    REQUIRE(errno == EINVAL);
  }
}

TEST_CASE("tcp: only a fresh connection connects", "[tcp]") {
  Site site(kTcp);
  const RawSocket server = RawSocket::listening();
  int calls = 0;
  const ConnectionPtr client = site.connect(server.endpoint(), [&](Connection&) { ++calls; });
  client->connect(server.endpoint(), [](Connection&) { FAIL("must not run"); });
  REQUIRE_FALSE(client->connect_blocking(server.endpoint(), 1s));
  REQUIRE(errno == EALREADY);
  RUN_UNTIL(site.loop, calls == 1);
  REQUIRE_FALSE(client->connect_blocking(server.endpoint(), 1s));
  REQUIRE(errno == EISCONN);
  testing::turns(site.loop, 10);
  REQUIRE(calls == 1);
}

TEST_CASE("tcp: addresses of both ends, and whether they are on one host", "[tcp]") {
  testing::Pair pair(kTcp);
  REQUIRE(pair.client->local_address() == pair.server->peer_address());
  REQUIRE(pair.client->peer_address() == pair.server->local_address());
  REQUIRE(pair.client->is_local() == true);
  REQUIRE(pair.server->is_local() == true);
  const ConnectionPtr fresh = pair.type.create(pair.loop);
  REQUIRE_FALSE(fresh->is_local().has_value());
  REQUIRE(fresh->fd() == -1);
  REQUIRE(fresh->local_address().empty());
  REQUIRE(fresh->peer_address().empty());
}
