// SPDX-License-Identifier: BSD-3-Clause
// A device or its network is removed while connections are active. Needs root and soft-RoCE: rxe0
// on dummy0, as set up by tests/softroce/run.
#if AECONN_RDMA

#include <unistd.h>

#include <cstdlib>

#include "conn/rdma/device/memory.h"
#include "conn/rdma/device/verbs.h"
#include "tests/support/fault_bed.h"

using conn::ConnectionPtr;
using conn::State;
using testing::Background;
using testing::command;
using testing::Scene;
using namespace std::chrono_literals;

namespace {

/// Wakes the loop every 20 ms to check conditions that change without an event.
void look_often(Scene& scene) {
  scene.loop.add_time_event(20ms, [] { return ae::Duration(20ms); });
}

struct Crowd {
  explicit Crowd(Scene& scene) : clients(20) {
    for (ConnectionPtr& client : clients) client = scene.connect(scene.address);
    RUN_UNTIL(scene.loop, scene.log.open() == 21);
    for (ConnectionPtr& client : clients) {
      collectors.push_back(std::make_unique<testing::Collector>(*client));
      REQUIRE(client->write("busy", 4) == 4);
    }
  }
  bool over() const {
    for (const auto& each : collectors)
      if (!each->over()) return false;
    return true;
  }
  std::vector<ConnectionPtr> clients;
  std::vector<std::unique_ptr<testing::Collector>> collectors;
};

/// A new client must be served, perhaps only after some tries.
void serves_again(Scene& scene) {
  const ae::TimePoint limit = testing::now() + 30s;
  std::string why;
  for (bool served = false; !served;) {
    INFO("the last try: " << why);
    REQUIRE(testing::now() < limit);
    const ConnectionPtr client = scene.connect(scene.address);
    testing::Collector collector(*client);
    RUN_UNTIL(scene.loop, client->state() != State::kConnecting);
    if (client->state() != State::kConnected) {
      why = client->last_error();
      testing::turns(scene.loop, 1);
      std::system("sleep 0.1");
      continue;
    }
    REQUIRE(client->write("again", 5) == 5);
    RUN_UNTIL(scene.loop, collector.bytes == "again" || collector.over());
    served = collector.bytes == "again";
  }
}

}  // namespace

TEST_CASE(
    "rdma removal: a device that is deleted fails all its connections at once, and is used again "
    "when it returns",
    "[rdma-device][removes-device]") {
  if (!testing::on_dummy()) return;
  {
    Scene scene;
    look_often(scene);
    for (int round = 0; round < 2; ++round) {
      INFO("round " << round);
      Crowd crowd(scene);
      const std::size_t endings = scene.log.endings.size();
      testing::Collector innocent(*scene.innocent);
      const ae::TimePoint begin = testing::now();
      const Background removal("rdma link delete rxe0");
      RUN_UNTIL(scene.loop, crowd.over() && scene.log.endings.size() >= endings + 21);
      CHECK(testing::now() - begin < testing::promptly());
      // The kernel waits until this process has released everything on the device, including
      // handles and memory.
      RUN_UNTIL(scene.loop, removal.ended());
      CHECK(testing::now() - begin < testing::promptly() + 1s);
      for (const ConnectionPtr& client : crowd.clients) {
        INFO(client->last_error());
        CHECK(client->state() == State::kError);
        CHECK_FALSE(client->last_error().empty());
      }
      for (const std::string& ending : scene.log.endings) CHECK_FALSE(ending.empty());
      CHECK(conn::rdma::registered_bytes() == 0);

      const ConnectionPtr meanwhile = scene.connect(scene.address);
      RUN_UNTIL(scene.loop, meanwhile->state() != State::kConnecting);
      CHECK(meanwhile->state() == State::kError);
      CHECK_FALSE(meanwhile->last_error().empty());

      command("rdma link add rxe0 type rxe netdev dummy0");
      serves_again(scene);
      scene.innocent = scene.connect(scene.address);
      RUN_UNTIL(scene.loop, scene.innocent->state() == State::kConnected);
      scene.innocent_echoes();
      RUN_UNTIL(scene.loop, scene.log.open() == 1);
    }
  }
  CHECK(conn::rdma::registered_bytes() == 0);
}

TEST_CASE("rdma removal: an address that is taken away ends the connections that use it",
          "[rdma-device]") {
  if (!testing::on_dummy()) return;
  Scene scene;
  look_often(scene);
  Crowd crowd(scene);
  const ae::TimePoint begin = testing::now();
  command("ip addr del 10.77.0.1/24 dev dummy0");
  RUN_UNTIL(scene.loop, crowd.over());
  CHECK(testing::now() - begin < testing::promptly() + 1s);
  for (const ConnectionPtr& client : crowd.clients) CHECK_FALSE(client->last_error().empty());
  command("ip addr add 10.77.0.1/24 dev dummy0");
  serves_again(scene);
}

TEST_CASE("rdma removal: a link that goes down ends its connections, and up again serves",
          "[rdma-device]") {
  if (!testing::on_dummy()) return;
  Scene scene;
  look_often(scene);
  Crowd crowd(scene);
  const ae::TimePoint begin = testing::now();
  command("ip link set dummy0 down");
  RUN_UNTIL(scene.loop, crowd.over());
  CHECK(testing::now() - begin < testing::promptly() + 1s);
  for (const ConnectionPtr& client : crowd.clients) CHECK_FALSE(client->last_error().empty());
  // No object of this process waits for the link in the kernel.
  crowd.clients.clear();
  RUN_UNTIL(scene.loop, scene.type.counters(scene.loop).open <= 1);
  command("ip link set dummy0 up");
  command("ip addr replace fd77:ae::1/64 dev dummy0 nodad");
  serves_again(scene);
}

#endif
