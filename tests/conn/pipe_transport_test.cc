// SPDX-License-Identifier: BSD-3-Clause
// What the conformance suite does not test of the transport pipe.

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <optional>

#include "conn/kit/descriptor.h"
#include "tests/support/catch.h"
#include "tests/support/no_descriptors.h"
#include "tests/support/testing.h"

using namespace std::chrono_literals;

TEST_CASE("pipe: a listener without descriptors lets the loop sleep, and accepts later", "[conn]") {
  testing::Site site({.name = "pipe"});
  conn::ConnectionPtr accepted;
  const conn::ListenerPtr listener =
      site.listen([&](conn::ConnectionPtr arrival) { accepted = std::move(arrival); });
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  testing::address_of(*listener).path.copy(address.sun_path, sizeof address.sun_path - 1);
  const conn::Descriptor client(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  REQUIRE(::connect(client.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) ==
          0);
  testing::IterationCounter iterations(site.loop);
  std::optional<testing::NoNewDescriptors> none(std::in_place);
  const int busy = iterations.during(350ms);
  none.reset();
  CHECK(busy < 100);
  CHECK(site.type.counters(site.loop).accept_errors > 0);
  RUN_UNTIL(site.loop, accepted != nullptr);
}
