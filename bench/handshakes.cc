// SPDX-License-Identifier: BSD-3-Clause
// How long other connections of a loop wait while many TLS handshakes are under way, with the
// option handshake-threads and without:
//
//   handshakes [--count N] [--key rsa:2048|ec]
//
// A child process connects N clients at once; the server accepts them on one loop. The stall is the
// longest time of one iteration without its sleep: of the clock, in which the system may run other
// processes, and of the loop's thread alone. Rounds with each number of threads take turns;
// the figures are medians of the rounds. All clients of a round are full handshakes.

#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <exception>
#include <filesystem>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "ae/libev_loop.h"
#include "conn/transports/transports.h"

namespace {

using Clock = std::chrono::steady_clock;
using Milliseconds = std::chrono::duration<double, std::milli>;
using conn::Connection;
using conn::ConnectionPtr;

constexpr std::size_t kRounds = 7;

void check(bool right, const std::string& what) {
  if (!right) throw std::runtime_error(fmt::format("{}: {}", what, std::strerror(errno)));
}

/// A certificate for 127.0.0.1, made by openssl(1).
conn::Options certificate(const std::string& folder, const std::string& key_type) {
  const std::string cert = folder + "/cert.pem", key = folder + "/key.pem";
  const std::string type = key_type == "ec" ? "ec -pkeyopt ec_paramgen_curve:P-256" : key_type;
  const std::string command = "openssl req -x509 -newkey " + type +
                              " -nodes -days 1 -subj /CN=handshakes -addext "
                              "subjectAltName=IP:127.0.0.1 -keyout " +
                              key + " -out " + cert + " 2>/dev/null";
  check(std::system(command.c_str()) == 0, command);
  return conn::Options::parse("resumption=no&cert=" + cert + "&key=" + key + "&ca=" + cert);
}

/// In the child: connects `count` clients at once, and waits until the server has closed them.
int run_clients(const conn::Endpoint& to, const conn::Options& options, std::size_t count) {
  ae::LibevLoop loop;
  const conn::Registry registry = conn::all_transports();
  registry.require("tls").configure(options);
  std::vector<ConnectionPtr> clients;
  std::size_t over = 0, failed = 0;
  for (std::size_t i = 0; i < count; ++i) {
    clients.push_back(registry.require("tls").create(loop));
    clients.back()->connect(to, [&](Connection& c) {
      if (c.state() != conn::State::kConnected) {
        ++failed;
        ++over;
        return;
      }
      c.set_read_handler([&](Connection& connected) {
        char byte;
        if (connected.read(&byte, 1) < 0 && errno == EAGAIN) return;
        connected.set_read_handler(nullptr);
        ++over;
      });
    });
  }
  while (over < count) (void)loop.process_events(ae::kFullIteration);
  return failed == 0 ? 0 : 1;
}

struct Round {
  Milliseconds stall{}, of_thread{}, all{};
};

/// The time for which the processor has run this thread.
Clock::time_point thread_time() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return Clock::time_point(std::chrono::seconds(time.tv_sec) +
                           std::chrono::nanoseconds(time.tv_nsec));
}

Round measure(const conn::Options& options, const std::string& threads, std::size_t count) {
  ae::LibevLoop loop;
  const conn::Registry registry = conn::all_transports();
  registry.require("tls").configure(
      options.merged_with({{"handshake-threads", threads}, {"max-handshakes", "100000"}}));
  std::vector<ConnectionPtr> accepted;
  const conn::ListenerPtr listener =
      registry.listen(loop, conn::Endpoint::parse("tls://127.0.0.1:0?backlog=4096"),
                      [&](ConnectionPtr one) { accepted.push_back(std::move(one)); });
  const conn::Endpoint to = listener->endpoints().front();
  const pid_t child = fork();
  check(child >= 0, "fork");
  if (child == 0) {
    int status = 1;
    try {
      status = run_clients(to, options, count);
    } catch (const std::exception& error) {
      std::fprintf(stderr, "handshakes: %s\n", error.what());
    }
    _exit(status);
  }
  Round round;
  Clock::time_point awake = Clock::now(), thread_awake = thread_time(), first{};
  loop.add_after_sleep([&] {
    awake = Clock::now();
    thread_awake = thread_time();
  });
  loop.add_before_sleep([&] {
    if (round.all != Milliseconds()) return;  // all handshakes are over
    const Clock::time_point now = Clock::now();
    // The iteration that finds the first clients begins the time.
    if (first == Clock::time_point{}) first = awake;
    round.stall = std::max(round.stall, Milliseconds(now - awake));
    round.of_thread = std::max(round.of_thread, Milliseconds(thread_time() - thread_awake));
  });
  while (accepted.size() < count) (void)loop.process_events(ae::kFullIteration);
  round.all = Clock::now() - first;
  accepted.clear();
  int status = 0;
  while (waitpid(child, &status, WNOHANG) == 0)
    (void)loop.process_events(ae::kFullIteration | ae::kDontWait);
  check(status == 0, "a client");
  return round;
}

double median_of(std::vector<Round>& rounds, Milliseconds Round::*what) {
  std::nth_element(rounds.begin(), rounds.begin() + kRounds / 2, rounds.end(),
                   [what](const Round& a, const Round& b) { return a.*what < b.*what; });
  return (rounds[kRounds / 2].*what).count();
}

int run(int argc, char** argv) {
  std::size_t count = 500;
  std::string key = "rsa:2048";
  for (int i = 1; i < argc; i += 2) {
    const bool has_value = i + 1 < argc;
    if (has_value && std::strcmp(argv[i], "--count") == 0) {
      count = std::stoul(argv[i + 1]);
    } else if (has_value && std::strcmp(argv[i], "--key") == 0) {
      key = argv[i + 1];
    } else {
      throw std::invalid_argument(
          "usage: handshakes [--count N] [--key KEY]; KEY: ec (P-256), or as for -newkey of "
          "openssl req");
    }
  }
  std::string folder = std::filesystem::temp_directory_path() / "handshakes-XXXXXX";
  check(mkdtemp(folder.data()) != nullptr, "mkdtemp");
  struct Remove {
    const std::string& folder;
    ~Remove() {
      std::error_code ignored;
      std::filesystem::remove_all(folder, ignored);
    }
  } remove{folder};
  const conn::Options options = certificate(folder, key);
  const std::array<std::string, 3> threads{"0", "1", "2"};
  std::array<std::vector<Round>, 3> rounds;
  for (std::size_t round = 0; round < kRounds; ++round) {
    for (std::size_t i = 0; i < threads.size(); ++i)
      rounds[i].push_back(measure(options, threads[i], count));
  }
  fmt::print("{} handshakes at once, key {}; medians of {} rounds\n", count, key, kRounds);
  for (std::size_t i = 0; i < threads.size(); ++i)
    fmt::print(
        "handshake-threads={}: longest stall {:.2f} ms, {:.2f} ms of the thread; all in {:.0f} "
        "ms\n",
        threads[i], median_of(rounds[i], &Round::stall), median_of(rounds[i], &Round::of_thread),
        median_of(rounds[i], &Round::all));
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "handshakes: %s\n", error.what());
    return 1;
  }
}
