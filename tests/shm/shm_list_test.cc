// SPDX-License-Identifier: BSD-3-Clause
// shm in a list of schemes, shm|tcp://HOST:PORT?shm-path=PATH: it is taken if the server at PATH is
// the one that HOST:PORT leads to, and otherwise the list goes on at once and says why.

#include <net/if.h>
#include <sched.h>
#include <sys/fsuid.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/un.h>

#include <filesystem>
#include <list>
#include <thread>

#include "conn/fallback_type.h"
#include "conn/shm/type.h"
#include "tests/shm/shm_kit.h"
#include "tests/support/certificates.h"
#include "tests/support/group_kit.h"
#include "tests/support/loop_thread.h"
#include "tests/support/names.h"
#include "tests/support/raw_socket.h"
#include "tests/support/stuck_transport.h"
#include "tests/support/testing.h"

using Catch::Matchers::EndsWith;
using Catch::Matchers::StartsWith;
using conn::Connection;
using conn::ConnectionPtr;
using conn::Endpoint;
using conn::ListenerPtr;
using conn::SkipReason;
using conn::State;
using testing::Contains;
using namespace std::chrono_literals;

namespace {

/// A loop, its transports, and what the test's servers have accepted and refused.
struct Host {
  Host() {
    registry.on_fallback([this](const conn::Fallback& one) { told.push_back(one); });
  }

  std::string file(const std::string& name) const { return folder.path() + "/" + name; }
  /// A list's URL. Its options let only a failure start the next scheme.
  std::string url(const std::string& schemes, const std::string& place,
                  const std::string& path) const {
    return schemes + "://" + place + "?fallback-delay=24h&shm-path=" + path;
  }
  ListenerPtr listen(const std::string& at) {
    ListenerPtr listener = registry.listen(
        loop, at, [this](ConnectionPtr next) { accepted.push_back(std::move(next)); });
    listener->on_refused([this](const conn::Failure& why) { refused.push_back(why.text); });
    return listener;
  }
  static std::string port(const conn::Listener& listener) {
    return std::to_string(listener.endpoints().front().port);
  }
  ConnectionPtr connect(const std::string& to) {
    ConnectionPtr client = registry.connect(loop, to, {});
    RUN_UNTIL(loop, client->state() != State::kConnecting);
    return client;
  }
  /// Connects to where tcp leads, too, and checks that shm was tried and the reason.
  void goes_on(const std::string& to, const std::string& taken, const std::string& why) {
    told.clear();
    const std::size_t before = accepted.size();
    ConnectionPtr client = connect(to);
    CAPTURE(to, client->last_error());
    REQUIRE(client->state() == State::kConnected);
    RUN_UNTIL(loop, accepted.size() == before + 1);
    CHECK(accepted.back()->type().name() == taken);
    REQUIRE(told.size() == 1);
    CHECK(told[0].taken == taken);
    REQUIRE(told[0].not_taken.size() == 1);
    CHECK_THAT(told[0].not_taken[0].why.text, Contains(why));
    CHECK(client->path().starts_with(taken));
    CHECK_THAT(client->path(), Contains("; not shm: ") && Contains(why));
    CHECK(client->info().at(1).first == "not-shm");
  }
  void takes_shm(const std::string& to, const std::string& path) {
    told.clear();
    const std::size_t before = accepted.size();
    ConnectionPtr client = connect(to);
    CAPTURE(to, client->last_error(), client->path());
    REQUIRE(client->state() == State::kConnected);
    RUN_UNTIL(loop, accepted.size() == before + 1);
    CHECK(client->path() == "shm " + path);
    CHECK(client->info().at(0).second == "shm");
    CHECK(accepted.back()->type().name() == "shm");
    CHECK(told.empty());
    testing::send(loop, *client, "data");
    CHECK(testing::receive(loop, *accepted.back(), 4) == "data");
  }

  testing::TempFolder folder;
  conn::Registry registry = testing::test_registry();
  testing::AnyLoop loop;
  std::vector<ConnectionPtr> accepted;
  std::vector<std::string> refused;
  std::vector<conn::Fallback> told;
};

/// Runs `body` on a thread in a network namespace of its own, with a loopback device. Returns false
/// if this process may make none.
bool in_other_namespace(const std::function<void()>& body) {
  bool there = false;
  std::thread([&] {
    if (::unshare(CLONE_NEWNET) != 0) return;
    const conn::tcp::Fd any(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    ifreq lo{};
    std::strcpy(lo.ifr_name, "lo");
    lo.ifr_flags = IFF_UP;
    if (::ioctl(any.get(), SIOCSIFFLAGS, &lo) != 0) return;
    there = true;
    body();
  }).join();
  return there;
}

/// A hello for these rings and this destination, as another client might send it.
std::string hello_to(conn::shm::Destination to) {
  return conn::shm::encode(conn::shm::Hello{64 << 10, 64 << 10, std::move(to)});
}

}  // namespace

TEST_CASE("shm list: the server of the place is reached by shm", "[shm][shm-list]") {
  Host host;
  const std::string path = host.file("kv.shm");
  const ListenerPtr listener = host.listen(host.url("shm|tcp", "127.0.0.1:0", path));
  CHECK(listener->not_served().empty());
  const std::vector<Endpoint> at = listener->endpoints();
  REQUIRE(at.size() == 2);
  CHECK(at[0].scheme == "tcp");
  CHECK(at[1].to_string() == "shm://" + path);
  const std::string place = "127.0.0.1:" + host.port(*listener);
  host.takes_shm(host.url("shm|tcp", place, path), path);
  host.takes_shm(host.url("shm|tcp", "localhost:" + host.port(*listener), path), path);
  const ConnectionPtr named = host.connect("shm://" + path);  // the path alone asks for no place
  CHECK(named->state() == State::kConnected);
  const ConnectionPtr plain = host.connect("tcp://" + place);
  CHECK(plain->state() == State::kConnected);
  CHECK(host.refused.empty());
}

TEST_CASE("shm list: without a server at the path the list goes on at once", "[shm][shm-list]") {
  Host host;
  const ListenerPtr listener = host.listen("tcp://127.0.0.1:0");
  const std::string place = "127.0.0.1:" + host.port(*listener);
  const std::string path = host.file("kv.shm");
  const std::string to = host.url("shm|tcp", place, path);
  host.goes_on(to, "tcp", "connect to " + path + ": No such file or directory");
  CHECK(host.told[0].not_taken[0].kind == SkipReason::kRefused);
  {
    const conn::tcp::Fd stale(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    const conn::SocketAddress address = conn::tcp::unix_address(path);
    REQUIRE(::bind(stale.get(), address.get(), address.size) == 0);
  }
  host.goes_on(to, "tcp", "connect to " + path + ": Connection refused");
  CHECK(host.told[0].not_taken[0].kind == SkipReason::kRefused);
  if (geteuid() != 0) return;
  REQUIRE(::chmod(path.c_str(), 0600) == 0);
  ::setfsuid(65534);  // of this thread alone
  host.goes_on(to, "tcp", "connect to " + path + ": Permission denied");
  ::setfsuid(0);
}

TEST_CASE("shm list: a blocking connect takes the short cut, or the next way", "[shm][shm-list]") {
  Host host;
  const std::string path = host.file("kv.shm");
  testing::LoopThread server([&](const testing::LoopThread::Run& run) {
    testing::AnyLoop loop;
    std::vector<ConnectionPtr> accepted;
    const ListenerPtr listener =
        host.registry.listen(loop, host.url("shm|tcp", "127.0.0.1:0", path),
                             [&](ConnectionPtr next) { accepted.push_back(std::move(next)); });
    run(loop, listener->endpoints().front());
  });
  const std::string place = "127.0.0.1:" + std::to_string(server.address.port);
  const auto path_to = [&](const std::string& url) {
    const Endpoint to = Endpoint::parse(url);
    const ConnectionPtr client = host.registry.create(host.loop, to);
    CHECK(client->connect_blocking(to, testing::patience()));
    return client->path();
  };
  CHECK(path_to(host.url("shm|tcp", place, path)) == "shm " + path);
  CHECK_THAT(path_to(host.url("shm|tcp", place, path + "2")),
             StartsWith("tcp ") && Contains("; not shm: connect to " + path + "2: No such file"));
}

TEST_CASE("shm list: the path of another server is refused with the reason", "[shm][shm-list]") {
  Host host;
  const std::string path = host.file("kv.shm");
  const ListenerPtr one = host.listen(host.url("shm|tcp", "127.0.0.1:0", path));
  const ListenerPtr other = host.listen("tcp://127.0.0.1:0");
  const std::string here = "127.0.0.1:" + host.port(*one), there = "127.0.0.1:" + host.port(*other);
  host.goes_on(host.url("shm|tcp", there, path), "tcp",
               "refused: this server serves " + here + ", not " + there);
  CHECK(host.told[0].not_taken[0].kind == SkipReason::kRefused);
  REQUIRE(host.refused.size() == 1);
  CHECK_THAT(host.refused[0], Contains("not " + there));
  // The address counts as much as the port does.
  const ListenerPtr second = host.listen("tcp://127.0.0.2:" + host.port(*one));
  host.goes_on(host.url("shm|tcp", "127.0.0.2:" + host.port(*one), path), "tcp", "not 127.0.0.2:");
}

TEST_CASE("shm list: a listener of shm alone serves no other place", "[shm][shm-list]") {
  Host host;
  const std::string path = host.file("kv.shm");
  const ListenerPtr shm = host.listen("shm://" + path);
  const ListenerPtr tcp = host.listen("tcp://127.0.0.1:0");
  host.goes_on(host.url("shm|tcp", "127.0.0.1:" + host.port(*tcp), path), "tcp",
               "this listener serves its path alone");
}

TEST_CASE("shm list: a listener of all addresses has each of this host", "[shm][shm-list]") {
  Host host;
  const std::string path = host.file("kv.shm");
  const ListenerPtr listener = host.listen(host.url("shm|tcp", "*:0", path));
  for (const std::string name : {"127.0.0.1", "127.0.0.2", "0.0.0.0", "localhost"})
    host.takes_shm(host.url("shm|tcp", name + ":" + host.port(*listener), path), path);
}

TEST_CASE("shm list: another host's server is not looked for here", "[shm][shm-list]") {
  Host host;
  auto& stuck =
      static_cast<testing::StuckType&>(host.registry.add(std::make_unique<testing::StuckType>()));
  const std::string path = host.file("kv.shm");
  const ListenerPtr listener = host.listen(host.url("shm|tcp", "*:0", path));
  stuck.fail_at_once = ENETUNREACH;
  const bool several = GENERATE(false, true);
  const std::string hosts = several ? "203.0.113.1,203.0.113.2:" : "203.0.113.1:";
  const ConnectionPtr client =
      host.connect(host.url("shm|stuck", hosts + host.port(*listener), path));
  REQUIRE(client->state() == State::kError);
  CHECK_THAT(client->last_error(),
             Contains(several ? "not shm: none of 203.0.113.1, 203.0.113.2 is this host"
                              : "not shm: 203.0.113.1 is not this host"));
  CHECK(host.accepted.empty());
  CHECK(host.refused.empty());
}

TEST_CASE("shm list: a name is looked up within the time, and the lookup can be given up",
          "[shm][shm-list]") {
  testing::Names names;
  Host host;
  const std::string path = host.file("kv.shm");
  const ListenerPtr listener = host.listen(host.url("shm|tcp", "127.0.0.1:0", path));
  const std::string place = ".test:" + host.port(*listener);
  host.takes_shm(host.url("shm|tcp", "db" + place, path), path);
  host.takes_shm(host.url("shm|tcp", "no-such.invalid,db" + place, path), path);

  // As a list's candidate is given it.
  Endpoint to = Endpoint::parse(host.url("shm|tcp", "held" + place, path));
  to.scheme = "shm";
  to.options = conn::Options{{"shm-path", path}};
  names.hold("held.test");
  ConnectionPtr client = host.registry.create(host.loop, to);
  if (GENERATE(false, true)) {  // given up
    client->connect(to, {});
    RUN_UNTIL(host.loop, names.held() == 1);
    client.reset();
    names.release("held.test");
    testing::turns(host.loop, 10);
    return;
  }
  to.options.set("connect-timeout", "20ms");
  client->connect(to, {});
  RUN_UNTIL(host.loop, client->state() == State::kError);
  CHECK(client->last_error() ==
        "connect to " + path + ": the lookup takes too long: Connection timed out");
  const ConnectionPtr waits = host.registry.create(host.loop, to);
  CHECK_FALSE(waits->connect_blocking(to, testing::patience()));
  CHECK_THAT(waits->last_error(), StartsWith("resolve held.test: "));
  to.hosts = {{"no-such.invalid", false}};
  const ConnectionPtr nowhere = host.registry.create(host.loop, to);
  nowhere->connect(to, {});
  RUN_UNTIL(host.loop, nowhere->state() == State::kError);
  CHECK_THAT(nowhere->last_error(), StartsWith("resolve no-such.invalid: "));
}

TEST_CASE("shm list: a slow lookup takes its time from connect-timeout", "[shm][shm-list]") {
  testing::Names names;
  Host host;
  const std::string path = host.file("full.shm");
  // A server that accepts nothing, and whose backlog is full: connect() fails with EAGAIN.
  sockaddr_un name{};
  name.sun_family = AF_UNIX;
  path.copy(name.sun_path, sizeof name.sun_path - 1);
  const auto* const address = reinterpret_cast<const sockaddr*>(&name);
  const testing::RawSocket server(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  REQUIRE(::bind(server.fd(), address, sizeof name) == 0);
  REQUIRE(::listen(server.fd(), 0) == 0);
  std::list<testing::RawSocket> backlog;
  do {
    backlog.emplace_back(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  } while (::connect(backlog.back().fd(), address, sizeof name) == 0);
  Endpoint to = Endpoint::parse(host.url("shm|tcp", "held.test:1", path));
  to.scheme = "shm";
  to.options = conn::Options{{"shm-path", path}, {"connect-timeout", "200ms"}};
  names.hold("held.test");
  ConnectionPtr client = host.registry.create(host.loop, to);
  bool in_time = false, over = false;
  // Timers that are due at once run in the order of their times, so a slow machine changes nothing.
  host.loop.add_time_event(150ms, [&] {
    names.release("held.test");
    return ae::kNoMore;
  });
  host.loop.add_time_event(300ms, [&] {
    in_time = client->state() == State::kError;
    over = true;
    return ae::kNoMore;
  });
  client->connect(to, {});
  RUN_UNTIL(host.loop, over);
  CHECK(in_time);
  CHECK_THAT(client->last_error(), EndsWith("Connection timed out"));
}

TEST_CASE("shm list: a client of another network namespace gets the server that it means",
          "[shm][shm-list]") {
  Host host;
  const std::string path = host.file("kv.shm");
  const ListenerPtr listener = host.listen(host.url("shm|tcp", "127.0.0.1:0", path));
  const std::string port = host.port(*listener);
  bool done = false;
  std::thread other([&] {
    const bool there = in_other_namespace([&] {
      Host elsewhere;  // a server with the same address
      const ListenerPtr same = elsewhere.listen("tcp://127.0.0.1:" + port);
      elsewhere.goes_on(host.url("shm|tcp", "127.0.0.1:" + port, path), "tcp",
                        "refused: the client is in another network namespace");
      // The path alone asks for no place: containers that share a folder may use it.
      CHECK(elsewhere.connect("shm://" + path)->state() == State::kConnected);
    });
    if (!there) WARN("skipped: no network namespace of its own");
    host.loop.post([&] { done = true; });
  });
  RUN_UNTIL(host.loop, done);
  other.join();
}

TEST_CASE("shm list: beside a Unix socket the file decides", "[shm][shm-list]") {
  Host host;
  const std::string path = host.file("kv.shm"), socket = host.file("kv.sock");
  const ListenerPtr listener = host.listen("shm|unix://" + socket + "?shm-path=" + path);
  REQUIRE(listener->not_served().empty());
  host.takes_shm("shm|unix://" + socket + "?shm-path=" + path, path);
  REQUIRE(::symlink(socket.c_str(), host.file("link").c_str()) == 0);
  host.takes_shm("shm|unix://" + host.file("link") + "?shm-path=" + path, path);
  const std::string second = host.file("second.sock");
  const ListenerPtr other = host.listen("unix://" + second);
  host.goes_on("shm|unix://" + second + "?shm-path=" + path, "unix",
               "this server serves " + socket + ", not " + second);
  const ConnectionPtr nobody = host.connect("shm|unix:///nowhere/kv?shm-path=" + path);
  CHECK_THAT(nobody->last_error(), Contains("not shm: connect to /nowhere/kv: No such file"));
}

TEST_CASE("shm list: beside an abstract name the name and the namespace decide",
          "[shm][shm-list]") {
  Host host;
  const std::string name = "@aeconn-test-" + std::to_string(getpid());
  const std::string to = "shm|unix:" + name + "?shm-path=" + name + "-shm";
  const ListenerPtr listener = host.listen(to);
  REQUIRE(listener->not_served().empty());
  host.takes_shm(to, name + "-shm");
  const ListenerPtr other = host.listen("unix:" + name + "-other");
  host.goes_on("shm|unix:" + name + "-other?shm-path=" + name + "-shm", "unix",
               "this server serves " + name + ", not " + name + "-other");
}

TEST_CASE("shm list: shm listens only where another scheme of the list does", "[shm][shm-list]") {
  Host host;
  const std::string path = host.file("kv.shm");
  const ListenerPtr taken = host.listen("tcp://127.0.0.1:0");
  CHECK_THROWS_WITH(
      host.listen(host.url("shm|tcp", "127.0.0.1:" + host.port(*taken), path)),
      Contains("not shm: no other scheme of the list listens; not tcp: ") && Contains("in use"));
  CHECK_FALSE(std::filesystem::exists(path));
  const ListenerPtr listener = host.listen(host.url("shm|tcp", "127.0.0.1:0", "/nowhere/kv.shm"));
  REQUIRE(listener->not_served().size() == 1);
  CHECK_THAT(conn::describe(listener->not_served()),
             StartsWith("not shm: ") && Contains("/nowhere/kv.shm: No such file"));
}

TEST_CASE("shm list: a listener group serves the short cut on all of its loops",
          "[shm][shm-list][groups]") {
  Host host;
  const std::string path = host.file("kv.shm");
  testing::GroupServer server(host.registry,
                              Endpoint::parse(host.url("shm|tcp", "127.0.0.1:0", path)), 2);
  REQUIRE(server.listener->not_served().empty());
  const std::string port = std::to_string(server.address().port);
  std::vector<ConnectionPtr> clients;
  for (int i = 0; i < 4; ++i) {
    clients.push_back(host.connect(host.url("shm|tcp", "127.0.0.1:" + port, path)));
    CHECK(clients.back()->path() == "shm " + path);
    testing::send(host.loop, *clients.back(), "data");
    CHECK(testing::receive(host.loop, *clients.back(), 4) == "data");
  }
  const ConnectionPtr other = host.connect(host.url("shm|tcp", "127.0.0.2:" + port, path));
  CHECK_THAT(other->last_error(), Contains("this server serves 127.0.0.1:" + port));
  CHECK_FALSE(server.wrong_thread());
}

TEST_CASE("shm list: URLs that make no sense are refused with what to write", "[shm][shm-list]") {
  const auto why = [](const std::string& url) -> std::string {
    try {
      (void)Endpoint::parse(url);
    } catch (const conn::Error& error) {
      return error.what();
    }
    return {};
  };
  CHECK_THAT(why("shm|rdma://h:1"), EndsWith("as in ?shm-path=/run/kv.shm"));
  CHECK_THAT(why("shm|unix:///x"), EndsWith("as in ?shm-path=/run/kv.shm"));
  CHECK_THAT(why("shm:///x?shm-path=/y"), Contains("here the path stands in the URL"));
  CHECK_THAT(why("shm|tls+shm:///x?shm-path=/y"), Contains("here the path stands in the URL"));
  CHECK_THAT(why("shm|vsock://2:1?shm-path=/y"), Contains("leads to another machine"));
  CHECK_THAT(why("shm|tls+shm|tls://h:1?shm-path=/y"), Contains("cannot share the path"));
  CHECK_THAT(why("shm|unix|tcp://h:1?shm-path=/y"), Contains("cannot share a URL"));
  CHECK_THAT(why("tls+shm|tcp://h:1?shm-path=/y"), Contains("which is not encrypted"));
  for (const std::string url :
       {"shm|rdma://h:1?shm-path=/y", "tls+shm|tls+rdma|tls://h:1?shm-path=/y",
        "shm|tls://h:1?shm-path=/y", "shm|unix:///x?shm-path=/y", "tcp|shm://h:1?shm-path=/y",
        "tls+shm|tls+unix:///x?shm-path=%40y"}) {
    CHECK(why(url).empty());
    CHECK(Endpoint::parse(url).to_string() ==
          (url.ends_with("%40y") ? url.substr(0, url.size() - 4) + "@y" : url));
  }
  CHECK(conn::carries_path("shm|unix"));
  CHECK_FALSE(conn::carries_path("shm|tcp"));
  CHECK_FALSE(conn::carries_path("tls|tls+shm"));

  Host host;
  const auto check = [&](const std::string& url) {
    const Endpoint to = Endpoint::parse(url);
    host.registry.require(to.scheme).check(to);
  };
  CHECK_THROWS_WITH(check("tcp://h:1?shm-path=/y"), Contains("tcp has no option shm-path"));
  CHECK_THROWS_WITH(check("shm|tcp://h:1?shm-path="), Contains("the path is missing"));
  CHECK_THROWS_WITH(check("shm|tcp://h:1?shm-path=" + std::string(200, 'x')), Contains("shm"));
  CHECK_NOTHROW(check("shm|tcp://h:1?shm-path=/y&ring=1m&nodelay=no"));
  conn::ConnectionType& list = host.registry.require("shm|tcp");
  CHECK_THROWS_WITH(list.configure({{"shm-path", "/y"}}), Contains("belongs in a URL"));
  CHECK_THROWS_WITH(host.registry.require("shm").configure({{"shm-path", "/y"}}),
                    Contains("belongs in the URL of a list"));
  CHECK_NOTHROW(list.configure({{"ring", "128k"}, {"fallback-delay", "1s"}}));
}

TEST_CASE("shm list: a hello says where its URL leads", "[shm][shm-list][shm-hello]") {
  using conn::shm::Answer;
  const conn::shm::Destination to{"127.0.0.1,[::1]:6379", 0x123456789abcdef0, 0xfedcba9876543210};
  const std::string message = hello_to(to);
  conn::shm::Hello read;
  const auto status = [&](const std::string& bytes) {
    return conn::shm::decode(bytes, 16 << 20, read).status;
  };
  REQUIRE(status(message) == Answer::kStands);
  CHECK(read.destination.text == to.text);
  CHECK(read.destination.device == to.device);
  CHECK(read.destination.inode == to.inode);
  CHECK(message.size() == conn::shm::kHeader + to.text.size());
  CHECK(message[12] == 1);  // a server that does not know destinations has to refuse it
  CHECK(hello_to({})[12] == 0);
  CHECK(status(std::string(message).replace(12, 1, "\3")) == Answer::kVersion);
  for (const std::string& bad : {std::string("a b:1"), std::string("a\n:1"), std::string("\x80"),
                                 std::string(conn::shm::kMostDestination + 1, 'x')})
    CHECK(status(hello_to({bad})) == Answer::kRule);
  CHECK(status(hello_to({}).replace(12, 1, "\1")) == Answer::kRule);  // a text that is missing
}

TEST_CASE("shm list: a server compares addresses and port and namespace", "[shm][shm-list]") {
  Endpoint at = Endpoint::parse("shm|tcp://127.0.0.1,[::]:7?shm-path=/x");
  at.scheme = "shm";
  const conn::shm::Served served(at), nothing;
  Host host;
  // What the server knows of its namespace is what a client on this thread knows.
  conn::Failure why;
  const conn::shm::Destination here = conn::shm::destination_of(
      Endpoint::parse("tcp://127.0.0.1:7"), conn::resolve("127.0.0.1", 7, false).addresses, why);
  REQUIRE_FALSE(why);
  REQUIRE(here.text == "127.0.0.1:7");
  REQUIRE(here.inode != 0);
  const auto refusal = [&](const std::string& text) {
    return served.why_not({text, here.device, here.inode});
  };
  for (const char* good : {"127.0.0.1:7", "[::1]:7", "10.0.0.1,[fe80::1%eth0]:7"})
    CHECK(refusal(good).empty());
  for (const char* bad : {"127.0.0.2:7", "127.0.0.1:77", "127.0.0.1", "127.0.0.1:", ":7", "7",
                          ",:7", "@x", "[127.0.0.1]:7x", "::"})
    CHECK_THAT(refusal(bad), StartsWith("this server serves 127.0.0.1,[::]:7, not "));
  for (const char* path : {"/x", "./x"})
    CHECK_THAT(refusal(path), StartsWith("this server serves 127.0.0.1,[::]:7, not "));
  // An abstract name is not an address, whatever follows it.
  at.hosts = {{"0.0.0.0", false}};
  CHECK_FALSE(conn::shm::Served(at).why_not({"@x:7", here.device, here.inode}).empty());
  CHECK(served.why_not({}).empty());
  CHECK(nothing.why_not({}).empty());
  CHECK_THAT(nothing.why_not(here), Contains("its path alone"));
  CHECK_THAT(served.why_not({here.text, here.device, here.inode + 1}), Contains("another network"));
  CHECK_THAT(served.why_not({here.text, 0, 0}), Contains("is not known"));
}

#if AECONN_TLS
TEST_CASE("shm list: shm-path is no default of tls over shm", "[shm][shm-list][tls]") {
  Host host;
  CHECK_THROWS_WITH(host.registry.require("tls+shm").configure({{"shm-path", "/y"}}),
                    Contains("belongs in a URL"));
}

TEST_CASE("shm list: tls over shm checks the certificate of the host", "[shm][shm-list][tls]") {
  Host host;
  const std::string path = host.file("kv.shm");
  const ListenerPtr listener = host.listen(host.url("tls+shm|tls", "127.0.0.1:0", path) +
                                           "&cert=" + testing::test_identity().chain +
                                           "&key=" + testing::test_identity().key);
  REQUIRE(listener->not_served().empty());
  const std::string port = host.port(*listener);
  const ConnectionPtr good = host.connect(host.url("tls+shm|tls", "localhost:" + port, path) +
                                          "&ca=" + testing::test_ca());
  CAPTURE(good->last_error());
  REQUIRE(good->state() == State::kConnected);
  CHECK_THAT(good->path(), StartsWith("tls ") && EndsWith(" over shm " + path));
  const ConnectionPtr bad = host.connect(host.url("tls+shm|tls", "127.0.0.1:" + port, path) +
                                         "&server-name=other.example&ca=" + testing::test_ca());
  CHECK(bad->state() == State::kError);
}
#endif
