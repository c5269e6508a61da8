// SPDX-License-Identifier: BSD-3-Clause
// What moving a connection to another loop costs, beside an echo:
//
//   move [--epoll] [--count N] [--part NAME] [URL...]
//
//   echo       64 bytes there and back, both ends on one loop
//   connect    a new connection, both ends on one loop; only if it is named
//   iteration  an iteration of a loop that has nothing to do
//   leave      leave() and join() on one thread, with an iteration of each loop; not over rdma
//   far        the echo, with the server's end on another thread
//   far+1      the same; for each request the connection moves to the other of two loops
//   far+2      the same; for each request it moves there and back
//
// Each time is the median of rounds of N. Under `strace -f -c` one part alone shows the system
// calls of N moves. Without URLs: tcp, unix and tls. Over rdma both ends need resume=yes.

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "ae/epoll_loop.h"
#include "ae/libev_loop.h"
#include "ae/loop_group.h"
#include "conn/move.h"
#include "conn/transports/transports.h"

namespace {

using Clock = std::chrono::steady_clock;
using conn::Connection;
using conn::ConnectionPtr;

constexpr int kRounds = 11;
bool use_epoll = false;
std::size_t count = 10'000;

std::unique_ptr<ae::EventLoop> make_loop() {
  if (use_epoll) return std::make_unique<ae::EpollLoop>();
  return std::make_unique<ae::LibevLoop>();
}

/// The median time of one of `count` calls, in nanoseconds.
double median(const std::function<void()>& fn) {
  std::vector<double> rounds;
  for (int round = 0; round < kRounds; ++round) {
    const auto began = Clock::now();
    for (std::size_t i = 0; i < count; ++i) fn();
    const std::chrono::duration<double, std::nano> took = Clock::now() - began;
    rounds.push_back(took.count() / static_cast<double>(count));
  }
  std::nth_element(rounds.begin(), rounds.begin() + kRounds / 2, rounds.end());
  return rounds[kRounds / 2];
}

void check(bool right, const char* what) {
  if (!right) throw std::runtime_error(fmt::format("{}: errno {}", what, errno));
}

/// A certificate for 127.0.0.1, made by openssl(1).
conn::Options certificate(const std::string& folder) {
  const std::string cert = folder + "/cert.pem", key = folder + "/key.pem";
  const std::string command =
      "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 1 "
      "-subj /CN=move -addext subjectAltName=IP:127.0.0.1 -keyout " +
      key + " -out " + cert + " 2>/dev/null";
  check(std::system(command.c_str()) == 0, "openssl req");
  return conn::Options::parse("cert=" + cert + "&key=" + key + "&ca=" + cert);
}

/// Both ends of a connection, on one loop.
struct Ends {
  Ends(const conn::Endpoint& at, const std::string& folder) {
    if (at.scheme.starts_with("tls")) registry.require(at.scheme).configure(certificate(folder));
    listener = registry.listen(*loop, at, [this](ConnectionPtr next) { server = std::move(next); });
    to = listener->endpoints().front();
    to.options = at.options;
    connect();
    server->set_read_handler([](Connection& c) {
      char bytes[256];
      const ssize_t n = c.read(bytes, sizeof bytes);
      if (n > 0) check(c.write(bytes, static_cast<std::size_t>(n)) == n, "write");
    });
    client->set_read_handler([this](Connection& c) {
      char bytes[256];
      const ssize_t n = c.read(bytes, sizeof bytes);
      if (n > 0) echoed += static_cast<std::size_t>(n);
    });
    echo();
  }
  void until(const std::function<bool()>& done) const {
    while (!done()) (void)loop->process_events(ae::kFullIteration);
  }
  void connect() {
    server.reset();
    client = registry.require(to.scheme).create(*loop);
    client->connect(to, [](Connection&) {});
    until([this] { return server && client->state() != conn::State::kConnecting; });
    check(client->state() == conn::State::kConnected, client->last_error().c_str());
  }
  void echo() {
    static constexpr char kBytes[64] = {};
    echoed = 0;
    check(client->write(kBytes, sizeof kBytes) == sizeof kBytes, "write");
    until([this] { return echoed == sizeof kBytes; });
  }

  const conn::Registry registry = conn::all_transports();
  const std::unique_ptr<ae::EventLoop> loop = make_loop();
  conn::ListenerPtr listener;
  conn::Endpoint to;
  ConnectionPtr client, server;
  std::size_t echoed = 0;
};

double leave_and_join(Ends& ends) {
  const auto other = make_loop();
  ae::EventLoop* at = ends.loop.get();
  const double time = median([&] {
    ae::EventLoop* const from =
        std::exchange(at, at == other.get() ? ends.loop.get() : other.get());
    check(ends.server->leave(), "leave");
    check(ends.server->join(*at), "join");
    (void)from->process_events(ae::kFileEvents | ae::kDontWait);
    (void)at->process_events(ae::kFileEvents | ae::kDontWait);
  });
  ends.server.reset();
  return time;
}

/// An echo whose server is on another thread. For each request the connection makes `moves` moves
/// between two loops before the reply; with two, it is back where it was.
double far_echo(Ends& ends, int moves) {
  ae::LoopGroup group({.loops = 2, .make = [](std::size_t) { return make_loop(); }});
  // Used by the thread of the loop that has the connection.
  ConnectionPtr served;
  std::size_t at = 0;
  std::string request;
  const auto reply = [&] {
    const auto size = static_cast<ssize_t>(request.size());
    check(served->write(request.data(), request.size()) == size, "write");
  };
  std::function<void(int)> hop = [&](int left) {
    check(conn::move(served, group, 1 - at,
                     [&, left](ConnectionPtr here) {
                       served = std::move(here);
                       at = 1 - at;
                       if (left == 1) return reply();
                       hop(left - 1);
                     }),
          "move");
  };
  const auto serve = [&](Connection& c) {
    char bytes[256];
    const ssize_t n = c.read(bytes, sizeof bytes);
    if (n <= 0) return;
    request.assign(bytes, static_cast<std::size_t>(n));
    if (moves == 0) return reply();
    // Not inside the connection's own handler.
    check(group.poster(at).post([&] { hop(moves); }), "post");
  };
  std::atomic<bool> there = false;
  check(conn::move(ends.server, group, 0,
                   [&](ConnectionPtr here) {
                     served = std::move(here);
                     served->set_read_handler(serve);
                     there = true;
                   }),
        "move");
  while (!there) std::this_thread::yield();
  ends.echo();
  const double time = median([&ends] { ends.echo(); });
  group.on_each([&](ae::EventLoop&, std::size_t index) {
    if (index == at) served.reset();
  });
  return time;
}

void run(const std::string& url, std::string_view part, const std::string& folder) {
  const conn::Endpoint at = conn::Endpoint::parse(url);
  const auto wanted = [part](std::string_view name) { return part.empty() || part == name; };
  const auto tell = [&](std::string_view name, double ns) {
    fmt::print("{:10} {:10} {:8.0f} ns\n", at.scheme, name, ns);
    (void)std::fflush(stdout);
  };
  if (wanted("echo")) {
    Ends ends(at, folder);
    tell("echo", median([&ends] { ends.echo(); }));
  }
  if (part == "connect") {  // each leaves a port in TIME_WAIT
    Ends ends(at, folder);
    tell("connect", median([&ends] { ends.connect(); }));
  }
  if (wanted("iteration")) {
    const auto idle = make_loop();
    tell("iteration", median([&] { (void)idle->process_events(ae::kFileEvents | ae::kDontWait); }));
  }
  if (wanted("leave") && !at.scheme.ends_with("rdma")) {
    Ends ends(at, folder);
    tell("leave", leave_and_join(ends));
  }
  for (int moves = 0; moves <= 2; ++moves) {
    const std::string name = moves == 0 ? "far" : fmt::format("far+{}", moves);
    if (!wanted(name)) continue;
    Ends ends(at, folder);
    tell(name, far_echo(ends, moves));
  }
}

}  // namespace

int main(int argc, char** argv) {
  std::vector<std::string> urls;
  std::string_view part;
  for (int i = 1; i < argc; ++i) {
    const std::string_view word = argv[i];
    if (word == "--epoll")
      use_epoll = true;
    else if (word == "--count" && i + 1 < argc)
      count = std::strtoul(argv[++i], nullptr, 10);
    else if (word == "--part" && i + 1 < argc)
      part = argv[++i];
    else
      urls.emplace_back(word);
  }
  std::string folder = std::filesystem::temp_directory_path() / "aeconn-move-XXXXXX";
  if (mkdtemp(folder.data()) == nullptr) return 1;
  if (urls.empty()) urls = {"tcp://127.0.0.1:0", "unix://" + folder + "/s", "tls://127.0.0.1:0"};
  int result = 0;
  try {
    for (const std::string& each : urls) run(each, part, folder);
  } catch (const std::exception& error) {
    fmt::print(stderr, "move: {}\n", error.what());
    result = 1;
  }
  std::filesystem::remove_all(folder);
  return result;
}
