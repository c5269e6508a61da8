// SPDX-License-Identifier: BSD-3-Clause
// aeconn-proxy's relays: bytes written at one side are read at the other, over each transport.

#include <fcntl.h>
#include <linux/sockios.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "ae/loop_group.h"
#include "conn/listener_group.h"
#include "conn/tcp/socket.h"
#include "conn/transports/transports.h"
#include "programs/proxy/site.h"
#include "programs/service/systemd.h"
#include "tests/support/catch.h"
#include "tests/support/raw_socket.h"
#include "tests/support/stuck_transport.h"
#include "tests/support/testing.h"

using namespace std::chrono_literals;
using testing::Collector;
using testing::RawSocket;

namespace {

/// A client, a proxy and a server on one loop: the client uses the transport under test and the
/// server a Unix socket, or the other way round.
struct Bed {
  explicit Bed(const testing::Transport& transport, bool under_test_above = true,
               std::chrono::seconds idle = 0s)
      : front(transport) {
    const conn::ConnectionType& under_test = front.type;
    folder = std::make_unique<testing::TempFolder>();
    const std::string unix_url = "unix://" + folder->path() + "/s";
    const conn::AcceptHandler to_server = [this](conn::ConnectionPtr next) {
      server = std::move(next);
    };
    const conn::AcceptHandler to_proxy = [this](conn::ConnectionPtr next) {
      site->accept(std::move(next));
    };
    settings.idle_timeout = idle;
    settings.log = [this](const std::string& line) { log += line + "\n"; };
    if (under_test_above) {
      server_listener = front.registry.listen(front.loop, unix_url, to_server);
      proxy_listener = front.listen(to_proxy);
    } else {
      server_listener = front.listen(to_server);
      proxy_listener = front.registry.listen(front.loop, unix_url, to_proxy);
    }
    (void)under_test;
    settings.connect = testing::address_of(*server_listener);
    site = std::make_unique<proxy::Site>(front.loop, front.registry, settings);
  }
  void connect() {
    const conn::Endpoint at = testing::address_of(*proxy_listener);
    client = front.registry.create(front.loop, at);
    client->connect(at, [](conn::Connection&) {});
    RUN_UNTIL(front.loop, client->state() == conn::State::kConnected && server != nullptr &&
                              site->counters().joined == 1);
  }

  testing::Site front;
  std::unique_ptr<testing::TempFolder> folder;
  proxy::Settings settings;
  std::string log;
  std::unique_ptr<proxy::Site> site;
  conn::ListenerPtr server_listener, proxy_listener;
  conn::ConnectionPtr client, server;
};

void bytes_pass(const testing::Transport& transport, bool above) {
  Bed bed(transport, above);
  bed.connect();
  constexpr std::uint64_t kTotal = 3'000'000;
  testing::Receiver at_server(*bed.server, 1), at_client(*bed.client, 2);
  testing::Sender from_client(*bed.client, 1, kTotal), from_server(*bed.server, 2, kTotal);
  RUN_UNTIL(bed.front.loop, at_server.received == kTotal && at_client.received == kTotal);
  REQUIRE(at_server.intact);
  REQUIRE(at_client.intact);
  REQUIRE(bed.site->counters().upward == kTotal);
  REQUIRE(bed.site->counters().downward == kTotal);
}

void slow_reader_slows(const testing::Transport& transport, bool above) {
  Bed bed(transport, above);
  bed.connect();
  testing::Sender sender(*bed.client, 3, std::uint64_t{1} << 40);
  for (std::uint64_t before = ~std::uint64_t{0}; before != sender.sent;) {
    before = sender.sent;
    testing::turns(bed.front.loop, 100);
  }
  // Bytes under way are in sockets, windows and one chunk.
  REQUIRE(sender.sent < (64u << 20));
  testing::Receiver receiver(*bed.server, 3);
  const std::uint64_t stuck = sender.sent;
  RUN_UNTIL(bed.front.loop, receiver.received > stuck);
  REQUIRE(receiver.intact);
}

void ends_pass(const testing::Transport& transport) {
  Bed bed(transport);
  bed.connect();
  Collector at_server(*bed.server), at_client(*bed.client);
  testing::send(bed.front.loop, *bed.client, "question");
  if (bed.front.type.capabilities().half_close) {
    REQUIRE(bed.client->shutdown() == 0);
    RUN_UNTIL(bed.front.loop, at_server.ended);
    REQUIRE(at_server.bytes == "question");
    REQUIRE(bed.site->open() == 1);
    testing::send(bed.front.loop, *bed.server, "answer");
    REQUIRE(bed.server->shutdown() == 0);
    RUN_UNTIL(bed.front.loop, at_client.ended && bed.site->open() == 0);
    REQUIRE(at_client.bytes == "answer");
  } else {
    bed.client.reset();
    RUN_UNTIL(bed.front.loop, at_server.ended && bed.site->open() == 0);
    REQUIRE(at_server.bytes == "question");
  }
  REQUIRE(bed.log.empty());
  REQUIRE(bed.site->counters().broken == 0);
}

}  // namespace

TEST_CASE("proxy: bytes pass both ways, all of them and in order", "[proxy]") {
  FOR_EVERY_TRANSPORT(transport) { bytes_pass(transport, GENERATE(true, false)); }
}

TEST_CASE("proxy: a slow reader slows the writer down, and costs no memory", "[proxy]") {
  FOR_EVERY_TRANSPORT(transport) { slow_reader_slows(transport, GENERATE(true, false)); }
}

TEST_CASE("proxy: the end of one direction is that of one, where both have half-close", "[proxy]") {
  FOR_EVERY_TRANSPORT(transport) { ends_pass(transport); }
}

// The only test of this file that runs where a device is.
TEST_CASE("proxy: bytes, slow readers and ends over a device", "[proxy][rdma-device]") {
  FOR_EVERY_TRANSPORT(transport) {
    const bool above = GENERATE(true, false);
    bytes_pass(transport, above);
    slow_reader_slows(transport, above);
    ends_pass(transport);
  }
}

TEST_CASE("proxy: the answer of a server that closes without reading on gets through", "[proxy]") {
  const std::string scheme = GENERATE("tcp", "unix", "rdma|tcp");
  DYNAMIC_SECTION(scheme) {
    const conn::Registry registry = testing::test_registry();
    testing::AnyLoop loop;
    const testing::TempFolder folder;
    const std::string path = folder.path() + "/s";
    RawSocket at;
    proxy::Settings settings;
    if (scheme == "unix") {
      at = RawSocket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
      sockaddr_un address{};
      address.sun_family = AF_UNIX;
      std::memcpy(address.sun_path, path.c_str(), path.size());
      REQUIRE(::bind(at.fd(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0);
      REQUIRE(::listen(at.fd(), 1) == 0);
      settings.connect = conn::Endpoint::parse("unix://" + path);
    } else {
      at = RawSocket::listening();
      settings.connect = at.endpoint();
      settings.connect.scheme = scheme;
    }
    proxy::Site site(loop, registry, settings);
    const conn::ListenerPtr listener =
        registry.listen(loop, "unix://" + folder.path() + "/p",
                        [&](conn::ConnectionPtr next) { site.accept(std::move(next)); });
    const conn::ConnectionPtr client =
        registry.connect(loop, testing::address_of(*listener).to_string(), nullptr);
    RUN_UNTIL(loop, site.counters().joined == 1);
    RawSocket server = at.accept();
    testing::send(loop, *client, "question");
    RUN_UNTIL(loop, site.counters().upward == 8);
    // The client does not read yet: the answer fills all sockets on the way.
    const std::string piece(64 << 10, 'a');
    std::size_t sent = 0;
    for (std::size_t n = 1; n != 0; sent += n) {
      n = server.send_what_fits(piece);
      testing::turns(loop, 10);
    }
    int on_its_way = 0;  // discarded by a reset
    REQUIRE(::ioctl(server.fd(), SIOCOUTQ, &on_its_way) == 0);
    const std::uint64_t passed = site.counters().downward;
    server.close();  // with unread bytes: a reset
    REQUIRE(client->write("more", 4) == 4);
    testing::turns(loop, 10);
    Collector at_client(*client);
    RUN_UNTIL(loop, at_client.over() && site.open() == 0);
    if (scheme == "unix") on_its_way = 0;
    const std::size_t arrived = sent - static_cast<std::size_t>(on_its_way);
    REQUIRE(arrived > passed);
    REQUIRE(at_client.bytes.size() >= arrived);
    REQUIRE(site.counters().broken == 0);
  }
}

TEST_CASE("proxy: a cut of one side is a cut for the other", "[proxy]") {
  FOR_EVERY_TRANSPORT(transport) {
    const bool client_cuts = GENERATE(true, false);
    const bool above = GENERATE(true, false);
    CAPTURE(client_cuts, above);
    Bed bed(transport, above);
    bed.connect();
    conn::ConnectionPtr& cuts = client_cuts ? bed.client : bed.server;
    conn::Connection& other = client_cuts ? *bed.server : *bed.client;
    const bool is_told = above == client_cuts ? false : bed.front.carrier.capabilities().reset;
    testing::send(bed.front.loop, other, "unread");  // lets a Unix socket report the abort
    testing::await_readable(bed.front.loop, *cuts);
    testing::send(bed.front.loop, *cuts, "part of");
    REQUIRE(testing::receive(bed.front.loop, other, 7) == "part of");
    cuts.release()->abort();
    Collector seen(other);
    RUN_UNTIL(bed.front.loop, seen.over() && bed.site->open() == 0);
    if (is_told) REQUIRE(seen.error == ECONNRESET);
    REQUIRE(bed.site->counters().broken == 0);
  }
}

TEST_CASE("proxy: a reset ends both also after a half-close, where nobody reads any more",
          "[proxy]") {
  FOR_EVERY_TRANSPORT(transport) {
    const bool above = GENERATE(true, false);
    const bool stuck = GENERATE(true, false);  // the server accepts nothing, so reading is paused
    CAPTURE(above, stuck);
    Bed bed(transport, above);
    bed.connect();
    if (!bed.front.type.capabilities().half_close) return;
    if (transport.name == "tls+unix") return;              // TLS reads these bytes: no reset
    testing::send(bed.front.loop, *bed.server, "unread");  // makes a Unix socket's close a reset
    testing::await_readable(bed.front.loop, *bed.client);
    std::unique_ptr<Collector> at_server;
    if (stuck) {
      const std::string piece(64 << 10, 'x');
      for (int dry = 0; dry < 20; testing::turns(bed.front.loop, 1))
        dry = bed.client->write(piece.data(), piece.size()) < 0 ? dry + 1 : 0;
    } else {
      at_server = std::make_unique<Collector>(*bed.server);
    }
    REQUIRE(bed.client->shutdown() == 0);
    if (!stuck) RUN_UNTIL(bed.front.loop, at_server->ended);
    testing::turns(bed.front.loop, 20);
    REQUIRE(bed.site->open() == 1);
    bed.client.release()->abort();
    RUN_UNTIL(bed.front.loop, bed.site->open() == 0);
  }
}

TEST_CASE("proxy: a server that cannot be reached ends the client, with a sentence", "[proxy]") {
  FOR_EVERY_TRANSPORT(transport) {
    Bed bed(transport);
    bed.server_listener.reset();
    const conn::Endpoint at = testing::address_of(*bed.proxy_listener);
    bed.client = bed.front.registry.create(bed.front.loop, at);
    bed.client->connect(at, [](conn::Connection&) {});
    RUN_UNTIL(bed.front.loop, bed.site->counters().failed == 1);
    REQUIRE(bed.site->open() == 0);
    CAPTURE(bed.log);
    REQUIRE(bed.log.find(bed.folder->path()) != std::string::npos);
    RUN_UNTIL(bed.front.loop, bed.client->state() != conn::State::kConnecting);
    Collector end(*bed.client);
    RUN_UNTIL(bed.front.loop, end.over());
  }
}

TEST_CASE("proxy: a client that leaves before the server is reached is counted", "[proxy]") {
  const std::unique_ptr<ae::EventLoop> loop = testing::make_loop();
  conn::Registry registry = conn::all_transports();
  auto& stuck =
      static_cast<testing::StuckType&>(registry.add(std::make_unique<testing::StuckType>("stuck")));
  proxy::Settings settings;
  settings.connect = conn::Endpoint::parse("stuck://anything");
  proxy::Site site(*loop, registry, settings);
  const conn::ListenerPtr listener = registry.listen(
      *loop, "tcp://127.0.0.1:0", [&](conn::ConnectionPtr next) { site.accept(std::move(next)); });
  const conn::Endpoint at = testing::address_of(*listener);
  conn::ConnectionPtr client = registry.create(*loop, at);
  client->connect(at, {});
  RUN_UNTIL(*loop, stuck.waiting.size() == 1);
  client.release()->abort();
  RUN_UNTIL(*loop, site.open() == 0);
  const proxy::Counters& all = site.counters();
  CHECK(all.left == 1);
  CHECK(all.joined + all.failed + all.left == all.accepted);
}

TEST_CASE("proxy: no memory for the header counts as a server that was not reached", "[proxy]") {
  const std::unique_ptr<ae::EventLoop> loop = testing::make_loop();
  conn::Registry registry = conn::all_transports();
  auto& stuck =
      static_cast<testing::StuckType&>(registry.add(std::make_unique<testing::StuckType>("stuck")));
  stuck.write_throws = true;
  proxy::Settings settings;
  settings.connect = conn::Endpoint::parse("stuck://anything");
  settings.proxy_protocol = conn::ProxyVersion::kV1;
  proxy::Site site(*loop, registry, settings);
  const conn::ListenerPtr listener = registry.listen(
      *loop, "tcp://127.0.0.1:0", [&](conn::ConnectionPtr next) { site.accept(std::move(next)); });
  const conn::Endpoint at = testing::address_of(*listener);
  const conn::ConnectionPtr client = registry.create(*loop, at);
  client->connect(at, {});
  RUN_UNTIL(*loop, stuck.waiting.size() == 1);
  stuck.connect_all();
  RUN_UNTIL(*loop, site.open() == 0);
  const proxy::Counters& all = site.counters();
  CHECK(all.failed == 1);
  CHECK(all.broken == 0);
  CHECK(all.joined + all.failed + all.left == all.accepted);
}

TEST_CASE("proxy: port 0 names no server", "[proxy]") {
  const std::string url =
      GENERATE("tcp://127.0.0.1:0", "rdma|tcp://127.0.0.1:0", "tls://[::1]:0", "vsock://2:0");
  CAPTURE(url);
  proxy::Settings settings;
  settings.connect = conn::Endpoint::parse(url);
  CHECK_THROWS_WITH(proxy::check(settings),
                    "--connect: " + url + ": port 0 is not the port of a server");
  settings.connect = conn::Endpoint::parse("unix:///run/db");
  CHECK_NOTHROW(proxy::check(settings));
}

TEST_CASE("proxy: connections without a byte are closed after the idle timeout", "[proxy]") {
  FOR_EVERY_TRANSPORT(transport) {
    Bed bed(transport, true, 1s);
    bed.connect();
    Collector at_client(*bed.client);
    RUN_UNTIL(bed.front.loop, at_client.over());
    REQUIRE(bed.site->counters().idle == 1);
    REQUIRE(bed.log.find("no byte in 1 s") != std::string::npos);
  }
}

TEST_CASE("proxy: it drains: open relays go on, and their end is told", "[proxy]") {
  FOR_EVERY_TRANSPORT(transport) {
    Bed bed(transport);
    bool empty = false;
    bed.site->drain([&] { empty = true; });
    REQUIRE(empty);
    bed.connect();
    empty = false;
    bed.site->drain([&] { empty = true; });
    REQUIRE_FALSE(empty);
    testing::send(bed.front.loop, *bed.client, "still");
    REQUIRE(testing::receive(bed.front.loop, *bed.server, 5) == "still");
    bed.client.reset();
    RUN_UNTIL(bed.front.loop, empty || (bed.server && testing::read_some(*bed.server, 1).empty() &&
                                        (bed.server.reset(), empty)));
  }
}

TEST_CASE("proxy: several loops relay at once, and end under open relays", "[proxy]") {
  FOR_EVERY_TRANSPORT(transport) {
    if (!transport.threads || !transport.reaches_far || !transport.groups) return;
    constexpr std::size_t kClients = 12;
    constexpr std::uint64_t kTotal = 300'000;
    testing::Site site(transport);
    const testing::TempFolder folder;
    testing::EchoServer echo;
    const conn::ListenerPtr server =
        site.registry.listen(site.loop, "unix://" + folder.path() + "/s", echo.handler());
    ae::LoopGroup loops({.loops = 3, .name = "proxy"});
    proxy::Settings settings;
    settings.connect = testing::address_of(*server);
    std::vector<std::unique_ptr<proxy::Site>> sites(loops.size());
    loops.on_each([&](ae::EventLoop& loop, std::size_t i) {
      sites[i] = std::make_unique<proxy::Site>(loop, site.registry, settings);
    });
    conn::ListenerGroupPtr front =
        conn::listen(site.registry, loops, site.fresh(), [&](ae::EventLoop&, std::size_t i) {
          return [&sites, i](conn::ConnectionPtr next) { sites[i]->accept(std::move(next)); };
        });
    const conn::Endpoint at = front->endpoints().front();
    std::vector<conn::ConnectionPtr> clients;
    for (std::size_t i = 0; i < kClients; ++i) {
      clients.push_back(site.registry.create(site.loop, at));
      clients.back()->connect(at, [](conn::Connection&) {});
    }
    RUN_UNTIL(site.loop, std::all_of(clients.begin(), clients.end(), [](const auto& each) {
                return each->state() == conn::State::kConnected;
              }));
    std::vector<std::unique_ptr<testing::Receiver>> receivers;
    std::vector<std::unique_ptr<testing::Sender>> senders;
    for (std::size_t i = 0; i < kClients; ++i) {
      receivers.push_back(std::make_unique<testing::Receiver>(*clients[i], i));
      senders.push_back(std::make_unique<testing::Sender>(*clients[i], i, kTotal));
    }
    RUN_UNTIL(site.loop, std::all_of(receivers.begin(), receivers.end(),
                                     [](const auto& each) { return each->received == kTotal; }));
    for (const auto& each : receivers) REQUIRE(each->intact);
    front.reset();
    std::vector<std::size_t> open(loops.size());
    proxy::Counters all;
    std::mutex mutex;
    loops.on_each([&](ae::EventLoop&, std::size_t i) {
      const std::lock_guard lock(mutex);
      open[i] = sites[i]->open();
      all += sites[i]->counters();
      sites[i].reset();
    });
    REQUIRE(open == std::vector<std::size_t>(loops.size(), kClients / loops.size()));
    REQUIRE(all.joined == kClients);
    REQUIRE(all.upward == kClients * kTotal);
    REQUIRE(all.downward == kClients * kTotal);
    RUN_UNTIL(site.loop, std::all_of(receivers.begin(), receivers.end(), [](const auto& each) {
                return each->ended || each->error != 0;
              }));
  }
}

TEST_CASE("proxy: sockets of socket activation are this process's, or nobody's", "[proxy]") {
  struct Variables {
    Variables(const char* pid, const char* fds) {
      ::setenv("LISTEN_PID", pid, 1);
      ::setenv("LISTEN_FDS", fds, 1);
    }
    ~Variables() {
      ::unsetenv("LISTEN_PID");
      ::unsetenv("LISTEN_FDS");
    }
  };
  const std::string me = std::to_string(::getpid());
  {
    const Variables variables(me.c_str(), "2");
    REQUIRE(service::take_listening_descriptors() == 2);
    REQUIRE(std::getenv("LISTEN_FDS") == nullptr);
    REQUIRE(service::take_listening_descriptors() == 0);
  }
  for (const auto& [pid, fds] : {std::pair{"1", "2"},
                                 {me.c_str(), "-1"},
                                 {me.c_str(), "x"},
                                 {"", "2"},
                                 {me.c_str(), "100000"}}) {
    const Variables variables(pid, fds);
    REQUIRE(service::take_listening_descriptors() == 0);
  }
}

TEST_CASE("proxy: who started it is told when it is ready", "[proxy]") {
  const testing::TempFolder folder;
  const std::string path = folder.path() + "/notify";
  const int fd = ::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  REQUIRE(fd >= 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, path.c_str(), path.size());
  REQUIRE(::bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0);
  service::notify("READY=1");  // without NOTIFY_SOCKET
  ::setenv("NOTIFY_SOCKET", path.c_str(), 1);
  service::notify("READY=1");
  ::unsetenv("NOTIFY_SOCKET");
  char text[32];
  REQUIRE(::recv(fd, text, sizeof text, 0) == 7);
  REQUIRE(std::string_view(text, 7) == "READY=1");
  REQUIRE(::recv(fd, text, sizeof text, 0) == -1);
  ::close(fd);
}

TEST_CASE("proxy: thousands of failures are ten lines a second, and a sum", "[proxy]") {
  testing::Site front(testing::transports().front());
  proxy::Settings settings;
  std::vector<std::string> lines;
  settings.log = [&](const std::string& line) { lines.push_back(line); };
  const testing::TempFolder folder;
  settings.connect = conn::Endpoint::parse("unix://" + folder.path() + "/nobody");
  proxy::Site site(front.loop, front.registry, settings);
  const std::string url = "unix://" + folder.path() + "/proxy";
  const conn::ListenerPtr listener = front.registry.listen(
      front.loop, url, [&](conn::ConnectionPtr next) { site.accept(std::move(next)); });
  constexpr std::uint64_t kClients = 2000;
  for (std::uint64_t i = 0; i < kClients; ++i) {
    const conn::ConnectionPtr client =
        front.registry.connect(front.loop, url, [](conn::Connection&) {});
    RUN_UNTIL(front.loop, site.counters().failed == i + 1 && site.open() == 0);
  }
  settings.failures.sum_up(0, settings.log);  // as at the next second
  std::uint64_t written = 0, left_out = 0;
  for (const std::string& line : lines) {
    if (line.find(" more connections failed") != std::string::npos)
      left_out += std::stoull(line);
    else
      ++written;
  }
  CHECK(written + left_out == kClients);
  CHECK(left_out > kClients / 2);
}

// --- PROXY protocol ------------------------------------------------------------------------------

/// A server that trusts the header of the proxy in front of it, which listens on a port or a path.
struct Told : testing::Site {
  Told(const std::string& scheme, conn::ProxyVersion version) : Site({.name = scheme}) {
    settings.connect = testing::address_of(*behind);
    settings.proxy_protocol = version;
    proxy.emplace(loop, registry, settings);
    front = listen([this](conn::ConnectionPtr next) { proxy->accept(std::move(next)); });
  }
  conn::ConnectionPtr server;
  const conn::ListenerPtr behind =
      registry.listen(loop, "tcp://127.0.0.1:0?proxy-protocol=127.0.0.1",
                      [this](conn::ConnectionPtr next) { server = std::move(next); });
  proxy::Settings settings;
  std::optional<proxy::Site> proxy;
  conn::ListenerPtr front;
};

TEST_CASE("proxy: the server is told the client's address by a PROXY protocol header", "[proxy]") {
  const auto version = GENERATE(conn::ProxyVersion::kV1, conn::ProxyVersion::kV2);
  const auto scheme = GENERATE(as<std::string>(), "tcp", "unix");
  Told told(scheme, version);
  const RawSocket client = RawSocket::connect(testing::address_of(*told.front));
  client.send("question");
  RUN_UNTIL(told.loop, told.server != nullptr);
  CHECK(told.server->peer_host_port().host == "127.0.0.1");
  // A client of a Unix socket has no address, so the proxy's is shown.
  if (scheme == "tcp") CHECK(told.server->peer_host_port().port == client.endpoint().port);
  CHECK(testing::receive(told.loop, *told.server, 8) == "question");
  testing::send(told.loop, *told.server, "answer");
  testing::turns(told.loop, 20);
  CHECK(client.receive(6) == "answer");
  CHECK(told.proxy->counters().joined == 1);
  CHECK(told.proxy->counters().upward == 8);  // the header does not count
}

TEST_CASE("proxy: the name of a client's Unix socket is no address in the header", "[proxy]") {
  Told told("unix", conn::ProxyVersion::kV1);
  // A relative path, which its owner has chosen.
  const std::filesystem::path before = std::filesystem::current_path();
  std::filesystem::current_path(told.folder.path());
  const conn::tcp::Fd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const conn::SocketAddress forged = conn::tcp::unix_address("203.0.113.9:4711");
  const bool bound = ::bind(fd.get(), forged.get(), forged.size) == 0;
  std::filesystem::current_path(before);
  REQUIRE(bound);
  const conn::SocketAddress to = conn::tcp::unix_address(testing::address_of(*told.front).path);
  REQUIRE(::connect(fd.get(), to.get(), to.size) == 0);
  RUN_UNTIL(told.loop, told.server != nullptr);
  CHECK(told.server->peer_host_port().host == "127.0.0.1");
}

TEST_CASE("proxy: a PROXY protocol header is not sent behind TLS or over RDMA", "[proxy]") {
  proxy::Settings settings;
  const auto check = [&](const char* url) {
    settings.connect = conn::Endpoint::parse(url);
    proxy::check(settings);
  };
  CHECK_NOTHROW(check("tls://127.0.0.1:1"));
  settings.proxy_protocol = conn::ProxyVersion::kV2;
  CHECK_NOTHROW(check("tcp://127.0.0.1:1"));
  CHECK_NOTHROW(check("unix:///s"));
  for (const char* each :
       {"tls://127.0.0.1:1", "tls+unix:///s", "rdma://127.0.0.1:1", "rdma|tcp://127.0.0.1:1"})
    CHECK_THROWS_WITH(check(each), testing::Contains("comes before TLS"));
}
