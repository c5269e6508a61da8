// SPDX-License-Identifier: BSD-3-Clause
// shm|rdma: shared memory where the server of the address is on this machine, rdma elsewhere.

#include "tests/simulation/freed.h"
#include "tests/simulation/room.h"

using namespace simulation;
using conn::Connection;
using conn::ConnectionPtr;
using testing::Contains;

namespace {

/// A server of shm|rdma at 127.0.0.1, an address of the device.
struct Host {
  Host() {
    world.add_device("sim0", "127.0.0.1");
    listener = listen("shm|rdma://127.0.0.1:0?shm-path=" + path);
  }
  ~Host() {
    servers.clear();
    listener.reset();
    loop.reset();
    check_all_freed(world);
  }
  conn::ListenerPtr listen(const std::string& url) {
    return registry.listen(*loop, url,
                           [this](ConnectionPtr next) { servers.push_back(std::move(next)); });
  }
  /// Connects to where a listener's rdma is; only a failure starts the next scheme.
  ConnectionPtr connect(const conn::Listener& to, const std::string& its_path) {
    const std::string url = "shm|rdma://127.0.0.1:" + std::to_string(to.endpoints()[0].port) +
                            "?fallback-delay=1h&shm-path=" + its_path;
    const std::size_t before = servers.size();
    ConnectionPtr client = registry.connect(*loop, url, {});
    RUN_UNTIL(*loop, client->state() != conn::State::kConnecting && servers.size() > before);
    testing::send(*loop, *client, "data");
    CHECK(testing::receive(*loop, *servers.back(), 4) == "data");
    return client;
  }

  World world;
  testing::TempFolder folder;
  const std::string path = folder.path() + "/kv.shm";
  conn::Registry registry = conn::all_transports();
  std::unique_ptr<ae::EventLoop> loop = testing::make_loop();
  std::vector<ConnectionPtr> servers;
  conn::ListenerPtr listener;
};

}  // namespace

TEST_CASE("simulation: shm|rdma takes shm where the server is on this machine",
          "[simulation][fallback][shm-list]") {
  Host host;
  REQUIRE(host.listener->not_served().empty());
  REQUIRE(host.listener->endpoints().size() == 2);
  CHECK(host.listener->endpoints()[0].scheme == "rdma");
  const ConnectionPtr client = host.connect(*host.listener, host.path);
  CHECK(client->path() == "shm " + host.path);
}

TEST_CASE("simulation: shm|rdma is rdma at once where shm leads elsewhere, and says why",
          "[simulation][fallback][shm-list]") {
  Host host;
  const ConnectionPtr nobody = host.connect(*host.listener, host.path + "2");
  CHECK(nobody->path().starts_with("rdma "));
  CHECK_THAT(nobody->path(), Contains("; not shm: ") && Contains("No such file"));
  const conn::ListenerPtr other = host.listen("rdma://127.0.0.1:0");
  const ConnectionPtr foreign = host.connect(*other, host.path);
  CHECK(foreign->path().starts_with("rdma "));
  CHECK_THAT(foreign->path(), Contains("; not shm: ") && Contains("this server serves 127.0.0.1:"));
}
