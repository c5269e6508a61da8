// SPDX-License-Identifier: BSD-3-Clause
// conn/tcp's unix transport: socket files, and differences to tcp.

#include <fcntl.h>
#include <grp.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <thread>
#include <utility>

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
namespace fs = std::filesystem;

namespace {

/// Called once, after the next bind(2), as by somebody who watches the folder. Empty: nothing is.
std::function<void()> after_bind;

}  // namespace

// Replaces the C library's function in this program.
extern "C" int bind(int fd, const sockaddr* address, socklen_t size) noexcept {
  const long result = ::syscall(SYS_bind, fd, address, size);
  if (result == 0 && after_bind) std::exchange(after_bind, nullptr)();
  return static_cast<int>(result);
}

namespace {

const testing::Transport kUnix{.name = "unix"};

/// A folder, a path in it, and a type to listen with.
struct Place : Site {
  Place()
      : Site(kUnix),
        path(folder.path() + "/kv.sock"),
        endpoint(Endpoint::parse("unix://" + path)) {}
  conn::ListenerPtr listen_here(const std::string& options = {}) {
    Endpoint at = endpoint;
    at.options = conn::Options::parse(options);
    return type.listen(loop, at, [this](ConnectionPtr c) { accepted.push_back(std::move(c)); });
  }
  ConnectionPtr connect_here(conn::Options options = {}) {
    Endpoint to = endpoint;
    to.options = std::move(options);
    bool done = false;
    ConnectionPtr connection = connect(to, [&](Connection&) { done = true; });
    RUN_UNTIL(loop, done);
    return connection;
  }

  const std::string path;
  const Endpoint endpoint;
  std::vector<ConnectionPtr> accepted;
};

/// Leaves a socket file without a listener, like a killed server.
void leave_stale(const std::string& path) {
  const conn::tcp::Fd fd = conn::tcp::open_socket(AF_UNIX);
  const conn::SocketAddress address = conn::tcp::unix_address(path);
  REQUIRE(::bind(fd.get(), address.get(), address.size) == 0);
  REQUIRE(::listen(fd.get(), 1) == 0);
}

mode_t mode_of(const std::string& path) {
  struct stat info {};
  REQUIRE(lstat(path.c_str(), &info) == 0);
  return info.st_mode & 07777;
}

}  // namespace

TEST_CASE("unix: the socket file lives as long as its listener", "[unix]") {
  Place place;
  auto listener = place.listen_here();
  REQUIRE(fs::is_socket(place.path));
  REQUIRE(listener->endpoints().size() == 1);
  REQUIRE(listener->endpoints()[0].to_string() == "unix://" + place.path);
  listener.reset();
  REQUIRE_FALSE(fs::exists(place.path));
}

TEST_CASE("unix: addresses are the path, and the peer is always local", "[unix]") {
  testing::Pair pair(kUnix);
  const std::string path = testing::address_of(*pair.listener).path;
  REQUIRE(pair.client->peer_address() == path);
  REQUIRE(pair.client->local_address().empty());
  REQUIRE(pair.server->local_address() == path);
  REQUIRE(pair.server->peer_address() == path);
  REQUIRE(pair.client->is_local() == true);
  REQUIRE(pair.server->is_local() == true);
  REQUIRE(pair.client->fd() >= 0);
}

TEST_CASE("unix: mode sets the permissions exactly, whatever the umask", "[unix]") {
  Place place;
  const mode_t before = umask(027);
  auto listener = place.listen_here("mode=777");
  REQUIRE(mode_of(place.path) == 0777);
  listener.reset();
  listener = place.listen_here("mode=600");
  REQUIRE(mode_of(place.path) == 0600);
  listener.reset();
  listener = place.listen_here();
  REQUIRE(mode_of(place.path) == (0777 & ~027u));
  umask(before);
  for (const char* bad : {"888", "1777", "77777", "-1", "", "rw", "0x1ff"}) {
    CAPTURE(bad);
    REQUIRE_THROWS_WITH(place.type.configure({{"mode", bad}}), Contains("octal permissions"));
  }
}

TEST_CASE("unix: a stale socket is replaced", "[unix]") {
  Place place;
  leave_stale(place.path);
  const auto listener = place.listen_here();
  REQUIRE(place.connect_here()->state() == State::kConnected);
}

TEST_CASE("unix: a socket on which somebody listens is left alone", "[unix]") {
  Place place;
  const auto first = place.listen_here("backlog=1");
  const std::string why = "unix://" + place.path + ": listen on " + place.path +
                          ": another process listens on this socket";
  REQUIRE_THROWS_WITH(place.listen_here(), why);
  // Also when the backlog is full.
  std::vector<RawSocket> waiting;
  for (int i = 0; i < 3; ++i) {
    RawSocket one(::socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    const conn::SocketAddress to = conn::tcp::unix_address(place.path);
    (void)::connect(one.fd(), to.get(), to.size);
    waiting.push_back(std::move(one));
  }
  REQUIRE_THROWS_WITH(place.listen_here(), why);
  waiting.clear();
  place.accepted.clear();
  REQUIRE(place.connect_here()->state() == State::kConnected);
}

TEST_CASE("unix: what is not a socket is never removed", "[unix]") {
  Place place;
  std::ofstream(place.path) << "precious";
  REQUIRE_THROWS_WITH(place.listen_here(), Contains("the path exists and is not a socket"));
  REQUIRE(fs::file_size(place.path) == 8);
  fs::remove(place.path);

  fs::create_directory(place.path);
  REQUIRE_THROWS_WITH(place.listen_here(), Contains("is not a socket"));
  REQUIRE(fs::is_directory(place.path));
  fs::remove(place.path);

  leave_stale(place.folder.path() + "/target");
  fs::create_symlink(place.folder.path() + "/target", place.path);
  REQUIRE_THROWS_WITH(place.listen_here(), Contains("is not a socket"));
  REQUIRE(fs::is_symlink(place.path));
  REQUIRE(fs::is_socket(place.folder.path() + "/target"));
}

TEST_CASE("unix: a link that takes the place of the new socket changes no other file's mode",
          "[unix][hostile]") {
  // A file under the path, too, keeps its mode and its group.
  const bool link = GENERATE(true, false), group = GENERATE(false, true);
  CAPTURE(link, group);
  Place place;
  const std::string other = place.folder.path() + "/other";
  std::ofstream(other) << "precious";
  fs::permissions(other, fs::perms::owner_read);
  after_bind = [&] {
    fs::remove(place.path);
    link ? fs::create_symlink(other, place.path) : fs::create_hard_link(other, place.path);
  };
  const gid_t given = ::geteuid() == 0 ? 12345 : ::getegid();
  std::string why;
  try {
    (void)place.listen_here(group ? "group=" + std::to_string(given) : "mode=666");
  } catch (const conn::Error& error) {
    why = error.what();
  }
  REQUIRE_FALSE(after_bind);
  struct stat info {};
  REQUIRE(::stat(other.c_str(), &info) == 0);
  CHECK((info.st_mode & 07777) == 0400);
  CHECK(info.st_gid == ::getegid());
  CHECK_THAT(why, Contains(group ? "set its group" : "set its mode"));
}

TEST_CASE("unix: a socket of another kind is left alone", "[unix]") {
  Place place;
  const conn::tcp::Fd datagrams(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  const conn::SocketAddress address = conn::tcp::unix_address(place.path);
  REQUIRE(::bind(datagrams.get(), address.get(), address.size) == 0);
  REQUIRE_THROWS_WITH(place.listen_here(), Contains("for datagrams"));
  REQUIRE(fs::is_socket(place.path));
}

TEST_CASE("unix: a socket that may not be looked at is left alone", "[unix]") {
  Place place;
  leave_stale(place.path);
  fs::permissions(place.path, fs::perms::none);
  fs::permissions(place.folder.path(), fs::perms::all);
  const pid_t child = fork();  // drops root's privileges, which allow access
  REQUIRE(child >= 0);
  if (child == 0) {
    if (::geteuid() == 0 && ::seteuid(65534) != 0) _exit(2);
    try {
      (void)place.listen_here();
    } catch (const conn::Error& error) {
      _exit(std::string(error.what()).find("Permission denied") != std::string::npos ? 0 : 3);
    }
    _exit(1);
  }
  int status = -1;
  REQUIRE(waitpid(child, &status, 0) == child);
  REQUIRE(status == 0);
  REQUIRE(fs::is_socket(place.path));
}

TEST_CASE("unix: only its own file is removed by a listener", "[unix]") {
  Place place;
  auto old = place.listen_here();
  fs::remove(place.path);
  const auto young = place.listen_here();
  old.reset();
  REQUIRE(fs::is_socket(place.path));
  REQUIRE(place.connect_here()->state() == State::kConnected);
}

TEST_CASE("unix: a forked child leaves the file to its parent", "[unix]") {
  Place place;
  auto listener = place.listen_here();
  const pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    listener.reset();
    _exit(0);
  }
  int status = -1;
  REQUIRE(waitpid(child, &status, 0) == child);
  REQUIRE(status == 0);
  REQUIRE(fs::is_socket(place.path));
}

TEST_CASE("unix: of many servers that start at once on a stale socket, one listens", "[unix]") {
  testing::TempFolder folder;
  for (int round = 0; round < 10; ++round) {
    const std::string path = folder.path() + "/kv" + std::to_string(round);
    leave_stale(path);
    std::atomic<int> listening{0}, refused{0};
    std::atomic<bool> go{false}, stop{false};
    std::vector<std::thread> servers;
    for (int i = 0; i < 4; ++i) {
      servers.emplace_back([&] {
        const conn::Registry registry = testing::test_registry();
        testing::AnyLoop loop;
        while (!go) std::this_thread::yield();
        try {
          const auto listener = registry.listen(loop, "unix://" + path, [](auto) {});
          ++listening;
          while (!stop) std::this_thread::sleep_for(1ms);
        } catch (const conn::Error&) {
          ++refused;
        }
      });
    }
    go = true;
    while (listening + refused < 4) std::this_thread::sleep_for(1ms);
    stop = true;
    for (std::thread& server : servers) server.join();
    REQUIRE(listening == 1);
    REQUIRE(refused == 3);
  }
}

TEST_CASE("unix: paths that no socket can have are one sentence", "[unix]") {
  Place place;
  const auto refused = [&](const std::string& path, const char* why) {
    Endpoint endpoint;
    endpoint.scheme = "unix";
    endpoint.path = path;
    CAPTURE(path);
    REQUIRE_THROWS_WITH(place.type.listen(place.loop, endpoint, [](auto) {}), Contains(why));
  };
  refused("", "needs the path");
  refused(std::string("/a\0b", 4), "NUL");
  refused("/" + std::string(107, 'x'),
          "too long for a Unix socket: 108 bytes, and 107 is the limit");
  refused(place.folder.path() + "/no/such/folder", "No such file or directory");
  REQUIRE_THROWS_WITH(place.type.check(Endpoint::parse("tcp://127.0.0.1:1")),
                      Contains("not a unix endpoint"));
  REQUIRE_THROWS_WITH(place.type.check(Endpoint::parse("unix:///x?nodelay=yes")),
                      Contains("unix has no option nodelay"));
}

TEST_CASE("unix: a path of 107 bytes works", "[unix]") {
  Place place;
  std::string path = place.folder.path() + "/";
  path += std::string(107 - path.size(), 'p');
  Endpoint endpoint;
  endpoint.scheme = "unix";
  endpoint.path = path;
  const auto listener = place.type.listen(place.loop, endpoint, [](auto) {});
  REQUIRE(place.type.create(place.loop)->connect_blocking(endpoint, 5s));
}

TEST_CASE("unix: a failed connect names the path and the reason", "[unix]") {
  Place place;
  REQUIRE(place.connect_here()->last_error() ==
          "connect to " + place.path + ": No such file or directory");
  leave_stale(place.path);
  const ConnectionPtr refused = place.connect_here();
  REQUIRE(refused->last_error() == "connect to " + place.path + ": Connection refused");
  REQUIRE(refused->state() == State::kError);
  const ConnectionPtr waited = place.type.create(place.loop);
  REQUIRE_FALSE(waited->connect_blocking(place.endpoint, 1s));
  REQUIRE(errno == ECONNREFUSED);
  Endpoint too_long = place.endpoint;
  too_long.path += std::string(120, 'x');
  REQUIRE_FALSE(place.type.create(place.loop)->connect_blocking(too_long, 1s));
  REQUIRE(errno == EINVAL);
}

TEST_CASE("unix: a connect waits for room in a full backlog, within its time", "[unix]") {
  Place place;
  const auto listener = place.listen_here("backlog=1");
  listener->pause();
  std::vector<RawSocket> waiting;
  for (int i = 0; i < 2; ++i) waiting.push_back(RawSocket::connect(place.endpoint));

  const ConnectionPtr late = place.connect_here({{"connect-timeout", "60ms"}});
  REQUIRE(late->last_error() == "connect to " + place.path + ": Connection timed out");
  const ConnectionPtr blocked = place.type.create(place.loop);
  REQUIRE_FALSE(blocked->connect_blocking(place.endpoint, 60ms));
  REQUIRE(errno == ETIMEDOUT);

  bool connected = false;
  const ConnectionPtr patient = place.connect(
      place.endpoint, [&](Connection& c) { connected = c.state() == State::kConnected; });
  testing::turns(place.loop, 3);
  REQUIRE_FALSE(connected);
  listener->resume();
  RUN_UNTIL(place.loop, connected);
}

TEST_CASE("unix: a peer whose bytes were not read sees end of stream, not an error", "[unix]") {
  Place place;
  const auto listener = place.listen_here();
  const RawSocket client = RawSocket::connect(place.endpoint);
  RUN_UNTIL(place.loop, place.accepted.size() == 1);
  REQUIRE(client.send_what_fits(std::string(1 << 20, 'q')) > 0);
  REQUIRE(place.accepted[0]->write("-ERR bye\r\n", 10) == 10);
  place.accepted.clear();
  REQUIRE(client.receive(100) == "-ERR bye\r\n");
  testing::turns(place.loop, 2);
  REQUIRE(place.type.counters(place.loop).open == 0);
}

TEST_CASE("unix: what write took is with the peer when the connection is closed", "[unix]") {
  Place place;
  const auto listener = place.listen_here();
  const RawSocket client = RawSocket::connect(place.endpoint);
  RUN_UNTIL(place.loop, place.accepted.size() == 1);
  const std::string chunk(64 << 10, 'x');
  std::size_t sent = 0;
  for (ssize_t n; (n = place.accepted[0]->write(chunk.data(), chunk.size())) > 0;) {
    sent += static_cast<std::size_t>(n);
  }
  place.accepted.clear();
  testing::turns(place.loop, 2);
  REQUIRE(place.type.counters(place.loop).open == 0);  // no connection lingers
  REQUIRE(client.receive(sent + 1).size() == sent);
}

TEST_CASE("unix: a write to a peer that is gone says EPIPE and raises no signal", "[unix]") {
  testing::Pair pair(kUnix);
  pair.client.reset();
  testing::turns(pair.loop, 2);
  REQUIRE(pair.server->write("x", 1) == -1);
  REQUIRE(errno == EPIPE);
  REQUIRE(pair.server->state() == State::kError);
  REQUIRE_THAT(pair.server->last_error(), StartsWith("write to /") && Contains("Broken pipe"));
}

// --- abstract names ------------------------------------------------------------------------------

namespace {

/// An abstract name that nobody else uses, as bytes, with the '@' before them.
std::string free_name(const Place& place, const std::string& end = {}) {
  return "@" + place.folder.path() + end;
}

ConnectionPtr connect_to(Place& place, const Endpoint& to) {
  bool done = false;
  ConnectionPtr connection = place.connect(to, [&](Connection&) { done = true; });
  RUN_UNTIL(place.loop, done);
  return connection;
}

Endpoint named(const std::string& name, const std::string& options = {}) {
  Endpoint endpoint;
  endpoint.scheme = "unix";
  endpoint.path = name;
  endpoint.options = conn::Options::parse(options);
  return endpoint;
}

}  // namespace

TEST_CASE("unix: an abstract name makes no file, and is shown with '@'", "[unix]") {
  Place place;
  const std::string name = free_name(place);
  auto listener = place.type.listen(place.loop, Endpoint::parse("unix:" + name),
                                    [&](auto c) { place.accepted.push_back(std::move(c)); });
  REQUIRE(testing::address_of(*listener).to_string() == "unix:" + name);
  const ConnectionPtr client = connect_to(place, testing::address_of(*listener));
  REQUIRE(client->state() == State::kConnected);
  RUN_UNTIL(place.loop, place.accepted.size() == 1);
  REQUIRE(client->peer_address() == name);
  REQUIRE(client->path() == "unix " + name);
  REQUIRE(place.accepted[0]->local_address() == name);
  REQUIRE(client->peer_host_port().host == name);
  REQUIRE(fs::is_empty(place.folder.path()));
  REQUIRE_FALSE(fs::exists(name));

  REQUIRE_THROWS_WITH(place.type.listen(place.loop, named(name), [](auto) {}),
                      Contains("another process uses this abstract name"));
  listener.reset();
  const ConnectionPtr refused = connect_to(place, named(name));
  REQUIRE(refused->last_error() == "connect to " + name + ": Connection refused");
  REQUIRE_NOTHROW(place.type.listen(place.loop, named(name), [](auto) {}));
}

TEST_CASE("unix: an abstract name may have any bytes, written as %XX", "[unix]") {
  Place place;
  std::string bytes;
  for (int c = 0; c < 256; c += 5) bytes += static_cast<char>(c);
  const std::string name = free_name(place, bytes);
  const auto listener = place.type.listen(place.loop, named(name),
                                          [&](auto c) { place.accepted.push_back(std::move(c)); });
  const std::string url = testing::address_of(*listener).to_string();
  REQUIRE_THAT(url, StartsWith("unix:@/") && Contains("%00%05"));
  REQUIRE(Endpoint::parse(url).path == name);
  const ConnectionPtr client = connect_to(place, Endpoint::parse(url));
  REQUIRE(client->state() == State::kConnected);
  REQUIRE(client->peer_address() == name);
  REQUIRE(client->path() == conn::printable("unix " + name));
  // Without the byte at its end it is another name.
  REQUIRE(connect_to(place, named(name.substr(0, name.size() - 1)))->state() == State::kError);
}

TEST_CASE("unix: abstract names that nobody can have are one sentence", "[unix]") {
  Place place;
  const auto refused = [&](const std::string& name, const std::string& options, const char* why) {
    CAPTURE(name, options);
    REQUIRE_THROWS_WITH(place.type.listen(place.loop, named(name, options), [](auto) {}),
                        Contains(why));
  };
  refused("@", "", "the abstract name after '@' is missing, as in unix:@kv");
  refused("@" + std::string(108, 'x'), "",
          "too long for a Unix socket: 109 bytes, and 108 is the limit");
  for (const char* option : {"mode=600", "group=0"})
    refused(free_name(place), option, "an abstract name is no file and has neither mode nor group");
  std::string longest = free_name(place);
  longest += std::string(108 - longest.size(), 'x');
  const auto listener = place.type.listen(place.loop, named(longest), [](auto) {});
  REQUIRE(connect_to(place, testing::address_of(*listener))->peer_address() == longest);
}

TEST_CASE("unix: a file whose name begins with '@' is not taken for an abstract name", "[unix]") {
  Place place;
  const fs::path before = fs::current_path();
  fs::current_path(place.folder.path());
  {
    const auto listener = place.type.listen(place.loop, Endpoint::parse("unix:./@kv"), [](auto) {});
    CHECK(fs::is_socket("@kv"));
    CHECK(connect_to(place, Endpoint::parse("unix:./@kv"))->peer_address() == "./@kv");
    CHECK(connect_to(place, Endpoint::parse("unix:@kv"))->state() == State::kError);
  }
  // Others may have bound the file by its bare name.
  const RawSocket raw(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_un bare{};
  bare.sun_family = AF_UNIX;
  std::memcpy(bare.sun_path, "@kv", 4);
  CHECK(::bind(raw.fd(), reinterpret_cast<const sockaddr*>(&bare), sizeof bare) == 0);
  CHECK(conn::tcp::local_address_of(raw.fd()).to_string() == "./@kv");
  fs::current_path(before);
}

// --- who is at the other end ---------------------------------------------------------------------

TEST_CASE("unix: each end knows the process at the other one", "[unix]") {
  Place place;
  const auto listener = place.listen_here("mode=777");
  fs::permissions(place.folder.path(), fs::perms::all);
  const pid_t child = fork();  // a child of another user, where the test may change it
  REQUIRE(child >= 0);
  if (child == 0) {
    if (::geteuid() == 0 && (::setegid(65533) != 0 || ::seteuid(65534) != 0)) _exit(2);
    const RawSocket socket = RawSocket::connect(place.endpoint);
    _exit(socket.receive(1) == "x" ? 0 : 1);
  }
  RUN_UNTIL(place.loop, place.accepted.size() == 1);
  Connection& server = *place.accepted[0];
  const auto peer = server.peer_credentials();
  REQUIRE(peer.has_value());
  CHECK(peer->pid == child);
  CHECK(peer->uid == (::geteuid() == 0 ? 65534 : ::geteuid()));
  CHECK(peer->gid == (::geteuid() == 0 ? 65533 : ::getegid()));
  const auto info = server.info();
  for (const auto& [key, value] :
       {std::pair("peer-pid", peer->pid + 0L), std::pair("peer-uid", peer->uid + 0L),
        std::pair("peer-gid", peer->gid + 0L)})
    CHECK(std::count(info.begin(), info.end(), std::pair(std::string(key), std::to_string(value))));
  CHECK(server.write("x", 1) == 1);
  int status = -1;
  REQUIRE(waitpid(child, &status, 0) == child);
  CHECK(status == 0);
  CHECK(server.peer_credentials()->pid == child);  // as it was when it connected

  const ConnectionPtr client = place.connect_here();
  REQUIRE(client->peer_credentials().has_value());
  CHECK(client->peer_credentials()->pid == ::getpid());  // who called listen()
}

// --- the group of the file -----------------------------------------------------------------------

TEST_CASE("unix: group sets the group of the file, by number and by name", "[unix]") {
  Place place;
  const auto group_of = [&] {
    struct stat info {};
    REQUIRE(lstat(place.path.c_str(), &info) == 0);
    return info.st_gid;
  };
  const gid_t ours = ::getegid(), other = ::geteuid() == 0 ? 12345 : ours;
  auto listener = place.listen_here("group=" + std::to_string(other) + "&mode=660");
  CHECK(group_of() == other);
  CHECK(mode_of(place.path) == 0660);
  listener.reset();
  if (const group* const entry = ::getgrgid(ours); entry != nullptr) {
    listener = place.listen_here(std::string("group=") + entry->gr_name);
    CHECK(group_of() == ours);
    listener.reset();
  }
  for (const char* bad : {"no-such-group", "", "4294967295", "-1", "%00"}) {
    CAPTURE(bad);
    CHECK_THROWS_WITH(place.listen_here(std::string("group=") + bad),
                      Contains("this machine has no such group; give the name or the number"));
    CHECK_FALSE(fs::exists(place.path));
  }
}

TEST_CASE("unix: a group that the process may not give leaves no file", "[unix]") {
  Place place;
  fs::permissions(place.folder.path(), fs::perms::all);
  const pid_t child = fork();  // drops root's privileges, which allow it
  REQUIRE(child >= 0);
  if (child == 0) {
    if (::geteuid() == 0 && (::setegid(65533) != 0 || ::seteuid(65534) != 0)) _exit(2);
    try {
      (void)place.listen_here("group=12345");
    } catch (const conn::Error& error) {
      const std::string text = error.what();
      const bool clear = text.starts_with("unix://" + place.path) &&
                         text.find("must belong to the group") != std::string::npos;
      const bool coded = conn::Failure(error).code == std::errc::operation_not_permitted;
      _exit(!clear ? 3 : fs::exists(place.path) ? 4 : !coded ? 5 : 0);
    }
    _exit(1);
  }
  int status = -1;
  REQUIRE(waitpid(child, &status, 0) == child);
  REQUIRE(status == 0);
}
