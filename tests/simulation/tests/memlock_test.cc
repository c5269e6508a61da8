// SPDX-License-Identifier: BSD-3-Clause
// A limit on locked memory that is too low for one connection: listen() says so.

#include <linux/capability.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "conn/listener_group.h"
#include "conn/rdma/config/limits.h"
#include "tests/simulation/room.h"

using namespace simulation;
using testing::Contains;

namespace {

/// Sets RLIMIT_MEMLOCK, and takes away CAP_IPC_LOCK, which would lift it, for as long as it exists.
class LockedMemory {
 public:
  explicit LockedMemory(rlim_t bytes) {
    REQUIRE(getrlimit(RLIMIT_MEMLOCK, &before_) == 0);
    REQUIRE(::syscall(SYS_capget, &header_, caps_.data()) == 0);
    auto fewer = caps_;
    fewer[0].effective &= ~(1u << CAP_IPC_LOCK);
    REQUIRE(::syscall(SYS_capset, &header_, fewer.data()) == 0);
    rlimit now = before_;
    now.rlim_cur = std::min(bytes, before_.rlim_max);
    REQUIRE(setrlimit(RLIMIT_MEMLOCK, &now) == 0);
  }
  LockedMemory(const LockedMemory&) = delete;
  LockedMemory& operator=(const LockedMemory&) = delete;
  ~LockedMemory() {
    setrlimit(RLIMIT_MEMLOCK, &before_);
    ::syscall(SYS_capset, &header_, caps_.data());
  }

 private:
  rlimit before_{};
  __user_cap_header_struct header_{_LINUX_CAPABILITY_VERSION_3, 0};
  std::array<__user_cap_data_struct, 2> caps_{};
};

const conn::Endpoint kAt = conn::Endpoint::parse("rdma://10.77.0.1:0");

}  // namespace

TEST_CASE("simulation: a listener that could serve no connection for locked memory says so",
          "[simulation]") {
  for (const Profile* profile : serving_profiles()) {
    DYNAMIC_SECTION(profile->name) {
      std::uint64_t least = 0;
      {
        Room room({}, {}, *profile, *profile);
        const auto client = room.connected();
        {
          const conn::rdma::Device device(&room.near->base, 0);
          least = conn::rdma::locked_by_one(&device, {});
        }
        // What is demanded is never more than a connection takes.
        CHECK(least <= static_cast<std::uint64_t>(room.world.costs(*room.near).most_pinned));
        CHECK(least > 64 * 1024);
        // A listener beside others may have room in what is locked already.
        const LockedMemory used_up(least);
        CHECK_NOTHROW((void)room.type.listen(room.loop, kAt, {}));
      }
      const auto listens = [&](rlim_t bytes) -> std::string {
        World world;
        world.add_device("sim0", "10.77.0.1", *profile);
        const conn::Registry registry = conn::all_transports();
        const auto loop = testing::make_loop();
        const LockedMemory locked(bytes);
        try {
          (void)registry.require("rdma").listen(*loop, kAt, [](conn::ConnectionPtr) {});
        } catch (const conn::Error& error) {
          return error.what();
        }
        return {};
      };
      CHECK(listens(least).empty());
      const std::string why = listens(least - 4096);
      CHECK_THAT(why, Contains("rdma://10.77.0.1:0: no connection could be served: locked memory "
                               "(memlock): "));
      CHECK_THAT(why, Contains("the first connection needs " + std::to_string(least / 1024) +
                               " KiB; raise it with ulimit -l "));
      CHECK_THAT(listens(0), Contains(": 0 KiB, 0 KiB used"));
    }
  }
}

TEST_CASE("simulation: a list listens without rdma where memory cannot be locked", "[simulation]") {
  World world;
  world.add_device("sim0", "127.0.0.1", profile_named("mlx5"));
  const conn::Registry registry = conn::all_transports();
  const auto loop = testing::make_loop();
  const LockedMemory none(4096);
  const conn::ListenerPtr listener =
      registry.listen(*loop, "rdma|tcp://127.0.0.1:0", [](conn::ConnectionPtr) {});
  REQUIRE(listener->not_served().size() == 1);
  CHECK(listener->not_served()[0].scheme == "rdma");
  CHECK_THAT(listener->not_served()[0].why.text, Contains("no connection could be served"));
}
