// SPDX-License-Identifier: BSD-3-Clause
// The set-up of a client of shm beside a server that the test plays: in which steps it succeeds,
// fails or is given up, and what the server sees.

#include <poll.h>
#include <sys/wait.h>

#include "conn/kit/descriptor.h"
#include "conn/shm/setup.h"
#include "conn/shm/type.h"
#include "tests/shm/shm_kit.h"
#include "tests/support/testing.h"

using conn::Endpoint;
using conn::shm::Answer;
using conn::shm::Made;
using conn::shm::Receipt;
using conn::shm::Setup;
using testing::RawSocket;
using namespace std::chrono_literals;

namespace {

/// A client's loop and type, and the socket of a server.
struct Place {
  Place() {
    const conn::SocketAddress address = conn::tcp::unix_address(path);
    REQUIRE(::bind(listening.fd(), address.get(), address.size) == 0);
    REQUIRE(::listen(listening.fd(), 4) == 0);
  }
  /// The set-up for a URL. Its result is stored in `made`.
  std::unique_ptr<Setup> start(const Endpoint& to) {
    auto setup = std::make_unique<Setup>(type, type.settings_for(to.options), to);
    setup->start(loop, [this](Made one) { made = std::move(one); });
    return setup;
  }
  std::unique_ptr<Setup> start() { return start(Endpoint::parse("shm://" + path)); }
  /// Receives the hello of the client that connects next.
  conn::shm::Hello greeted() {
    RUN_UNTIL(loop, conn::poll_until(listening.fd(), POLLIN, std::chrono::steady_clock::now()));
    socket = listening.accept();
    Receipt::Step step = Receipt::Step::kMore;
    RUN_UNTIL(loop, (step = hello.receive(socket.fd())) != Receipt::Step::kMore);
    REQUIRE(step == Receipt::Step::kDone);
    conn::shm::Hello read;
    REQUIRE(conn::shm::decode(hello.message(), 16 << 20, read).status == Answer::kStands);
    return read;
  }
  void answer(const Answer& answer) { socket.send(conn::shm::encode(answer)); }
  /// Seals the memories, as a server does.
  conn::shm::ChannelPtr accept(const conn::shm::Hello& read) {
    conn::Failure why;
    return conn::shm::accept_memories(hello.descriptor(0), read.client_ring, hello.descriptor(1),
                                      read.server_ring, why);
  }

  const testing::TempFolder folder;
  const std::string path = folder.path() + "/server";
  testing::AnyLoop loop;
  conn::shm::ShmType type;
  RawSocket listening = RawSocket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)), socket;
  Receipt hello;
  std::optional<Made> made;
};

}  // namespace

TEST_CASE("shm setup: its result is a socket and a memory, and later bytes stay in the socket",
          "[shm][shm-setup]") {
  Place place;
  const auto setup = place.start();
  const conn::shm::Hello hello = place.greeted();
  CHECK(hello.client_ring == 256 << 10);
  CHECK(hello.destination.text.empty());
  const conn::shm::ChannelPtr channel = place.accept(hello);
  REQUIRE(channel);
  CHECK_FALSE(place.made.has_value());
  place.socket.send(conn::shm::encode(Answer{}) + "b");
  RUN_UNTIL(place.loop, place.made.has_value());
  REQUIRE_FALSE(place.made->failure);
  CHECK(place.made->peer.to_string() == place.path);
  char bell = 0;
  CHECK(::recv(place.made->fd.get(), &bell, 1, MSG_DONTWAIT) == 1);
  CHECK(bell == 'b');
  CHECK(place.made->channel->writer.put("x", 1, [] {}) == 1);
  place.made->channel->writer.publish([] {});
  CHECK(channel->reader.look());
}

TEST_CASE("shm setup: connect-timeout begins with it, however long a handler has run before",
          "[shm][shm-setup]") {
  Place place;
  std::unique_ptr<Setup> setup;
  place.loop.post([&] {
    (void)place.loop.now();  // the loop takes this for the present time until the handlers are over
    std::this_thread::sleep_for(1100ms);
    setup = place.start(Endpoint::parse("shm://" + place.path + "?connect-timeout=1s"));
  });
  RUN_UNTIL(place.loop, setup != nullptr);
  testing::turns(place.loop, 3);
  CHECK_FALSE(place.made.has_value());
}

TEST_CASE("shm setup: an answer that refuses is the failure", "[shm][shm-setup]") {
  Place place;
  const auto setup = place.start();
  (void)place.greeted();
  place.answer({Answer::kFull, "no place; try again in 70 ms"});
  RUN_UNTIL(place.loop, place.made.has_value());
  CHECK(place.made->failure.code == std::errc::connection_refused);
  CHECK(place.made->failure.text ==
        "connect to " + place.path + ": refused: no place; try again in 70 ms");
  CHECK(place.made->failure.retry_after == 70ms);
  CHECK_FALSE(place.made->fd);
}

TEST_CASE("shm setup: the socket of a server that is gone is the failure", "[shm][shm-setup]") {
  Place place;
  place.listening.close();
  const auto setup = place.start();
  RUN_UNTIL(place.loop, place.made.has_value());
  CHECK(place.made->failure.text == "connect to " + place.path + ": Connection refused");
}

TEST_CASE("shm setup: who waits for it learns the same, in time", "[shm][shm-setup]") {
  Place place;
  const Endpoint to = Endpoint::parse("shm://" + place.path);
  const Made late = Setup(place.type, place.type.settings_for({}), to)
                        .wait(std::chrono::steady_clock::now() + 20ms);
  CHECK(late.failure.text == "connect to " + place.path + ": no answer: Connection timed out");
  place.listening.close();
  const Made gone = Setup(place.type, place.type.settings_for({}), to)
                        .wait(std::chrono::steady_clock::now() + testing::patience());
  CHECK(gone.failure.text == "connect to " + place.path + ": Connection refused");
}

TEST_CASE("shm setup: a path that leads nowhere is known at once", "[shm][shm-setup]") {
  Place place;
  Endpoint to = Endpoint::parse("shm|unix:///nowhere/kv?shm-path=" + place.path);
  to.scheme = "shm";
  const auto setup = place.start(to);
  REQUIRE(place.made.has_value());
  CHECK(place.made->failure.text == "connect to /nowhere/kv: No such file or directory");
  CHECK(place.type.settings_for(to.options)->path == place.path);
}

TEST_CASE("shm setup: a server learns that it is given up, although a child of fork() lives",
          "[shm][shm-setup]") {
  Place place;
  auto setup = place.start();
  (void)place.greeted();
  const testing::IdleChild child;
  setup.reset();
  CHECK(place.socket.receive(1).empty());
  testing::turns(place.loop, 2);
  CHECK_FALSE(place.made.has_value());
}
