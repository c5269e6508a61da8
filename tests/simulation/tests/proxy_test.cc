// SPDX-License-Identifier: BSD-3-Clause
// aeconn-proxy towards rdma: what its send buffer holds is delivered before an error.

#include <cerrno>
#include <string>

#include "programs/proxy/site.h"
#include "tests/simulation/room.h"
#include "tests/support/raw_socket.h"

using namespace simulation;
using testing::RawSocket;

TEST_CASE("simulation: a proxy's client over rdma gets all that a server sent before it failed",
          "[simulation][proxy]") {
  Room room;
  const RawSocket at = RawSocket::listening();
  proxy::Settings settings;
  settings.connect = at.endpoint();
  proxy::Site site(room.loop, room.registry, settings);
  const conn::ListenerPtr listener =
      room.type.listen(room.loop, conn::Endpoint::parse("rdma://10.77.0.1:0"),
                       [&](conn::ConnectionPtr next) { site.accept(std::move(next)); });
  room.address.port = listener->endpoints().front().port;
  const conn::ConnectionPtr client = room.dial();
  RUN_UNTIL(room.loop, site.counters().joined == 1);
  RawSocket server = at.accept();
  testing::send(room.loop, *client, "question");
  RUN_UNTIL(room.loop, site.counters().upward == 8);
  // The client does not read yet: the answer fills all buffers on the way.
  const std::string piece(64 << 10, 'a');
  while (server.send_what_fits(piece) != 0) room.run_for(10ms);
  const std::uint64_t passed = site.counters().downward;
  server.close();  // with unread bytes: a reset
  room.run_for(10ms);
  // It reads slowly, so that most of the time the windows are full.
  std::string got(piece.size(), '\0');
  std::size_t received = 0;
  for (;;) {
    const ssize_t n = client->read(got.data(), got.size());
    if (n < 0 && errno != EAGAIN) break;
    REQUIRE(n != 0);
    if (n > 0) received += static_cast<std::size_t>(n);
    room.run_for(1ms);
  }
  const int error = errno;
  RUN_UNTIL(room.loop, site.open() == 0);
  CHECK(received > passed);
  CHECK(received == site.counters().downward);
  CHECK(error == ECONNRESET);
  CHECK(site.counters().broken == 0);
}
