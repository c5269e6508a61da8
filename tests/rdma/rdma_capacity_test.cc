// SPDX-License-Identifier: BSD-3-Clause
// How many connections fit: what each connection takes, which limits exist, and the texts for
// users.
#if AECONN_RDMA

#include <sys/resource.h>
#include <unistd.h>

#include <array>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <stdexcept>

#include "conn/rdma/config/limits.h"
#include "conn/transports/transports.h"
#include "tests/support/catch.h"

namespace conn { inline namespace AECONN_ABI { namespace rdma { namespace {

Settings with(const std::string& options) { return Settings::from(Options::parse(options)); }

/// A folder with files in the format of the kernel's.
struct Kernel {
  Kernel() {
    char name[] = "/tmp/aeconn-limits-XXXXXX";
    if (mkdtemp(name) == nullptr) throw std::runtime_error("mkdtemp");
    root = name;
    sources = {root + "/proc", root + "/cgroup"};
    file("proc/self/status", "Name:\tx\nVmPin:\t    64 kB\nCapEff:\t0000000000000000\n");
    file("proc/self/maps", "a\nb\nc\n");
    file("proc/sys/vm/max_map_count", "65530\n");
    file("proc/self/cgroup", "0::/user.slice/one\n");
  }
  ~Kernel() { std::filesystem::remove_all(root); }
  void file(const std::string& name, const std::string& text) const {
    const std::filesystem::path path = root + "/" + name;
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path) << text;
  }
  std::string root;
  LimitSources sources;
};

const Limit* named(const std::vector<Limit>& limits, const std::string& part) {
  for (const Limit& each : limits)
    if (each.name.find(part) != std::string::npos) return &each;
  return nullptr;
}

struct LockedMemory {
  explicit LockedMemory(rlim_t most) {
    getrlimit(RLIMIT_MEMLOCK, &before);
    rlimit now = before;
    now.rlim_cur = std::min(most, before.rlim_max);
    set = now.rlim_cur;
    if (setrlimit(RLIMIT_MEMLOCK, &now) != 0) throw std::runtime_error("setrlimit");
  }
  ~LockedMemory() { setrlimit(RLIMIT_MEMLOCK, &before); }
  rlimit before{};
  rlim_t set = 0;
};

TEST_CASE("rdma capacity: what connections take grows with them and with their windows", "[rdma]") {
  const DeviceTraits bound{true, false, true, 65535}, soft{true, true, true, 32767}, plain{};
  const Need none = need_of(0, {}, bound), one = need_of(1000, {}, bound);
  CHECK(none.locked < one.locked);
  CHECK(one.locked >= 1000 * 64 * 1024);
  CHECK(one.queue_pairs == 1000);
  CHECK(one.keys == 1000);
  CHECK(one.regions < 100);
  CHECK(need_of(1000, {}, soft).regions >= 1000);
  CHECK(need_of(1000, {}, plain).keys == 0);
  CHECK(need_of(1000, {}, plain).domains >= 1000);
  CHECK(need_of(1000, {}, plain).locked > one.locked);
  CHECK(need_of(1000, with("window=1m"), bound).locked >= std::uint64_t{1000} << 20);
  CHECK(need_of(1000, with("window=4k"), bound).locked < one.locked / 2);  // with any size of pages
  CHECK(need_of(1000, with("isolation=none"), bound).keys == 0);
  CHECK(need_of(1000, with("isolation=connection"), bound).domains >= 1000);
}

TEST_CASE("rdma capacity: with extreme options the estimate does not wrap around", "[rdma]") {
  const std::array<std::uint64_t Need::*, 8> all{
      &Need::queue_pairs, &Need::completion_queues, &Need::regions, &Need::keys,
      &Need::domains,     &Need::objects,           &Need::locked,  &Need::mappings};
  const auto isolation =
      GENERATE(Isolation::kAuto, Isolation::kWindow, Isolation::kConnection, Isolation::kNone);
  const DeviceTraits traits =
      GENERATE(DeviceTraits{true, false, true, 1}, DeviceTraits{true, true, false, 0},
               DeviceTraits{false, false, false, UINT64_MAX});
  const std::uint32_t value = GENERATE(0u, 1u, 65536u, UINT32_MAX);
  const std::uint64_t most = GENERATE(std::uint64_t{0}, std::uint64_t{1} << 20, UINT64_MAX - 1);
  Settings settings;
  settings.isolation = isolation;
  settings.window = settings.send_queue = settings.receive_queue = value;
  settings.shared_receive_queue = value;
  CAPTURE(static_cast<int>(isolation), value, most);
  for (const auto what : all) {
    // More connections never need less.
    std::uint64_t before = 0;
    for (int bits = 0; bits <= 64; ++bits) {
      const std::uint64_t count = bits == 64 ? UINT64_MAX : std::uint64_t{1} << bits;
      const std::uint64_t needed = need_of(count, settings, traits).*what;
      CHECK(needed >= before);
      before = needed;
    }
    // Those that fit need no more than there is, and one more needs more.
    const Limit limit{"a limit", most, most / 2, what, true, "raise it to {}"};
    const Capacity capacity = capacity_of(limit, UINT64_MAX, settings, traits);
    const std::uint64_t room = most - most / 2;
    if (capacity.connections != 0)
      CHECK(need_of(capacity.connections, settings, traits).*what <= room);
    if (capacity.connections < (std::uint64_t{1} << 33) - 1)
      CHECK(need_of(capacity.connections + 1, settings, traits).*what > room);
    if (capacity.needed > room) CHECK(capacity.raise != "raise it to 0");
  }
}

TEST_CASE("rdma capacity: the limits of the process, as the kernel tells them", "[rdma]") {
  const Kernel kernel;
  const LockedMemory locked(1 << 16);
  const auto limits = process_limits("mlx5_0", kernel.sources);
  const Limit* memory = named(limits, "memlock");
  REQUIRE(memory != nullptr);
  CHECK(memory->most == locked.set);
  CHECK(memory->used == 64 * 1024);
  const Limit* mappings = named(limits, "max_map_count");
  REQUIRE(mappings != nullptr);
  CHECK(mappings->most == 65530);
  CHECK(mappings->used == 3);
  CHECK(named(limits, "cgroup") == nullptr);
  // A process that may lock any amount (CAP_IPC_LOCK) does not have that limit.
  kernel.file("proc/self/status", "VmPin:\t0 kB\nCapEff:\t000001ffffffffff\n");
  CHECK(named(process_limits("mlx5_0", kernel.sources), "memlock") == nullptr);
}

TEST_CASE("rdma capacity: the rdma cgroup, and those above it", "[rdma]") {
  const Kernel kernel;
  kernel.file("cgroup/user.slice/rdma.max", "mlx5_0 hca_handle=2 hca_object=2000\n");
  kernel.file("cgroup/user.slice/rdma.current", "mlx5_0 hca_handle=1 hca_object=150\n");
  kernel.file("cgroup/user.slice/one/rdma.max", "mlx5_0 hca_handle=max hca_object=max\n");
  const auto limits = process_limits("mlx5_0", kernel.sources);
  const Limit* group = named(limits, "rdma cgroup of mlx5_0");
  REQUIRE(group != nullptr);
  CHECK(group->most == 2000);
  CHECK(group->used == 150);
  CHECK(named(process_limits("mlx5_1", kernel.sources), "cgroup") == nullptr);
  kernel.file("proc/self/cgroup", "9:rdma:/old\n0::/user.slice/one\n");
  kernel.file("cgroup/rdma/old/rdma.max", "mlx5_1 hca_object=7\n");
  const auto older = process_limits("mlx5_1", kernel.sources);
  REQUIRE(named(older, "cgroup") != nullptr);
  CHECK(named(older, "cgroup")->most == 7);
}

TEST_CASE("rdma capacity: a limit says how many it has room for, and how to raise it", "[rdma]") {
  const DeviceTraits traits{true, false, true, 65535};
  const Limit limit{"locked memory (memlock)",   8 << 20, 64 << 10, &Need::locked, true,
                    "raise it with ulimit -l {}"};
  const Capacity capacity = capacity_of(limit, 1000, {}, traits);
  CHECK_FALSE(capacity.enough());
  CHECK(capacity.connections > 50);
  CHECK(capacity.connections < 128);
  const std::uint64_t kib = (capacity.used + capacity.needed + 1023) / 1024;
  CHECK(capacity.text(1000) ==
        "locked memory (memlock): 8192 KiB, 64 KiB used; 1000 connections of these options need " +
            std::to_string(capacity.needed / 1024) + " KiB, so there is room for " +
            std::to_string(capacity.connections) + ": raise it with ulimit -l " +
            std::to_string(kib));
  // Exactly that many fit.
  CHECK(capacity_of(limit, capacity.connections, {}, traits).enough());
  CHECK_FALSE(capacity_of(limit, capacity.connections + 1, {}, traits).enough());
  CHECK(capacity_of(limit, 10, {}, traits).text(10).find("raise") == std::string::npos);
  const Limit used_up{"x", 10, 20, &Need::queue_pairs, false, "raise it"};
  CHECK(capacity_of(used_up, 1, {}, traits).connections == 0);
}

TEST_CASE("rdma capacity: a device's own limits", "[rdma]") {
  ibv_device_attr device{};
  device.max_qp = 100;
  device.max_cq = device.max_mr = device.max_mw = device.max_pd = 1 << 20;
  const auto limits = device_limits("mlx5_0", device);
  const Capacity pairs =
      capacity_of(*named(limits, "max_qp"), 1000, {}, {true, false, true, 65535});
  CHECK(pairs.connections == 100);
  CHECK(pairs.text(1000) ==
        "queue pairs of mlx5_0 (max_qp): 100, 0 used; 1000 connections of these options need 1000, "
        "so there is room for 100: use another device, or several");
  for (const Limit& each : limits)
    if (each.what != &Need::queue_pairs)
      CHECK(capacity_of(each, 1000, {}, {true, false, true, 65535}).enough());
}

}  // namespace
}}}  // namespace conn::rdma

#endif  // AECONN_RDMA

#include "conn/capacity.h"

#include "conn/transports/transports.h"
#include "tests/support/catch.h"

TEST_CASE("capacity: descriptors, where a connection has one", "[conn]") {
  const conn::Capacity few = conn::descriptor_capacity(1, 1);
  CHECK(few.used >= 3);
  CHECK(few.most > few.used);
  CHECK(few.enough());
  const conn::Capacity many = conn::descriptor_capacity(std::uint64_t{1} << 40, 1);
  CHECK_FALSE(many.enough());
  CHECK(many.connections < many.most);
  CHECK(many.text(std::uint64_t{1} << 40).find("raise it with ulimit -") != std::string::npos);
  CHECK(conn::descriptor_capacity(1000000, 0).enough());
  // More than can be counted are not few.
  CHECK_FALSE(conn::descriptor_capacity(UINT64_MAX, 2).enough());
  CHECK_FALSE(conn::descriptor_capacity(UINT64_MAX, 1).enough());

  const conn::Registry registry = conn::all_transports();
  const auto of = [&](const std::string& url) {
    const conn::Endpoint endpoint = conn::Endpoint::parse(url);
    return registry.require(endpoint.scheme).capacity(endpoint, std::uint64_t{1} << 40);
  };
  REQUIRE(of("tcp://127.0.0.1:1").size() == 1);
  CHECK_FALSE(of("tcp://127.0.0.1:1").front().enough());
  CHECK_FALSE(of("unix:///x").front().enough());
  CHECK_THROWS_AS(of("tcp://127.0.0.1:1?wings=2"), conn::Error);
#if AECONN_TLS
  CHECK_FALSE(of("tls+unix:///x").front().enough());
#endif
}
