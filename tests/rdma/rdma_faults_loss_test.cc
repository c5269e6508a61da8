// SPDX-License-Identifier: BSD-3-Clause
// Loss of a link, an address, a device or a whole machine while connections are active, and peers
// that cannot be reached. Run by tests/softroce/faults, on a veth pair.
#if AECONN_RDMA

#include "tests/support/fault_bed.h"

using conn::ConnectionPtr;
using conn::State;
using testing::Background;
using testing::Baseline;
using testing::command;
using testing::FaultBed;
using testing::inject;
using testing::Streams;
using namespace std::chrono_literals;

namespace {

void calm() {
  (void)std::system("{ tc qdisc del dev va root; tc qdisc del dev vb root; } 2>/dev/null");
}
/// Lets packets pass again, at the latest at the end of its scope.
struct Calm {
  ~Calm() { calm(); }
};

/// Restores the link, the addresses and the devices.
void mend() { command("/run/softroce/veth"); }
struct Mended {
  ~Mended() { (void)std::system("/run/softroce/veth"); }
};

/// Drops all packets, as if the other machine had lost its power.
void black_hole() {
  inject(
      "tc qdisc replace dev va root netem loss 100%; tc qdisc replace dev vb root netem loss 100%");
}

long ms_since(ae::TimePoint begin) { return (testing::now() - begin) / 1ms; }

std::string any_scheme() { return GENERATE("rdma", "tls+rdma"); }

}  // namespace

// --- the peer's machine --------------------------------------------------------------------------

TEST_CASE("rdma faults: a black hole with bytes in flight is an error within 3 s",
          "[.rdma-faults-veth]") {
  if (!testing::on_veth()) return;
  const Baseline baseline;
  const std::string scheme = any_scheme();
  const Calm finally;
  {
    FaultBed bed(scheme, "", "", 3);
    {
      Streams streams(bed);
      streams.go_on();
      black_hole();
      const ae::TimePoint begin = testing::now();
      RUN_UNTIL(bed.loop, streams.all_over());
      WARN(scheme << ": a black hole with bytes in flight was noticed after " << ms_since(begin)
                  << " ms by all 6 ends: " << streams.errors());
      CHECK(testing::now() - begin < 3s + testing::promptly());
      streams.check_all_over();
    }
    const ae::TimePoint closing = testing::now();
    bed.clients.clear();
    bed.servers.clear();
    RUN_UNTIL(bed.loop, bed.type.counters(bed.loop).open == 0);
    CHECK(testing::now() - closing < 3s + testing::promptly());
    calm();
    bed.serves_again();
  }
}

TEST_CASE("rdma faults: a peer whose machine dies while nobody speaks is noticed within 10 s",
          "[.rdma-faults-veth]") {
  if (!testing::on_veth()) return;
  const Baseline baseline;
  const std::string scheme = any_scheme();
  const Calm finally;
  FaultBed bed(scheme);
  Streams(bed, 100'000).finish();
  std::vector<std::unique_ptr<testing::Collector>> readers;
  for (const auto* end : {&bed.clients.front(), &bed.servers.front()})
    readers.push_back(std::make_unique<testing::Collector>(**end));
  black_hole();
  const ae::TimePoint begin = testing::now();
  RUN_UNTIL(bed.loop, readers[0]->over() && readers[1]->over());
  WARN(scheme << ": a lost machine was noticed by both ends after " << ms_since(begin)
              << " ms: " << bed.clients.front()->last_error());
  CHECK(testing::now() - begin < 10s + testing::promptly());
  CHECK(readers[0]->error != 0);
  CHECK(readers[1]->error != 0);
  CHECK_FALSE(bed.clients.front()->last_error().empty());
  CHECK_FALSE(bed.servers.front()->last_error().empty());
  calm();
  readers.clear();
  bed.serves_again();
}

TEST_CASE("rdma faults: a peer that only sends, and is lost, is noticed within 10 s",
          "[.rdma-faults-veth]") {
  if (!testing::on_veth()) return;
  const Baseline baseline;
  const Calm finally;
  FaultBed bed("rdma");
  testing::Sender sender(*bed.servers.front(), 1, 1'000'000'000);
  testing::Receiver receiver(*bed.clients.front(), 1);
  RUN_UNTIL(bed.loop, receiver.received > 300'000);
  // Only one direction: the server's packets are lost and never acknowledged.
  inject("tc qdisc replace dev va root netem loss 100%");
  const ae::TimePoint begin = testing::now();
  RUN_UNTIL(bed.loop, receiver.error != 0 || receiver.ended);
  WARN("noticed by the end that only reads after " << ms_since(begin) << " ms");
  CHECK(testing::now() - begin < 10s + testing::promptly());
  CHECK(receiver.error != 0);
  CHECK(receiver.intact);
  RUN_UNTIL(bed.loop, sender.error != 0);
}

TEST_CASE("rdma faults: close towards a lost machine is over within 3 s", "[.rdma-faults-veth]") {
  if (!testing::on_veth()) return;
  const Baseline baseline;
  const Calm finally;
  for (const bool unsent : {false, true}) {
    INFO("with bytes to deliver: " << unsent);
    FaultBed bed("rdma", "keepalive=0", "keepalive=0", 2);
    Streams(bed, 50'000).finish();
    black_hole();
    if (unsent) REQUIRE(bed.clients.front()->write("never seen", 10) == 10);
    const ae::TimePoint begin = testing::now();
    bed.clients.clear();
    bed.servers.clear();
    RUN_UNTIL(bed.loop, bed.type.counters(bed.loop).open == 0);
    WARN("close towards a lost machine took " << ms_since(begin) << " ms");
    CHECK(testing::now() - begin < 3s + testing::promptly());
    calm();
  }
}

TEST_CASE("rdma faults: connecting into a black hole fails after connect-timeout, 5 s",
          "[.rdma-faults-veth]") {
  if (!testing::on_veth()) return;
  const Baseline baseline;
  const Calm finally;
  const std::string scheme = GENERATE("rdma", "tls+rdma", "tcp");
  FaultBed bed(scheme, "", "connect-timeout=5s");
  black_hole();
  const ae::TimePoint begin = testing::now();
  std::vector<ConnectionPtr> clients;
  for (int i = 0; i < 5; ++i) clients.push_back(bed.connect(bed.target("connect-timeout=5s")));
  for (const ConnectionPtr& client : clients)
    RUN_UNTIL(bed.loop, client->state() != State::kConnecting);
  WARN(scheme << ": connecting into a black hole failed after " << ms_since(begin)
              << " ms: " << clients.front()->last_error());
  CHECK(testing::now() - begin >= 1s);
  CHECK(testing::now() - begin < 5s + testing::promptly());
  for (const ConnectionPtr& client : clients) {
    CHECK(client->state() == State::kError);
    CHECK_FALSE(client->last_error().empty());
  }
  clients.clear();
  calm();
  bed.serves_again();
}

TEST_CASE("rdma faults: an address on the link that nobody has fails before connect-timeout",
          "[.rdma-faults-veth]") {
  if (!testing::on_veth()) return;
  const Baseline baseline;
  FaultBed bed("rdma");
  const ae::TimePoint begin = testing::now();
  const ConnectionPtr client =
      bed.connect(conn::Endpoint::parse("rdma://10.9.0.77:7000?source=10.9.0.2"));
  RUN_UNTIL(bed.loop, client->state() != State::kConnecting);
  WARN("no answer to ARP: " << ms_since(begin) << " ms: " << client->last_error());
  CHECK(client->state() == State::kError);
  CHECK(testing::now() - begin < 5s + testing::promptly());
  testing::count_faults();
}

TEST_CASE("tcp faults: a dead peer is noticed by keepalive and by user-timeout",
          "[.rdma-faults-veth-long]") {
  if (!testing::on_veth()) return;
  const Baseline baseline;
  const Calm finally;
  const std::string scheme = GENERATE("tcp", "tls");
  const std::string option = GENERATE("keepalive=2s", "user-timeout=2s");
  const bool speaks = option == "user-timeout=2s";
  FaultBed bed(scheme, "", option);
  Streams(bed, 100'000).finish();
  testing::Collector reader(*bed.clients.front());
  black_hole();
  if (speaks) REQUIRE(bed.clients.front()->write("anyone?", 7) == 7);
  const ae::TimePoint begin = testing::now();
  RUN_UNTIL(bed.loop, reader.over());
  WARN(scheme << ", " << option << ": noticed after " << ms_since(begin)
              << " ms: " << bed.clients.front()->last_error());
  CHECK(reader.error == ETIMEDOUT);
  CHECK(testing::now() - begin < 5s + testing::promptly());
}

// --- link, address, device -----------------------------------------------------------------------

TEST_CASE("rdma faults: a link that goes down for 3 s ends its connections and serves again",
          "[.rdma-faults-veth]") {
  if (!testing::on_veth()) return;
  const Baseline baseline;
  const std::string scheme = any_scheme();
  INFO(scheme);
  const Mended finally;
  FaultBed bed(scheme, "", "", 3);
  {
    Streams streams(bed);
    streams.go_on();
    const ae::TimePoint begin = testing::now();
    inject("ip link set va down");
    RUN_UNTIL(bed.loop, streams.all_over());
    WARN(scheme << ": a link that went down was noticed after " << ms_since(begin)
                << " ms: " << streams.errors());
    CHECK(testing::now() - begin < 3s + testing::promptly());
    streams.check_all_over();
  }
  for (const ae::TimePoint end = testing::now() + 3s; testing::now() < end;)
    bed.loop.process_events(ae::kFullIteration);
  mend();
  bed.serves_again();
}

TEST_CASE("rdma faults: an address that is taken away ends the connections that use it",
          "[.rdma-faults-veth-long]") {
  if (!testing::on_veth()) return;
  Baseline baseline;
  baseline.allow("Failed allocating skb");  // rxe, if a packet has no source address
  const std::string address = GENERATE("10.9.0.1/24 dev va", "10.9.0.2/24 dev vb");
  INFO(address);
  const Mended finally;
  FaultBed bed("rdma", "", "", 3);
  {
    Streams streams(bed);
    streams.go_on();
    const ae::TimePoint begin = testing::now();
    inject("ip addr del " + address);
    RUN_UNTIL(bed.loop, streams.all_over());
    WARN("an address that went was noticed by both ends after " << ms_since(begin)
                                                                << " ms: " << streams.errors());
    CHECK(testing::now() - begin < 10s + testing::promptly());
    streams.check_all_over();
  }
  mend();
  bed.serves_again();
}

TEST_CASE("rdma faults: a device or its interface that is deleted under load is let go at once",
          "[.rdma-faults-veth-long][removes-device]") {
  if (!testing::on_veth()) return;
  Baseline baseline;
  baseline.allow("ib_query_port failed");  // ib_core and rxe, for an interface that is gone
  baseline.allow("Failed allocating skb");
  baseline.allow("Failed sending ACK");  // rxe, for a packet that came before the removal
  const std::string line =
      GENERATE("rdma link delete rxa", "rdma link delete rxb", "ip link del va");
  const std::string scheme = any_scheme();
  INFO(scheme << ", " << line);
  const Mended finally;
  FaultBed bed(scheme, "", "", 5);
  {
    Streams streams(bed);
    streams.go_on();
    const ae::TimePoint begin = testing::now();
    const Background removal(line);
    testing::count_faults();
    RUN_UNTIL(bed.loop, streams.all_over());
    const long noticed = ms_since(begin);
    RUN_UNTIL(bed.loop, removal.ended());
    WARN(scheme << ", " << line << ": all 10 ends noticed within " << noticed
                << " ms, the command ended after " << ms_since(begin) << " ms");
    CHECK(testing::now() - begin < 2s + testing::promptly());
    streams.check_all_over();
  }
  mend();
  bed.serves_again();
}

#endif
