// SPDX-License-Identifier: BSD-3-Clause
// The link of shm without a loop: bells over the socket, the rules for them, what each end learns
// of the other's end, facts.

#include <sys/wait.h>

#include <algorithm>

#include "conn/shm/link.h"
#include "tests/shm/shm_kit.h"
#include "tests/support/lingering.h"

using conn::shm::Link;
using testing::Contains;

namespace {

constexpr std::size_t kRing = 64 << 10;

/// Both ends of one connection.
struct Ends {
  Ends() {
    conn::shm::Offer offer = conn::shm::make_memories(kRing);
    conn::Failure why;
    conn::shm::ChannelPtr accepted =
        conn::shm::accept_memories(offer.client, kRing, offer.server, kRing, why);
    REQUIRE((offer.channel && accepted));
    testing::SocketPair sockets;
    const conn::SocketAddress peer = conn::tcp::peer_address_of(sockets.one.get());
    client.set(conn::tcp::own_unix_socket(sockets.one.release()), peer, std::move(offer.channel));
    server.set(conn::tcp::own_unix_socket(sockets.other.release()), peer, std::move(accepted));
  }
  void write(const std::string& bytes) {
    const auto bell = [this] { (void)client.ring(); };
    REQUIRE(client.writer().put(bytes.data(), bytes.size(), bell) == bytes.size());
    client.writer().publish(bell);
  }
  Link client, server;
};

}  // namespace

TEST_CASE("shm link: an end that wishes for it is rung, and finds what has come",
          "[shm][shm-link]") {
  Ends ends;
  CHECK_FALSE(ends.server.readable());
  CHECK(ends.server.writable());
  ends.write("a");
  CHECK(ends.server.take_bells() == 0);
  CHECK(ends.server.look());
  CHECK(ends.server.readable());
  CHECK_FALSE(ends.server.look());
  ends.server.wish(true, false);
  ends.write("b");
  ends.write("c");
  CHECK(ends.server.take_bells() == 1);
  ends.server.wish(true, false);
  ends.server.unwish();
  ends.write("d");
  CHECK(ends.server.take_bells() == 0);
  ends.write(std::string(kRing - 4, 'x'));
  CHECK_FALSE(ends.client.writable());
  ends.client.wish(false, true);
  CHECK_FALSE(ends.client.look());
  std::string bytes(kRing, '\0');
  CHECK(ends.server.reader().get(bytes.data(), kRing, [&] { (void)ends.server.ring(); }) == kRing);
  CHECK(ends.client.take_bells() == 1);
  CHECK(ends.client.look());
  CHECK(ends.client.writable());
  CHECK(ends.client.broken() == nullptr);
  CHECK(ends.server.broken() == nullptr);
}

TEST_CASE("shm link: a socket that is full of bells needs no other", "[shm][shm-link][hostile]") {
  Ends ends;
  std::size_t sent = 0;
  while (ends.client.ring()) ++sent;
  CHECK_FALSE(ends.client.owes_bell());
  std::size_t taken = 0;
  while (const std::size_t some = ends.server.take_bells()) taken += some;
  CHECK(taken == sent);
  CHECK_THAT(ends.server.broken(), Contains("rings more often"));
  CHECK(ends.client.broken() == nullptr);
}

TEST_CASE("shm link: two bells more than wishes are those of FIN and CLOSED",
          "[shm][shm-link][hostile]") {
  Ends ends;
  ends.server.wish(true, true);
  for (int i = 0; i < 4; ++i) CHECK(ends.client.ring());
  CHECK(ends.server.take_bells() == 4);
  CHECK(ends.server.broken() == nullptr);
  CHECK(ends.client.ring());
  CHECK(ends.server.take_bells() == 1);
  CHECK(ends.server.broken() != nullptr);
}

TEST_CASE("shm link: descriptors among the bells break a rule", "[shm][shm-link][hostile]") {
  const testing::AsOlderKernel older;
  Ends ends;
  const int socket = ends.client.descriptor().get();
  REQUIRE(testing::pass(socket, "b", {socket}) == 0);
  (void)ends.server.take_bells();
  CHECK_THAT(ends.server.broken(), Contains("descriptors"));
}

TEST_CASE("shm link: the end is proper with its words, and a loss without them",
          "[shm][shm-link]") {
  Ends ends;
  ends.write("last");
  const bool properly = GENERATE(true, false);
  ends.client.end(properly);
  ends.client.end(properly);
  CHECK_FALSE(ends.server.ended());
  CHECK(ends.server.take_bells() == 0);
  CHECK(ends.server.ended());
  CHECK(ends.server.look());
  CHECK(ends.server.lost() == !properly);
  CHECK(ends.server.refuses());
  CHECK(ends.server.reader().unread() == 4);
  CHECK(ends.server.reader().finished() == properly);
}

TEST_CASE("shm link: a child of fork() does not end its parent's link", "[shm][shm-link]") {
  Ends ends;
  const pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    ends.client.end(true);
    _exit(0);
  }
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  CHECK((WIFEXITED(status) && WEXITSTATUS(status) == 0));
  CHECK(ends.server.take_bells() == 0);
  CHECK_FALSE(ends.server.ended());
}

TEST_CASE("shm link: it has no descriptor for programs, and no facts once it has ended",
          "[shm][shm-link]") {
  Ends ends;
  CHECK(ends.client.fd() == -1);
  CHECK(ends.client.is_local() == true);
  CHECK(ends.client.peer_credentials()->pid == getpid());
  ends.write("abc");
  const std::pair<std::string, std::string> unsent{"unsent", "3"};
  const auto facts = ends.client.info();
  CHECK(facts.size() > 7);
  CHECK(std::count(facts.begin(), facts.end(), unsent) == 1);
  ends.client.end(true);
  CHECK(ends.client.info().empty());
  CHECK(ends.client.peer_address().empty());
  CHECK(ends.client.path() == "shm ");
}
