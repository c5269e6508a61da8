// SPDX-License-Identifier: BSD-3-Clause
// A network that loses, duplicates, reorders, delays and corrupts packets of active connections:
// the bytes received must be the bytes sent. Run by tests/softroce/faults, on a veth pair.
#if AECONN_RDMA

#include <filesystem>
#include <fstream>
#include <random>

#include "tests/support/fault_bed.h"

using conn::State;
using testing::Baseline;
using testing::FaultBed;
using testing::inject;
using testing::Streams;
using namespace std::chrono_literals;

namespace {

/// RoCE packets that arrived twice, arrived out of order, or were sent again, on both devices.
std::uint64_t repairs() {
  std::uint64_t sum = 0;
  for (const std::string device : {"rxa", "rxb"})
    for (const std::string counter : {"duplicate_request", "out_of_seq_request", "rcvd_seq_err",
                                      "completer_retry_err", "send_err"}) {
      std::ifstream file("/sys/class/infiniband/" + device + "/ports/1/hw_counters/" + counter);
      std::uint64_t value = 0;
      if (file >> value) sum += value;
    }
  return sum;
}

void disturb(const std::string& how) {
  const std::string netem = " root netem limit 10000 " + how;
  inject("tc qdisc replace dev va" + netem + " && tc qdisc replace dev vb" + netem);
}

/// Removes the disturbance at the end of its scope.
struct Calm {
  ~Calm() { now(); }
  static void now() {
    (void)std::system("{ tc qdisc del dev va root; tc qdisc del dev vb root; } 2>/dev/null");
  }
};

// For tests in which a command runs between two states of the network, or in which losses occur in
// a row: with the default of six retries and with keepalives, a peer counts as lost after half a
// second of that.
const std::string kPatient = "retry-count=7&keepalive=30s";

struct Disturbance {
  std::string how, options;
  std::uint64_t bytes;
};

void stream_through(const Disturbance& disturbance) {
  const Baseline baseline;
  const std::string scheme = GENERATE("rdma", "tls+rdma");
  INFO(scheme << ", " << disturbance.how);
  const Calm calm;
  FaultBed bed(scheme, disturbance.options, disturbance.options);
  Streams(bed, 10'000).finish();
  const std::uint64_t before = repairs();
  disturb(disturbance.how);
  Streams(bed, disturbance.bytes).finish();
  CHECK(repairs() > before);
  Calm::now();
  Streams(bed, 10'000).finish();
}

}  // namespace

TEST_CASE("rdma faults: over a network that loses 1 % of its packets every byte arrives",
          "[.rdma-faults-veth]") {
  if (!testing::on_veth()) return;
  stream_through({"loss 1%", "", 2'000'000});
}

TEST_CASE("rdma faults: over a network that loses 5 % of its packets every byte arrives",
          "[.rdma-faults-veth]") {
  if (!testing::on_veth()) return;
  stream_through({"loss 5%", "", 1'000'000});
}

TEST_CASE("rdma faults: over a network that loses 20 % of its packets every byte arrives",
          "[.rdma-faults-veth-long]") {
  if (!testing::on_veth()) return;
  stream_through({"loss 20%", kPatient, 300'000});
}

TEST_CASE("rdma faults: over a network that doubles 10 % of its packets every byte arrives once",
          "[.rdma-faults-veth-long]") {
  if (!testing::on_veth()) return;
  stream_through({"duplicate 10%", "", 2'000'000});
}

TEST_CASE("rdma faults: over a network that reorders 25 % of its packets bytes arrive in order",
          "[.rdma-faults-veth]") {
  if (!testing::on_veth()) return;
  stream_through({"delay 2ms reorder 25% 50%", "", 1'000'000});
}

TEST_CASE("rdma faults: over a network that spoils 1 % of its packets bytes arrive as they were",
          "[.rdma-faults-veth]") {
  if (!testing::on_veth()) return;
  stream_through({"corrupt 1%", "", 2'000'000});
}

TEST_CASE("rdma faults: over a network that does all of it at once every byte arrives",
          "[.rdma-faults-veth]") {
  if (!testing::on_veth()) return;
  stream_through(
      {"delay 3ms 2ms loss 1% duplicate 5% reorder 20% corrupt 0.5%", kPatient, 500'000});
}

TEST_CASE("rdma faults: over a network with 10 ms of delay bytes take their time and arrive",
          "[.rdma-faults-veth-long]") {
  if (!testing::on_veth()) return;
  const Baseline baseline;
  const std::string scheme = GENERATE("rdma", "tls+rdma");
  INFO(scheme);
  const Calm calm;
  FaultBed bed(scheme);
  disturb("delay 10ms");
  const ae::TimePoint begin = testing::now();
  testing::send(bed.loop, *bed.clients.front(), "there");
  CHECK(testing::receive(bed.loop, *bed.servers.front(), 5) == "there");
  testing::send(bed.loop, *bed.servers.front(), "and back");
  CHECK(testing::receive(bed.loop, *bed.clients.front(), 8) == "and back");
  CHECK(testing::now() - begin >= 20ms);
  Streams(bed, 1'000'000).finish();
}

namespace {

// Goal: no sequence of disturbances loses, duplicates or changes a byte. Method: disturbances drawn
// from a seed, while bytes flow in both directions on several connections.
void weather(unsigned changes) {
  const Baseline baseline;
  const std::string scheme = GENERATE("rdma", "tls+rdma");
  const unsigned seed = 20261121;
  INFO(scheme << ", seed " << seed);
  const std::vector<std::string> kinds = {
      "loss 2%",      "duplicate 10%", "delay 1ms reorder 25% 50%",
      "corrupt 1%",   "delay 2ms",     "loss 100%",
      "delay 0ms",    "loss 10% 25%",  "rate 20mbit",
      "delay 3ms 3ms"};
  std::mt19937 random(seed);
  const Calm calm;
  FaultBed bed(scheme, kPatient, kPatient, 3);
  Streams streams(bed);
  streams.go_on();
  for (unsigned i = 0; i < changes; ++i) {
    const std::string& kind = kinds[random() % kinds.size()];
    INFO("change " << i << ": " << kind);
    const std::string netdev = random() % 2 == 0 ? "va" : "vb";
    inject("tc qdisc replace dev " + netdev + " root netem limit 10000 " + kind);
    if (kind == "loss 100%") {  // for a moment that the retries bridge
      for (const ae::TimePoint end = testing::now() + 100ms; testing::now() < end;)
        bed.loop.process_events(ae::kFullIteration);
      inject("tc qdisc replace dev " + netdev + " root netem limit 10000 delay 1ms");
    } else {
      streams.go_on(20'000);
    }
  }
  Calm::now();
  streams.go_on();
}

}  // namespace

TEST_CASE("rdma faults: a network whose faults change all the time changes no byte",
          "[.rdma-faults-veth]") {
  if (testing::on_veth()) weather(15);
}

TEST_CASE("rdma faults: a network whose faults change hundreds of times changes no byte",
          "[.rdma-faults-veth-long]") {
  if (testing::on_veth()) weather(100);
}

TEST_CASE("rdma faults: interruptions that retries bridge cost time and nothing else",
          "[.rdma-faults-veth-long]") {
  if (!testing::on_veth()) return;
  const Baseline baseline;
  const std::string scheme = GENERATE("rdma", "tls+rdma");
  INFO(scheme);
  const Calm calm;
  FaultBed bed(scheme, kPatient, kPatient, 2);
  Streams streams(bed);
  for (int i = 0; i < 5; ++i) {
    streams.go_on();
    disturb("loss 100%");
    for (const ae::TimePoint end = testing::now() + 150ms; testing::now() < end;)
      bed.loop.process_events(ae::kFullIteration);
    Calm::now();
  }
  streams.go_on();
}

TEST_CASE("rdma faults: packets of other MTUs carry the same bytes", "[.rdma-faults-veth-long]") {
  if (!testing::on_veth()) return;
  const Baseline baseline;
  struct Restore {
    ~Restore() { (void)std::system("ip link set va mtu 4200; ip link set vb mtu 4200"); }
  } restore;
  const std::string scheme = GENERATE("rdma", "tls+rdma");
  for (const int mtu : {1500, 9000, 600, 4200}) {
    INFO(scheme << ", MTU " << mtu);
    const std::string to = " mtu " + std::to_string(mtu);
    inject("ip link set va" + to + " && ip link set vb" + to);
    FaultBed bed(scheme);
    Streams(bed, 1'000'000).finish();
  }
}

TEST_CASE("rdma faults: packets of connections that are gone disturb none that came after",
          "[.rdma-faults-veth-long]") {
  if (!testing::on_veth()) return;
  const Baseline baseline;
  const Calm calm;
  disturb("delay 60ms 50ms duplicate 30%");
  FaultBed bed("rdma", "linger=0&" + kPatient, "linger=0&" + kPatient, 3);
  for (int round = 0; round < 6; ++round) {
    {
      Streams streams(bed);
      streams.go_on(300'000);
    }
    // Many packets are still under way when their connections close and new ones are made.
    bed.clients.clear();
    bed.servers.clear();
    testing::count_faults(3);
    for (int i = 0; i < 3; ++i) bed.add_pair();
  }
  Calm::now();
  Streams(bed, 100'000).finish();
}

#endif
