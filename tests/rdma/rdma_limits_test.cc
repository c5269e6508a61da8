// SPDX-License-Identifier: BSD-3-Clause
// Deadlines, options, other processes and threads, and that nothing is left behind.
#if AECONN_RDMA

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <thread>

#include "conn/rdma/device/memory.h"
#include "conn/rdma/device/verbs.h"
#include "tests/support/rdma_kit.h"

using conn::Connection;
using conn::ConnectionPtr;
using conn::Endpoint;
using conn::State;
using conn::rdma::registered_bytes;
using testing::Child;
using testing::RawNet;
using testing::RawOptions;
using testing::RawPeer;
using testing::Scene;
using testing::Site;
using testing::with_options;
using namespace std::chrono_literals;

namespace {

struct DeviceSite : Site {
  DeviceSite() : Site(testing::rdma_transport()) {}
  conn::ListenerPtr listen_with(const std::string& options, conn::AcceptHandler accepted = {}) {
    if (!accepted) accepted = echo.handler();
    return type.listen(loop, testing::rdma_endpoint(options), std::move(accepted));
  }
  testing::EchoLog echo;
};

/// The result of a connect, and how long it took.
struct Attempt {
  std::string error;
  ae::Duration took;
};
Attempt attempt(Site& site, const Endpoint& to) {
  const ae::TimePoint begin = testing::now();
  const ConnectionPtr client = site.connect(to);
  RUN_UNTIL(site.loop, client->state() != State::kConnecting);
  REQUIRE(client->state() == State::kError);
  return {client->last_error(), testing::now() - begin};
}

void echo_once(ae::EventLoop& loop, Connection& connection, const std::string& bytes) {
  testing::send(loop, connection, bytes);
  REQUIRE(testing::receive(loop, connection, bytes.size()) == bytes);
}

std::string listen_error(DeviceSite& site, const std::string& url) {
  try {
    const auto listener = site.type.listen(site.loop, Endpoint::parse(url), site.echo.handler());
  } catch (const conn::Error& error) {
    return error.what();
  }
  return {};
}

}  // namespace

// --- deadlines -----------------------------------------------------------------------------------

TEST_CASE("rdma limits: connecting where nobody listens fails at once", "[rdma-device]") {
  DeviceSite site;
  const Attempt refused = attempt(site, site.deserted());
  INFO(refused.error);
  CHECK(refused.error.find("refused") != std::string::npos);
  CHECK(refused.took < testing::promptly());
}

TEST_CASE("rdma limits: an address that nobody answers for is given up after connect-timeout",
          "[rdma-device]") {
  DeviceSite site;
  // An address in the device's own network, so that address resolution is needed.
  std::string host = testing::rdma_endpoint().hosts.front().name;
  host = host.substr(0, host.rfind('.')) + ".213";
  const Attempt lost =
      attempt(site, Endpoint::parse("rdma://" + host + ":7000?connect-timeout=1s"));
  INFO(lost.error);
  CHECK_FALSE(lost.error.empty());
  CHECK(lost.took < 1s + testing::promptly());
}

TEST_CASE("rdma limits: a server that ignores the request is given up after connect-timeout",
          "[rdma-device]") {
  DeviceSite site;
  RawNet servers(site.loop);
  const Endpoint to = servers.listen({}, RawNet::Answer::kIgnore);
  const std::uint64_t held = registered_bytes();
  const Attempt ignored = attempt(site, with_options(to, "connect-timeout=1s"));
  INFO(ignored.error);
  CHECK(ignored.error.find("in time") != std::string::npos);
  CHECK(ignored.took >= 1s);
  CHECK(ignored.took < 1s + testing::promptly());
  REQUIRE(servers.requests == 1);
  RUN_UNTIL(site.loop, site.type.counters(site.loop).open == 0);
  site.type.cleanup(site.loop);
  CHECK(registered_bytes() == held);

  const ConnectionPtr blocking = site.type.create(site.loop);
  const ae::TimePoint begin = testing::now();
  CHECK_FALSE(blocking->connect_blocking(to, 1s));
  CHECK(testing::now() - begin < 1s + testing::promptly());
  CHECK_FALSE(blocking->last_error().empty());
}

TEST_CASE("rdma limits: a server that says no is one sentence", "[rdma-device]") {
  DeviceSite site;
  RawNet servers(site.loop);
  const Attempt rejected = attempt(site, servers.listen({}, RawNet::Answer::kReject));
  INFO(rejected.error);
  CHECK(rejected.error.find("refused by the server") != std::string::npos);
  CHECK(rejected.took < testing::promptly());
}

TEST_CASE("rdma limits: a server that never offers a window is given up after accept-timeout",
          "[rdma-device]") {
  DeviceSite site;
  RawNet servers(site.loop);
  RawOptions raw;
  raw.announce = false;
  const ConnectionPtr client =
      site.connect(with_options(servers.listen(raw), "accept-timeout=500ms"));
  testing::Collector collector(*client);
  RUN_UNTIL(site.loop, collector.over());
  INFO(client->last_error());
  CHECK(client->last_error().find("never offered a window") != std::string::npos);
}

TEST_CASE("rdma limits: close waits for a peer that never reads no longer than linger",
          "[rdma-device]") {
  Scene scene("linger=500ms");
  const std::uint64_t held = registered_bytes();
  RawOptions options;
  options.announce = false;
  options.window = 4096;
  const auto peer = scene.raw_client(options);
  peer->announce();  // 4 KiB and never more
  Connection* ours = scene.log.newest;
  const std::string much(100000, 'm');
  REQUIRE(ours->write(much.data(), much.size()) == static_cast<ssize_t>(much.size()));
  RUN_UNTIL(scene.loop, peer->received.size() == 4096);
  const ae::TimePoint begin = testing::now();
  const auto& counters = scene.type.counters(scene.loop);
  const std::uint64_t open = counters.open;
  scene.log.close(*ours);
  RUN_UNTIL(scene.loop, peer->over() && counters.open == open - 1);
  CHECK(testing::now() - begin >= 500ms);
  CHECK(testing::now() - begin < 500ms + testing::promptly());
  CHECK(registered_bytes() <= held + (2 << 20));
  scene.innocent_echoes();
}

// --- other processes -----------------------------------------------------------------------------

namespace {

/// A child process with a connection that echoes, to an address that it is sent.
struct EchoingChild {
  EchoingChild()
      : orders([] {
          std::array<int, 2> ends{};
          REQUIRE(pipe(ends.data()) == 0);
          return ends;
        }()),
        child([this] {
          ::close(orders[1]);
          std::string url;
          for (char c; ::read(orders[0], &c, 1) == 1 && c != '\n';) url += c;
          Site site(testing::rdma_transport());
          testing::EchoServer echo;
          ConnectionPtr connection = site.type.create(site.loop);
          if (!connection->connect_blocking(Endpoint::parse(url), 60s)) _exit(3);
          echo.handler()(std::move(connection));
          while (echo.open() != 0) site.loop.process_events(ae::kFullIteration);
        }) {
    ::close(orders[0]);
  }
  ~EchoingChild() { ::close(orders[1]); }
  void connect(const Endpoint& to) {
    const std::string line = to.to_string() + "\n";
    REQUIRE(::write(orders[1], line.data(), line.size()) == static_cast<ssize_t>(line.size()));
  }
  std::array<int, 2> orders;
  Child child;
};

/// A listener that keeps its accepted connections, and one child connected to it.
struct WithChild {
  explicit WithChild(const std::string& options) {
    listener = site.listen_with(options, [this](ConnectionPtr c) { ours = std::move(c); });
    child.connect(with_options(testing::address_of(*listener), options));
    RUN_UNTIL(site.loop, ours != nullptr);
    echo_once(site.loop, *ours, "hello");
  }
  EchoingChild child;  // forks before this process has connections
  DeviceSite site;
  conn::ListenerPtr listener;
  ConnectionPtr ours;
};

}  // namespace

TEST_CASE("rdma limits: the death of the peer's process is noticed at once", "[rdma-device]") {
  WithChild with("");
  testing::Collector collector(*with.ours);
  const ae::TimePoint begin = testing::now();
  with.child.child.signal(SIGKILL);
  RUN_UNTIL(with.site.loop, collector.over());
  CHECK(testing::now() - begin < testing::promptly());
}

// Goal: a stopped process stays connected. Method: 20 of its keepalives are missed, six times as
// many as allowed for a peer whose device does not answer; then it continues.
TEST_CASE("rdma limits: a peer that is stopped stays connected, since its device answers",
          "[rdma-device]") {
  WithChild with("keepalive=100ms");
  testing::Collector collector(*with.ours);
  with.child.child.signal(SIGSTOP);
  const bool writes = GENERATE(false, true);
  CAPTURE(writes);
  if (writes) testing::send(with.site.loop, *with.ours, "to a sleeper");
  const ae::TimePoint until = testing::now() + 2s;  // how long the child sleeps
  while (testing::now() < until) {
    with.site.loop.add_time_event(20ms, [] { return ae::kNoMore; });
    with.site.loop.process_events(ae::kFullIteration);
  }
  INFO(with.ours->last_error());
  CHECK_FALSE(collector.over());
  with.child.child.signal(SIGCONT);
  if (!writes) testing::send(with.site.loop, *with.ours, "to a sleeper");
  RUN_UNTIL(with.site.loop, collector.bytes.size() == 12 || collector.over());
  CHECK(collector.bytes == "to a sleeper");
}

TEST_CASE("rdma limits: a child that was forked beside connections and exits disturbs none",
          "[rdma-device]") {
  Scene scene;
  for (const bool with_exec : {false, true}) {
    Child child([&] {
      if (with_exec) execlp("true", "true", nullptr);
      // The child acts on what it inherited: its own copies, not the parent's objects.
      scene.loop.process_events(ae::kDontWait);
      _exit(7);
    });
    scene.innocent_echoes(100000);
    CHECK(child.wait() == (with_exec ? 0 : 7));
    scene.innocent_echoes(100000);
  }
}

TEST_CASE("rdma limits: whatever a child destroys, its parent's connections go on",
          "[rdma-device]") {
  Scene scene;
  for (const bool loop_first : {true, false}) {
    Child child([&] {
      if (loop_first) std::destroy_at(&scene.loop);
      scene.innocent.reset();
      scene.log.close_all();
      scene.listener.reset();
      if (!loop_first) std::destroy_at(&scene.loop);
      _exit(7);
    });
    scene.innocent_echoes(100000);
    CHECK(child.wait() == 7);
    scene.innocent_echoes(100000);
  }
}

// --- options -------------------------------------------------------------------------------------

TEST_CASE("rdma limits: short queues, no inline and every isolation carry the same bytes",
          "[rdma-device]") {
  const std::string options = GENERATE(
      "send-queue=8", "receive-queue=16&isolation=connection", "inline=0", "isolation=window",
      "isolation=none", "window=4k&max-window=4k", "window=16",
      "send-queue=8&receive-queue=16&inline=0&isolation=connection&window=100&max-window=1000",
      "shared-receive-queue=64", "send-buffer=4096", "keepalive=0", "spin=1ms");
  INFO(options);
  DeviceSite site;
  const auto listener = site.listen_with(options);
  const ConnectionPtr client = site.connect(with_options(testing::address_of(*listener), options));
  RUN_UNTIL(site.loop, client->state() != State::kConnecting);
  INFO(client->last_error());
  REQUIRE(client->state() == State::kConnected);
  const std::size_t size = options == "window=16" ? 5000 : 300000;
  testing::Sender sender(*client, 5, size);
  testing::Receiver receiver(*client, 5);
  RUN_UNTIL(site.loop, receiver.received == size || receiver.error != 0);
  CHECK(receiver.error == 0);
  CHECK(receiver.intact);
  for (int i = 0; i < 50; ++i) echo_once(site.loop, *client, "small " + std::to_string(i));
}

TEST_CASE("rdma limits: an option that is wrong is one sentence that names it", "[rdma-device]") {
  DeviceSite site;
  const std::string here = testing::rdma_endpoint().hosts.front().name;
  const auto error = [&](const std::string& options) {
    const std::string listening = listen_error(site, "rdma://" + here + ":0?" + options);
    INFO(listening);
    CHECK(listening.find('\n') == std::string::npos);
    return listening;
  };
  CHECK(error("wnidow=4k").find("wnidow") != std::string::npos);
  CHECK(error("isolation=some").find("isolation=some") != std::string::npos);
  CHECK(error("send-queue=1").find("send-queue") != std::string::npos);
  CHECK(error("device=mlx5_77").find("mlx5_77") != std::string::npos);
  CHECK(listen_error(site, "rdma://192.0.2.1:0").find("192.0.2.1") != std::string::npos);

  const auto listener = site.listen_with("");
  const Endpoint to = testing::address_of(*listener);
  const Attempt no_device = attempt(site, with_options(to, "device=mlx5_77"));
  INFO(no_device.error);
  CHECK(no_device.error.find("mlx5_77") != std::string::npos);
  CHECK(no_device.took < testing::promptly());
  for (const std::string options : {"source=nonsense", "source=192.0.2.1", "bogus=1"}) {
    const Attempt bad = attempt(site, with_options(to, options));
    INFO(bad.error);
    CHECK(bad.error.find(options == "bogus=1" ? "bogus" : options.substr(options.find('=') + 1)) !=
          std::string::npos);
  }
  const ConnectionPtr client = site.connect(with_options(to, "source=" + here));
  RUN_UNTIL(site.loop, client->state() != State::kConnecting);
  CHECK(client->state() == State::kConnected);
  CHECK(client->local_address().find(here) == 0);
}

TEST_CASE("rdma limits: beyond memory-limit connections are turned away with the reason",
          "[rdma-device]") {
  DeviceSite site;
  const std::uint64_t limit = registered_bytes() + (3 << 20);
  const auto listener =
      site.listen_with("isolation=connection&memory-limit=" + std::to_string(limit));
  std::vector<ConnectionPtr> clients;
  std::string refusal;
  while (refusal.empty() && clients.size() < 50) {
    clients.push_back(site.connect(with_options(testing::address_of(*listener), "isolation=none")));
    RUN_UNTIL(site.loop, clients.back()->state() != State::kConnecting);
    refusal = clients.back()->last_error();
  }
  INFO(refusal << " after " << clients.size());
  CHECK(refusal.find("memory-limit") != std::string::npos);
  CHECK(registered_bytes() < limit + (4 << 20));
  REQUIRE(clients.size() > 1);
  echo_once(site.loop, *clients.front(), "the first goes on");
  // Closed connections make room for new ones.
  clients.clear();
  RUN_UNTIL(site.loop, site.type.counters(site.loop).open == 0);
  const ConnectionPtr next = site.connect(testing::address_of(*listener));
  RUN_UNTIL(site.loop, next->state() != State::kConnecting);
  INFO(next->last_error());
  CHECK(next->state() == State::kConnected);
}

TEST_CASE("rdma limits: two listeners on one port are one sentence", "[rdma-device]") {
  DeviceSite site;
  const auto first = site.listen_with("");
  const std::string error = listen_error(site, testing::address_of(*first).to_string());
  INFO(error);
  CHECK(error.find("in use") != std::string::npos);
}

TEST_CASE("rdma limits: IPv6", "[rdma-device]") {
  const char* address = std::getenv("AECONN_RDMA_ADDRESS6");
  if (address == nullptr) {
    WARN("no AECONN_RDMA_ADDRESS6");
    return;
  }
  DeviceSite site;
  const auto listener = site.type.listen(
      site.loop, Endpoint::parse("rdma://[" + std::string(address) + "]:0"), site.echo.handler());
  const ConnectionPtr client = site.connect(testing::address_of(*listener));
  RUN_UNTIL(site.loop, client->state() != State::kConnecting);
  INFO(client->last_error());
  REQUIRE(client->state() == State::kConnected);
  echo_once(site.loop, *client, "over IPv6");
  CHECK(client->peer_address().find(address) == 1);
  CHECK(client->is_local() == true);
}

TEST_CASE("rdma limits: two loops on two threads share a device", "[rdma-device]") {
  std::vector<std::thread> threads;
  std::array<int, 2> done{};
  for (int& each : done)
    threads.emplace_back([&each] {
      DeviceSite site;
      const auto listener = site.listen_with("");
      for (int round = 0; round < 20; ++round) {
        const ConnectionPtr client = site.connect(testing::address_of(*listener));
        std::string got;
        client->set_read_handler([&](Connection& c) { got += testing::read_some(c, 100); });
        bool sent = false;
        const ae::TimePoint limit = testing::now() + 30s;
        while (got != "thread" && testing::now() < limit) {  // Catch2's macros are not thread-safe
          if (!sent && client->state() == State::kConnected) sent = client->write("thread", 6) == 6;
          site.loop.process_events(sent ? ae::kFullIteration : ae::kFullIteration | ae::kDontWait);
        }
        each += got == "thread";
      }
    });
  for (std::thread& thread : threads) thread.join();
  CHECK(done == std::array<int, 2>{20, 20});
}

TEST_CASE("rdma limits: a server that closes in its accept handler is an end of stream",
          "[rdma-device]") {
  DeviceSite site;
  const auto linger = GENERATE("linger=3s", "linger=0");
  INFO(linger);
  const auto listener =
      site.listen_with(linger, [](ConnectionPtr c) { c->write("too many clients", 16); });
  for (int i = 0; i < 50; ++i) {
    const ConnectionPtr client = site.connect(testing::address_of(*listener));
    testing::Collector collector(*client);
    RUN_UNTIL(site.loop, collector.over() || client->state() == State::kError);
    INFO("round " << i << ": " << client->last_error());
    if (linger != std::string("linger=3s")) continue;  // cut, which is an error
    REQUIRE(collector.ended);
    REQUIRE(collector.bytes == "too many clients");
  }
}

// --- machines without RDMA -----------------------------------------------------------------------

TEST_CASE("rdma limits: without RDMA there is one clear sentence, and other transports work",
          "[rdma]") {
  if (access("/dev/infiniband/rdma_cm", F_OK) == 0) {
    WARN("skipped: this machine has RDMA");
    return;
  }
  DeviceSite site;
  std::string created;
  try {
    (void)site.type.create(site.loop);
  } catch (const conn::Error& error) {
    created = error.what();
    CHECK(error.code() == std::errc::no_such_device);
  }
  for (const std::string& error : {created, listen_error(site, "rdma://127.0.0.1:0")}) {
    INFO(error);
    CHECK(error.find("no RDMA device on this machine") == 0);
    CHECK(error.find('\n') == std::string::npos);
  }
  testing::Pair pair(testing::Transport{.name = "tcp"});
  testing::EchoServer echo;
  echo.handler()(std::move(pair.server));
  echo_once(pair.loop, *pair.client, "as ever");
}

#endif
