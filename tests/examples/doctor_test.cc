// SPDX-License-Identifier: BSD-3-Clause
// aeconn-doctor: its rows, computed from made-up facts, and reading of facts from a made-up folder.
// Facts from a real kernel are tested in tests/softroce/long_case_doctor.sh.
#include <sys/resource.h>

#include <cerrno>
#include <filesystem>
#include <fstream>

#include "conn/setup_trace.h"
#include "conn/transports/transports.h"
#include "programs/doctor/checkup.h"
#include "programs/doctor/dial.h"
#include "programs/doctor/echo.h"
#include "programs/doctor/rows.h"
#include "tests/support/catch.h"

namespace {

using doctor::Facts;
using doctor::Level;
using doctor::Verdict;

conn::SocketAddress address(const std::string& text) {
  conn::SocketAddress made;
  REQUIRE(conn::numeric_address(text, 0, made));
  return made;
}

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

const std::string kIpv4 = "0000:0000:0000:0000:0000:ffff:0a00:0001";  // 10.0.0.1
const std::string kLinkLocal = "fe80:0000:0000:0000:0001:02ff:fe03:0405";

/// Facts without any problem: rxe0 on eth1, 10.0.0.1.
Facts good() {
  Facts facts;
  facts.built_with_rdma = facts.core = facts.verbs = facts.manager = true;
  facts.shared = true;
  facts.files = {{"/dev/infiniband/rdma_cm", 0}, {"/dev/infiniband/uverbs0", 0}};
  doctor::Device device;
  device.name = "rxe0";
  device.driver = "rdma_rxe";
  device.kind = "CA";
  device.network = "eth1";
  doctor::Port port;
  port.number = 1;
  port.state = "ACTIVE";
  port.physical = "LinkUp";
  port.link_layer = "Ethernet";
  port.gid_entries = 16;
  port.gids = {{0, kLinkLocal, "RoCE v2", "eth1"}, {1, kIpv4, "RoCE v2", "eth1"}};
  device.ports = {port};
  facts.devices = {device};
  facts.mtu = {{"eth0", 1500}, {"eth1", 4200}};
  facts.addresses = {{"eth0", address("192.0.2.7")},
                     {"eth1", address("10.0.0.1")},
                     {"eth1", address("fe80::1:2ff:fe03:405")}};
  facts.processors = {0, 1};
  facts.descriptors = 1024;
  facts.most_descriptors = 524288;
  return facts;
}

doctor::Port& port_of(Facts& facts) { return facts.devices.at(0).ports.at(0); }

void says(const Verdict& verdict, Level level, const std::string& text,
          const std::string& remedy = "") {
  CAPTURE(verdict.row, verdict.text, verdict.remedy);
  CHECK(verdict.level == level);
  CHECK(has(verdict.text, text));
  CHECK(has(verdict.remedy, remedy));
  CHECK(verdict.text.find('\n') == std::string::npos);
  if (level == Level::kFailed) CHECK_FALSE(verdict.remedy.empty());
}

/// A folder with files, removed with this object.
class Tree {
 public:
  Tree() {
    std::string name = (std::filesystem::temp_directory_path() / "doctor.XXXXXX").string();
    REQUIRE(mkdtemp(name.data()) != nullptr);
    root_ = name;
  }
  ~Tree() { std::filesystem::remove_all(root_); }
  void write(const std::string& path, const std::string& line) {
    std::filesystem::create_directories((root_ / path).parent_path());
    std::ofstream(root_ / path) << line << '\n';
  }
  const std::filesystem::path& root() const { return root_; }

 private:
  std::filesystem::path root_;
};

doctor::Dialled dialled(const std::string& scheme, std::vector<doctor::Dialled::Step> steps,
                        int err = 0) {
  doctor::Dialled made;
  made.scheme = scheme;
  made.steps = std::move(steps);
  if (err != 0) made.failure = conn::errno_failure(err, "connect to 10.0.0.2:7000");
  return made;
}

}  // namespace

TEST_CASE("doctor: where nothing is wrong every row is well", "[doctor]") {
  for (const doctor::Row row : doctor::rows()) {
    const Verdict verdict = row(good());
    CAPTURE(verdict.row, verdict.text);
    CHECK(verdict.level == Level::kOk);
    CHECK(verdict.remedy.empty());
  }
}

TEST_CASE("doctor: where there is nothing, the rows before say so and the others are left out",
          "[doctor]") {
  Facts facts;
  facts.processors = {0, 1};
  says(doctor::build(facts), Level::kFailed, "without rdma", "libibverbs-dev");
  says(doctor::modules(facts), Level::kFailed, "ib_core, ib_uverbs, rdma_ucm",
       "modprobe -a ib_uverbs rdma_ucm");
  says(doctor::devices(facts), Level::kFailed, "there is no RDMA device", "rdma link add rxe0");
  for (const doctor::Row row : {doctor::device_files, doctor::ports, doctor::gids,
                                doctor::addresses, doctor::packets, doctor::marking})
    CHECK(row(facts).level == Level::kSkipped);
}

TEST_CASE("doctor: modules that are missing are named", "[doctor]") {
  Facts facts = good();
  facts.manager = false;
  says(doctor::modules(facts), Level::kFailed, "not in the kernel: rdma_ucm",
       "modprobe -a rdma_ucm");
}

TEST_CASE("doctor: a device file that cannot be opened says why, and what to do about it",
          "[doctor]") {
  Facts facts = good();
  facts.files[1].error = EACCES;
  says(doctor::device_files(facts), Level::kFailed, "uverbs0: Permission denied", "usermod -aG");
  facts.files[1].error = ENOENT;
  says(doctor::device_files(facts), Level::kFailed, "uverbs0: No such file",
       "--device /dev/infiniband/uverbs0");
  facts.files[1].error = EPERM;
  says(doctor::device_files(facts), Level::kFailed, "not permitted", "DeviceAllow=");
  SECTION("one of two devices is enough") {
    facts.files.push_back({"/dev/infiniband/uverbs1", 0});
    says(doctor::device_files(facts), Level::kNote, "uverbs0", "--device");
  }
  SECTION("rdma_cm is needed by all") {
    facts.files.push_back({"/dev/infiniband/uverbs1", 0});
    facts.files[0].error = EACCES;
    says(doctor::device_files(facts), Level::kFailed, "rdma_cm: Permission denied");
  }
}

TEST_CASE("doctor: devices of another namespace, and of a kind without reliable connections",
          "[doctor]") {
  Facts facts = good();
  facts.devices[0].kind = "usNIC UDP";
  says(doctor::devices(facts), Level::kFailed, "no reliable connections: usNIC UDP", "use tcp");
  facts.devices.clear();
  facts.shared = false;
  says(doctor::devices(facts), Level::kFailed, "netns_mode=0", "rdma dev set DEVICE netns");
}

TEST_CASE("doctor: links that are down", "[doctor]") {
  Facts facts = good();
  port_of(facts).state = "DOWN";
  port_of(facts).physical = "Disabled";
  says(doctor::ports(facts), Level::kFailed, "rxe0/1 DOWN (Ethernet, Disabled)",
       "ip link set eth1 up");
  SECTION("one of two is enough") {
    facts.devices.push_back(good().devices[0]);
    says(doctor::ports(facts), Level::kNote, "rxe0/1 ACTIVE", "ip link set eth1 up");
  }
  SECTION("InfiniBand without a subnet manager") {
    port_of(facts).state = "INIT";
    port_of(facts).link_layer = "InfiniBand";
    says(doctor::ports(facts), Level::kFailed, "INIT", "opensm");
  }
}

TEST_CASE("doctor: GIDs that cannot be used, each for its own reason", "[doctor]") {
  Facts facts = good();
  SECTION("no address") {
    port_of(facts).gids.pop_back();
    says(doctor::gids(facts), Level::kFailed, "link-local only", "ip addr add ADDRESS/24 dev eth1");
  }
  SECTION("all zero") {
    port_of(facts).gids.clear();
    says(doctor::gids(facts), Level::kFailed, "all GIDs are zero", "run this where the interface");
  }
  SECTION("none") {
    port_of(facts).gids.clear();
    port_of(facts).gid_entries = 0;
    says(doctor::gids(facts), Level::kFailed, "rxe0/1 has no GIDs", "ip addr add");
  }
  SECTION("of another network namespace") {
    facts.addresses = {{"eth0", address("192.0.2.7")}};
    says(doctor::gids(facts), Level::kFailed, "of another network namespace", "run this where");
    says(doctor::addresses(facts), Level::kFailed, "no device: 192.0.2.7 (eth0)", "rdma link");
  }
  SECTION("RoCE v1 only") {
    for (doctor::Gid& each : port_of(facts).gids) each.type = "IB/RoCE v1";
    says(doctor::gids(facts), Level::kNote, "RoCE v1 only", "RoCE v2");
  }
  SECTION("InfiniBand's are no addresses") {
    port_of(facts).link_layer = "InfiniBand";
    port_of(facts).gids = {{0, "fe80:0000:0000:0000:0002:c903:0000:1001", "IB/RoCE v1", ""}};
    says(doctor::gids(facts), Level::kOk, "rxe0/1: fe80::2:c903:0:1001");
    says(doctor::addresses(facts), Level::kOk, "10.0.0.1 is rxe0/1");
  }
}

TEST_CASE("doctor: which device an address belongs to", "[doctor]") {
  const Facts facts = good();
  says(doctor::addresses(facts), Level::kOk, "10.0.0.1 is rxe0/1");
  says(doctor::gids(facts), Level::kOk, ", 10.0.0.1 RoCE v2");
  says(doctor::addresses(facts), Level::kOk, "no device: 192.0.2.7 (eth0)");
  CHECK(place_of(facts, address("10.0.0.1")).device == &facts.devices[0]);
  CHECK_FALSE(place_of(facts, address("10.0.0.2")));
}

TEST_CASE("doctor: what RoCE makes of an interface's MTU", "[doctor]") {
  CHECK(doctor::roce_mtu(100) == 0);
  CHECK(doctor::roce_mtu(352) == 256);
  CHECK(doctor::roce_mtu(1500) == 1024);
  CHECK(doctor::roce_mtu(4191) == 2048);
  CHECK(doctor::roce_mtu(4192) == 4096);
  CHECK(doctor::roce_mtu(9000) == 4096);
  Facts facts = good();
  facts.mtu["eth1"] = 1500;
  says(doctor::packets(facts), Level::kNote, "rxe0/1 1024, as eth1 has 1500",
       "ip link set eth1 mtu 4200");
}

TEST_CASE("doctor: what rdma_cm was told to take", "[doctor]") {
  Facts facts = good();
  port_of(facts).cm_mode = "RoCE v2";
  port_of(facts).cm_tos = "104";
  says(doctor::marking(facts), Level::kOk, "rxe0/1 RoCE v2, type of service 104");
  port_of(facts).cm_mode = "IB/RoCE v1";
  says(doctor::marking(facts), Level::kNote, "not routable", "default_roce_mode");
}

TEST_CASE("doctor: processors that are few or far", "[doctor]") {
  Facts facts = good();
  facts.devices[0].node = 1;
  facts.devices[0].processors = {1};
  says(doctor::processors(facts), Level::kOk, "1 of them on NUMA node 1 of rxe0");
  facts.processors = {0, 2};
  says(doctor::processors(facts), Level::kNote, "0 of them on NUMA node 1",
       "numactl --cpunodebind=1");
  facts.processors = {1};
  says(doctor::processors(facts), Level::kNote, "on 1 processor;", "second one");
}

TEST_CASE("doctor: descriptors, and the connections that they allow", "[doctor]") {
  Facts facts = good();
  says(doctor::descriptors(facts), Level::kOk,
       "may open 1024 descriptors (RLIMIT_NOFILE), and raise that to 524288: room for 1008 "
       "connections");
  facts.descriptors = 64;
  says(doctor::descriptors(facts), Level::kNote,
       "or 16 that become descriptors other than their sockets;", "LimitNOFILE=");
  facts.descriptors = 10;
  says(doctor::descriptors(facts), Level::kNote, "room for 0 connections", "ulimit -n");
  facts.descriptors = RLIM_INFINITY;
  says(doctor::descriptors(facts), Level::kOk, "any number");
  rlimit limit{};
  REQUIRE(::getrlimit(RLIMIT_NOFILE, &limit) == 0);
  CHECK(doctor::read_facts().descriptors == limit.rlim_cur);
}

TEST_CASE("doctor: a limit without room for all is a failure only where all were asked for",
          "[doctor]") {
  conn::Capacity low{.name = "locked memory (memlock)",
                     .most = 8 << 20,
                     .used = 0,
                     .needed = 64 << 20,
                     .connections = 19,
                     .bytes = true,
                     .raise = "raise it"};
  says(doctor::limit(low, 1000, false), Level::kNote, "room for 19", "raise it");
  says(doctor::limit(low, 1000, true), Level::kFailed, "room for 19", "raise it");
  low.connections = 0;
  says(doctor::limit(low, 1000, false), Level::kFailed, "room for 0", "raise it");
  low.needed = 0;
  CHECK(doctor::limit(low, 1000, true).level == Level::kOk);
}

TEST_CASE("doctor: facts are read from folders as the kernel has them", "[doctor]") {
  Tree tree;
  tree.write("sys/class/misc/rdma_cm/dev", "10:123");
  tree.write("sys/class/infiniband_verbs/uverbs0/ibdev", "rxe0");
  tree.write("sys/class/infiniband_verbs/abi_version", "6");
  tree.write("sys/module/ib_core/parameters/netns_mode", "Y");
  tree.write("dev/infiniband/rdma_cm", "");
  const std::string device = "sys/class/infiniband/rxe0/", port = device + "ports/1/";
  tree.write(device + "node_type", "1: CA");
  tree.write(device + "parent", "eth1");
  tree.write(device + "device/numa_node", "1");
  tree.write(device + "device/local_cpulist", "0-2,8");
  tree.write(port + "state", "4: ACTIVE");
  tree.write(port + "phys_state", "5: LinkUp");
  tree.write(port + "link_layer", "Ethernet");
  tree.write(port + "gids/0", kLinkLocal);
  tree.write(port + "gids/10", "0000:0000:0000:0000:0000:0000:0000:0000");
  tree.write(port + "gids/2", kIpv4);
  tree.write(port + "gid_attrs/types/2", "RoCE v2");
  tree.write(port + "gid_attrs/ndevs/2", "eth1");
  tree.write("sys/kernel/config/rdma_cm/rxe0/ports/1/default_roce_mode", "RoCE v2");
  tree.write("sys/class/net/eth1/mtu", "4200");
  const Facts facts = doctor::read_facts(tree.root());
  CHECK(facts.core);
  CHECK(facts.verbs);
  CHECK(facts.manager);
  CHECK(facts.shared == true);
  REQUIRE(facts.files.size() == 2);
  CHECK(facts.files[0].error == 0);
  CHECK(facts.files[1].path == (tree.root() / "dev/infiniband/uverbs0").string());
  CHECK(facts.files[1].error == ENOENT);
  REQUIRE(facts.devices.size() == 1);
  CHECK(facts.devices[0].name == "rxe0");
  CHECK(facts.devices[0].driver == "rdma_rxe");
  CHECK(facts.devices[0].kind == "CA");
  CHECK(facts.devices[0].node == 1);
  CHECK(facts.devices[0].processors == std::vector<int>{0, 1, 2, 8});
  REQUIRE(facts.devices[0].ports.size() == 1);
  const doctor::Port& read = facts.devices[0].ports[0];
  CHECK(read.number == 1);
  CHECK(read.active());
  CHECK(read.physical == "LinkUp");
  CHECK(read.ethernet());
  CHECK(read.gid_entries == 3);
  REQUIRE(read.gids.size() == 2);
  CHECK(read.gids[1].index == 2);
  CHECK(read.gids[1].type == "RoCE v2");
  CHECK(read.gids[1].interface == "eth1");
  CHECK(read.cm_mode == "RoCE v2");
  CHECK(facts.mtu.at("eth1") == 4200);
  CHECK_FALSE(facts.processors.empty());

  const Tree empty;
  const Facts none = doctor::read_facts(empty.root());
  CHECK_FALSE(none.core);
  CHECK_FALSE(none.shared);
  CHECK(none.files.empty());
  CHECK(none.devices.empty());
}

TEST_CASE("doctor: the route to a peer has to leave by an RDMA device whose link is up",
          "[doctor]") {
  Facts facts = good();
  doctor::Route route;
  route.target = address("10.0.0.2");
  route.source = address("10.0.0.1");
  says(judge(facts, route, "rdma"), Level::kOk,
       "10.0.0.2 is reached from 10.0.0.1, which is rxe0/1");
  port_of(facts).state = "DOWN";
  says(judge(facts, route, "rdma"), Level::kFailed, "that is DOWN", "ip link set eth1 up");
  route.source = address("192.0.2.7");
  says(judge(facts, route, "rdma"), Level::kFailed, "belongs to no RDMA device", "source=");
  route.failure = conn::errno_failure(ENETUNREACH, "route to 10.0.0.2");
  says(judge(facts, route, "rdma"), Level::kFailed, "Network is unreachable", "ip route get");
}

TEST_CASE("doctor: a certificate that ends soon is a note, and one that has ended a failure",
          "[doctor]") {
  auto one = dialled("tls", {{"connect", 90, true}});
  one.path = "tls";
  const auto last = [&] { return judge(good(), one, nullptr).back(); };
  one.peer_certificate_ends = "2001-02-03T04:05:06Z";
  says(last(), Level::kFailed, "ended on 2001-02-03T04:05:06Z", "renew");
  one.peer_certificate_ends = "2901-02-03T04:05:06Z";
  says(last(), Level::kOk, "ends on 2901-02-03T04:05:06Z, in ", "");
  one.certificate_ends = "?";
  CHECK(last().row == "tls: own certificate");
  CHECK(last().level == Level::kSkipped);
}

TEST_CASE("doctor: a dial that stops says why, and tcp beside it tells a firewall from a dead host",
          "[doctor]") {
  const Facts facts = good();
  const auto silent =
      dialled("rdma", {{"resolve route", 5, true}, {"connect", 5e6, false}}, ETIMEDOUT);
  const auto last = [&](const doctor::Dialled& one, const doctor::Dialled* beside) {
    return judge(facts, one, beside).back();
  };
  const auto tcp = dialled("tcp", {{"connect", 90, true}});
  const auto closed = dialled("tcp", {{"connect", 90, false}}, ECONNREFUSED);
  const auto dead = dialled("tcp", {{"connect", 5e6, false}}, ETIMEDOUT);
  says(last(silent, &tcp), Level::kFailed, "(after 5000.00 ms)", "UDP port 4791");
  says(last(silent, &closed), Level::kFailed, "timed out", "UDP port 4791");
  says(last(silent, &dead), Level::kFailed, "timed out", "neither tcp nor RDMA");
  says(last(dialled("rdma", {{"connect", 90, false}}, ECONNREFUSED), &tcp), Level::kFailed,
       "refused", "no server listens over RDMA");
  says(last(dialled("rdma", {{"resolve address", 90, false}}, ENODEV), &tcp), Level::kFailed,
       "No such device", "rows addresses and route");
  says(last(dialled("tls", {{"connect", 90, true}, {"TLS handshake", 90, false}}, EPROTO), nullptr),
       Level::kFailed, "Protocol error", "ca=");
  says(last(dialled("tcp", {{"resolve name", 90, false}}, ENOENT), nullptr), Level::kFailed, "",
       "getent");
  auto stuck =
      dialled("rdma", {{"connect", 90, true}, {"first round trip", 5e6, false}}, ETIMEDOUT);
  stuck.path = "rdma rxe0/1 gid 1";
  const auto rows = judge(facts, stuck, &tcp);
  REQUIRE(rows.size() == 3);
  says(rows[0], Level::kOk, "90.0 us");
  says(rows[1], Level::kFailed, "timed out", "handshake succeeds but data is lost");
  says(rows[2], Level::kOk, "rdma rxe0/1 gid 1");
}

TEST_CASE("doctor: a path with a lesser MTU than the port's is a note", "[doctor]") {
  auto one = dialled("rdma", {{"connect", 90, true}});
  one.path = "rdma rxe0/1 gid 1 RoCEv2 mtu 1024";
  one.mtu = 1024;
  says(judge(good(), one, nullptr).back(), Level::kNote, "MTU 1024, and rxe0/1 could take 4096",
       "the other end's network interface");
  one.mtu = 4096;
  CHECK(judge(good(), one, nullptr).back().level == Level::kOk);
}

TEST_CASE("doctor: both transports are compared", "[doctor]") {
  auto rdma = dialled("rdma", {}), tcp = dialled("tcp", {}, ECONNREFUSED);
  says(compare(rdma, tcp), Level::kSkipped, "no round trips");
  rdma.median = 12;
  says(compare(rdma, tcp), Level::kSkipped, "nothing answered over tcp");
  tcp.median = 30;
  says(compare(rdma, tcp), Level::kOk, "rdma takes 12.0 us there and back, tcp 30.0 us");
  rdma.median = 120;
  says(compare(rdma, tcp), Level::kNote, "tcp 30.0 us; soft-RoCE");
}

TEST_CASE("doctor: options of a list of schemes go to those that know them", "[doctor]") {
  const conn::Registry registry = conn::all_transports();
  const auto to = conn::Endpoint::parse("rdma|tcp://10.0.0.1:7?nodelay=no&fallback-delay=1ms");
  const auto ways = doctor::ways_of(registry, to);
  REQUIRE(ways.size() == 2);
  CHECK(ways[1].to_string() == "tcp://10.0.0.1:7?nodelay=no");
  CHECK_FALSE(doctor::over_tcp(registry, ways[1]));
  const auto rdma = conn::Endpoint::parse("rdma://10.0.0.1:7?window=64k&source=10.0.0.2");
  const auto tcp = doctor::over_tcp(registry, rdma);
  REQUIRE(tcp);
  CHECK(tcp->scheme == "tcp");
  CHECK_FALSE(tcp->options.has("window"));
}

TEST_CASE("doctor: a dial times its steps, and knows an echo", "[doctor]") {
  const conn::Registry registry = conn::all_transports();
  const doctor::EchoThread echo(registry, conn::Endpoint::parse("tcp://127.0.0.1:0"));
  const doctor::Dialled found = doctor::dial(registry, echo.at(), std::chrono::seconds(30));
  CHECK(found.failure.text.empty());
  CHECK(found.peer == "an echo");
  CHECK(found.median);
  std::string names;
  for (const auto& each : found.steps) {
    CHECK(each.done);
    names += each.name + ";";
  }
  CHECK(names == "resolve name;connect;first round trip;round trips;64 KiB there and back;");
  CHECK(found.path.starts_with("tcp 127.0.0.1:"));
}

TEST_CASE("doctor: a place where nobody listens, and one that is none", "[doctor]") {
  const conn::Registry registry = conn::all_transports();
  std::vector<Verdict> all;
  const auto tell = [&](Verdict verdict) { all.push_back(std::move(verdict)); };
  doctor::check_up(registry, good(), {.urls = {"tcp://127.0.0.1:1"}}, tell);
  REQUIRE(doctor::first_failure(all) != nullptr);
  says(*doctor::first_failure(all), Level::kFailed, "Connection refused",
       "no server listens there");
  CHECK(doctor::line_of(*doctor::first_failure(all)).starts_with("FAIL  tcp: connect: "));
  CHECK(doctor::json_of(*doctor::first_failure(all))["verdict"] == "failed");
  CHECK_THROWS_AS(doctor::check_up(registry, good(), {.urls = {"nonsense"}}, tell), conn::Error);
}

TEST_CASE("setup trace: steps that were begun, in order, and only while there is one", "[conn]") {
  conn::SetupTrace::begin("nobody keeps this");
  conn::SetupTrace trace;
  conn::SetupTrace::begin("one");
  {
    conn::SetupTrace inner;
    conn::SetupTrace::begin("inside");
    conn::SetupTrace::failed();
    REQUIRE(inner.steps().size() == 1);
    CHECK_FALSE(inner.steps()[0].done);
  }
  conn::SetupTrace::begin("two");
  conn::SetupTrace::failed();
  conn::SetupTrace::end();  // too late, no effect
  REQUIRE(trace.steps().size() == 2);
  CHECK(trace.steps()[0].name == "one");
  CHECK(trace.steps()[0].done);
  CHECK(trace.steps()[1].name == "two");
  CHECK_FALSE(trace.steps()[1].done);
}
