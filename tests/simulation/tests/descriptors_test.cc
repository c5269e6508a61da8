// SPDX-License-Identifier: BSD-3-Clause
// docs/limits.md says how many descriptors rdma needs: a few for each loop and device, none for a
// connection.

#include "tests/simulation/room.h"
#include "tests/support/descriptor_table.h"

using namespace simulation;
using testing::Opened;
using testing::told_of;

TEST_CASE("simulation: descriptors are those of loops and devices and not of connections",
          "[simulation][limits]") {
  World world;
  world.add_device("sim0", "10.77.0.1");
  const conn::Registry registry = conn::all_transports();
  const conn::ConnectionType& type = registry.require("rdma");
  const auto loop = testing::make_loop();
  testing::outlast_sleeps(*loop);  // opens the alarm of an EpollLoop, which is not counted here
  // The driver's own descriptor for its calls, which the simulation does not have.
  constexpr int kDriver = 1;
  const int of_loop = told_of("rdma, on each loop"),
            of_device = told_of("rdma, for each device of a loop");
  Opened opened;
  EndLog log;
  const conn::ListenerPtr listener = registry.listen(*loop, "rdma://10.77.0.1:0", log.handler());
  int all = opened.more();
  CHECK(all <= of_loop + of_device - kDriver);
  std::vector<conn::ConnectionPtr> clients;
  const auto connect = [&] {
    clients.push_back(registry.connect(*loop, listener->endpoints().front().to_string(),
                                       [](conn::Connection&) {}));
    RUN_UNTIL(*loop, log.clients.size() == clients.size() &&
                         clients.back()->state() == conn::State::kConnected);
  };
  connect();
  all += opened.more();
  CHECK(all == of_loop + of_device - kDriver);
  for (int i = 0; i < 20; ++i) connect();
  CHECK(opened.more() == 0);
  const conn::ListenerPtr another =
      registry.listen(*loop, "rdma://10.77.0.1:0", [](conn::ConnectionPtr) {});
  CHECK(opened.more() == 0);
  // A second loop has its own.
  {
    const auto other = testing::make_loop();
    (void)opened.more();
    const conn::ListenerPtr its =
        registry.listen(*other, "rdma://10.77.0.1:0", [](conn::ConnectionPtr) {});
    CHECK(opened.more() <= of_loop + of_device - kDriver);
    CHECK(type.name() == "rdma");
  }
  clients.clear();
  log.clients.clear();
}
