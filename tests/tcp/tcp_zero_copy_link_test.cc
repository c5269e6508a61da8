// SPDX-License-Identifier: BSD-3-Clause
// MSG_ZEROCOPY where the kernel really sends without a copy: over a link between two networks.

#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <utility>

#include "conn/tcp/tcp_type.h"
#include "tests/support/zero_copy_half.h"

using conn::ConnectionPtr;
using conn::State;
using testing::Parcel;
using testing::RawSocket;
using testing::SocketCalls;
using Half = testing::ZeroCopyHalf;
using namespace std::chrono_literals;

namespace {

bool runs(const std::string& command) { return std::system((command + " >&2").c_str()) == 0; }

/// The other end of the link, in a process and a network namespace of its own: reads `size` bytes.
[[noreturn]] void read_from_afar(int orders, int reports, std::size_t size) {
  alarm(60);
  char order;
  if (::unshare(CLONE_NEWNET) != 0 || ::write(reports, "u", 1) != 1) _exit(2);
  if (::read(orders, &order, 1) != 1) _exit(2);  // the link has been moved here
  if (!runs("ip addr add 10.94.0.2/24 dev zcb && ip link set zcb up")) _exit(2);
  const RawSocket listening = RawSocket::listening(4, "10.94.0.2");
  const std::uint16_t port = listening.endpoint().port;
  if (::write(reports, &port, sizeof port) != sizeof port) _exit(2);
  const RawSocket from = listening.accept();
  _exit(Half::intact(from.receive(size), size) ? 0 : 1);
}

}  // namespace

TEST_CASE("zero-copy: over a link between two networks", "[tcp]") {
  constexpr std::size_t kParcels = 40, kSize = 200'000;
  std::string skipped, failed;
  int releases = 0, completions = 0;
  std::string said;
  std::thread([&] {
    if (::unshare(CLONE_NEWNET) != 0) {
      skipped = std::strerror(errno);
      return;
    }
    int orders[2], reports[2];
    if (::pipe(orders) != 0 || ::pipe(reports) != 0) return void(failed = "pipe");
    const pid_t peer = ::fork();
    if (peer == 0) read_from_afar(orders[0], reports[1], kParcels * kSize);
    struct Reap {
      pid_t pid;
      int status = -1;
      void operator()() {
        if (pid > 0) (void)waitpid(std::exchange(pid, 0), &status, 0);
      }
      ~Reap() { (*this)(); }
    } reap{peer};
    ::close(reports[1]);
    char byte;
    std::uint16_t port = 0;
    if (::read(reports[0], &byte, 1) != 1 ||
        !runs("ip link add name zca type veth peer name zcb && ip link set zcb netns " +
              std::to_string(peer) +
              " && ip addr add 10.94.0.1/24 dev zca && ip link set zca up")) {
      ::close(orders[1]);
      skipped = "no veth pair can be made";
    } else if (::write(orders[1], "x", 1) != 1 ||
               ::read(reports[0], &port, sizeof port) != sizeof port) {
      failed = "the other end did not come up";
    }
    if (!skipped.empty() || !failed.empty()) return;
    try {
      const SocketCalls calls;
      conn::tcp::TcpType tcp;
      tcp.configure({{"zero-copy", "16k"}});
      testing::AnyLoop loop;
      const auto until = [&](auto condition) {
        const auto end = std::chrono::steady_clock::now() + 30s * testing::slower();
        const ae::TimerId look = loop.add_time_event(1ms, [] { return 1ms; });
        while (!condition() && failed.empty()) {
          if (std::chrono::steady_clock::now() >= end) failed = "it took too long";
          loop.process_events(ae::kFullIteration);
        }
        loop.remove_time_event(look);
      };
      std::vector<std::unique_ptr<Parcel>> parcels;
      ConnectionPtr client = tcp.create(loop);
      client->connect(conn::Endpoint::parse("tcp://10.94.0.2:" + std::to_string(port)), {});
      until([&] { return client->state() != State::kConnecting; });
      for (std::size_t i = 0; i < kParcels && failed.empty(); ++i) {
        parcels.push_back(std::make_unique<Parcel>(1, i * kSize, kSize));
        if (client->send(parcels.back()->outgoing()) < 0) failed = client->last_error();
      }
      until([&] {
        return std::all_of(parcels.begin(), parcels.end(),
                           [](const auto& each) { return each->releases == 1; });
      });
      for (const auto& each : parcels) releases += each->releases == 1 && !each->error ? 1 : 0;
      completions = calls.completions;
      said = client->info().back().second;
      client.reset();
      until([&] { return tcp.counters(loop).open == 0; });
    } catch (const std::exception& error) {
      failed = error.what();
    }
    reap();
    if (failed.empty() && reap.status != 0) failed = "not all arrived as it was";
  }).join();
  if (!skipped.empty()) {
    WARN("not tested: two network namespaces and a veth pair are needed: " << skipped);
    return;
  }
  CAPTURE(failed);
  REQUIRE(failed.empty());
  REQUIRE(releases == kParcels);
  REQUIRE(completions > 0);
  INFO("the kernel: " << said);
  REQUIRE((said == "yes" || said == "given up"));
}
