// Deadlines that pass while the loop itself stands still prove nothing about the peer.
#if AECONN_RDMA

#include <thread>

#include "tests/support/rdma_kit.h"

using conn::ConnectionPtr;
using conn::State;
using namespace std::chrono_literals;

TEST_CASE("rdma: a loop that stood still longer than a deadline looks before it judges",
          "[rdma][rdma-device]") {
  testing::Site site(testing::rdma_transport());
  testing::EchoLog echo;
  const auto listener =
      site.type.listen(site.loop, testing::rdma_endpoint("accept-timeout=200ms"), echo.handler());
  const ConnectionPtr client = site.type.create(site.loop);
  REQUIRE(client->connect_blocking(
      testing::with_options(listener->endpoints().front(), "accept-timeout=200ms"), 10s));
  // The subject, not a wait: both windows are announced, and nobody has looked at them yet.
  std::this_thread::sleep_for(400ms);
  testing::send(site.loop, *client, "still there?");
  REQUIRE(testing::receive(site.loop, *client, 12) == "still there?");
  REQUIRE(client->state() == State::kConnected);
}

#endif
