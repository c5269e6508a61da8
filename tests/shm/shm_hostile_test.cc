// SPDX-License-Identifier: BSD-3-Clause
// Peers of shm that break rules, hang or die: each ends its own connection, with a reason, and
// nothing else. tests/shm/shm_memory_test.cc and shm_hello_test.cc have what they may bring.

#include <sys/wait.h>

#include <csignal>
#include <thread>

#include "tests/shm/shm_kit.h"
#include "tests/support/testing.h"

using conn::ConnectionPtr;
using testing::Contains;
using testing::RawClient;
using testing::Site;
using namespace std::chrono_literals;

namespace {

const testing::Transport kShm{.name = "shm", .lingers = false};

/// A server, and what it has accepted and refused.
struct Server : Site {
  explicit Server(const std::string& options = "") : Site(kShm) {
    conn::Endpoint at = fresh();
    at.options = conn::Options::parse(options);
    listener =
        type.listen(loop, at, [this](ConnectionPtr one) { accepted.push_back(std::move(one)); });
    listener->on_refused([this](const conn::Failure& why) { refused.push_back(why.text); });
    address = testing::address_of(*listener);
  }
  std::uint64_t count(const std::string& name) {
    for (const auto& [each, value] : type.statistics(loop))
      if (each == name) return value;
    return 0;
  }
  /// The connection of a client that has sent a good hello.
  conn::Connection& accept(RawClient& client) {
    client.greet();
    const std::size_t before = accepted.size();
    RUN_UNTIL(loop, accepted.size() > before);
    REQUIRE(client.answer() == conn::shm::Answer::kStands);
    return *accepted.back();
  }
  conn::ListenerPtr listener;
  conn::Endpoint address;
  std::vector<ConnectionPtr> accepted;
  std::vector<std::string> refused;
};

/// Waits for the failure of a connection, which has a read handler.
std::string failure(Server& server, conn::Connection& connection) {
  testing::Collector collector(connection);
  RUN_UNTIL(server.loop, collector.over());
  CHECK(collector.error == EPROTO);
  CHECK(server.count("peer_errors") == 1);
  return connection.last_error();
}

}  // namespace

TEST_CASE("shm hostile: a client without two good memories is refused with the reason",
          "[shm][shm-hostile][hostile]") {
  const std::size_t before = testing::count_descriptors();
  {
    Server server;
    const std::size_t idle = testing::count_descriptors();
    {
      RawClient none(server.address), one(server.address), twice(server.address);
      none.greet({});
      one.greet({one.own.get()});
      twice.greet({twice.own.get(), twice.own.get()});
      RUN_UNTIL(server.loop, server.refused.size() == 3);
      CHECK(none.answer() == conn::shm::Answer::kRule);
      CHECK_THAT(none.text, Contains("two descriptors"));
      CHECK(one.answer() == conn::shm::Answer::kRule);
      CHECK(twice.answer() == conn::shm::Answer::kRule);
    }
    CHECK(server.accepted.empty());
    CHECK(server.count("hello_failures") == 3);
    CHECK(server.count("accept_errors") == 3);
    CHECK(testing::open_descriptors_become(idle));
  }
  CHECK(testing::count_descriptors() == before);
}

TEST_CASE("shm hostile: a ring above max-ring is refused before it is mapped",
          "[shm][shm-hostile][hostile]") {
  Server server("max-ring=64k");
  RawClient client(server.address, 128 << 10);
  client.greet();
  RUN_UNTIL(server.loop, server.refused.size() == 1);
  CHECK(client.answer() == conn::shm::Answer::kSize);
  CHECK_THAT(client.text, Contains("max-ring"));
}

TEST_CASE("shm hostile: a client that sends no hello is refused in time",
          "[shm][shm-hostile][hostile]") {
  Server server("handshake-timeout=50ms");
  RawClient silent(server.address), slow(server.address);
  slow.socket.send("aeshm");
  RUN_UNTIL(server.loop, server.refused.size() == 2);
  CHECK_THAT(server.refused.front(), Contains("handshake-timeout"));
  CHECK(silent.answer() == conn::shm::Answer::kRule);
  CHECK(slow.answer() == conn::shm::Answer::kRule);
  CHECK(server.count("hello_failures") == 2);
}

TEST_CASE("shm hostile: max-handshakes hanging clients do not keep an honest one out",
          "[shm][shm-hostile][hostile]") {
  Server server("max-handshakes=2");
  RawClient first(server.address), second(server.address), third(server.address);
  const ConnectionPtr honest = server.connect(server.address);
  RUN_UNTIL(server.loop, server.accepted.size() == 1 && server.refused.size() >= 1);
  RUN_UNTIL(server.loop, honest->state() == conn::State::kConnected);
  CHECK(first.answer() == conn::shm::Answer::kFull);
}

TEST_CASE("shm hostile: what is no hello is refused by its first byte",
          "[shm][shm-hostile][hostile]") {
  Server server;
  RawClient client(server.address);
  client.socket.send("P");
  RUN_UNTIL(server.loop, server.refused.size() == 1);
  CHECK(client.answer() == conn::shm::Answer::kRule);
}

TEST_CASE("shm hostile: a word that breaks a rule ends its connection alone",
          "[shm][shm-hostile][hostile]") {
  Server server;
  RawClient client(server.address), other(server.address);
  conn::Connection& connection = server.accept(client);
  conn::Connection& untouched = server.accept(other);
  SECTION("a tail beyond the ring") { client.mine->tail = 1 << 20; }
  SECTION("a head beyond what was written") { client.mine->head = 1; }
  client.socket.send("b");
  CHECK_THAT(failure(server, connection), Contains("broke a rule"));
  CHECK(untouched.state() == conn::State::kConnected);
}

TEST_CASE("shm hostile: a tail that goes back ends the connection", "[shm][shm-hostile][hostile]") {
  Server server;
  RawClient client(server.address);
  conn::Connection& connection = server.accept(client);
  client.mine->tail = 100;
  CHECK(testing::receive(server.loop, connection, 50).size() == 50);
  client.mine->tail = 20;
  CHECK_THAT(failure(server, connection), Contains("broke a rule"));
}

TEST_CASE("shm hostile: bells that nobody wished for end the connection",
          "[shm][shm-hostile][hostile]") {
  Server server;
  RawClient client(server.address);
  conn::Connection& connection = server.accept(client);
  client.socket.send(std::string(100, 'b'));
  CHECK_THAT(failure(server, connection), Contains("rings more often"));
}

TEST_CASE("shm hostile: a peer that takes no bells and wishes without end stops nobody",
          "[shm][shm-hostile][hostile]") {
  Server server;
  RawClient client(server.address);
  conn::Connection& connection = server.accept(client);
  // The peer's descriptor is the same open file description for it alone: this is its own side.
  const auto began = std::chrono::steady_clock::now();
  for (std::uint32_t i = 1; i <= 2000; ++i) {
    client.mine->wish = i;
    REQUIRE(connection.write("x", 1) == 1);
  }
  CHECK(std::chrono::steady_clock::now() - began < 5s * testing::slower());
  CHECK(connection.state() == conn::State::kConnected);
  CHECK(client.theirs->tail == 2000);
}

TEST_CASE("shm hostile: descriptors among the bells are closed, and end the connection",
          "[shm][shm-hostile][hostile]") {
  Server server;
  RawClient client(server.address);
  conn::Connection& connection = server.accept(client);
  const std::size_t before = testing::count_descriptors();
  const std::array<int, 2> both{client.own.get(), client.socket.fd()};
  const int error = conn::shm::send_message(client.socket.fd(), "b", both.data(), 2);
  if (error == 0) {
    CHECK_THAT(failure(server, connection), Contains("it sends descriptors"));
  } else {  // since Linux 6.16
    CHECK(error == EPERM);
    testing::turns(server.loop, 5);
    CHECK(connection.state() == conn::State::kConnected);
  }
  CHECK(testing::open_descriptors_become(before));
}

TEST_CASE("shm hostile: after a failure what came before it can be read, and no more",
          "[shm][shm-hostile][hostile]") {
  Server server;
  RawClient client(server.address);
  conn::Connection& connection = server.accept(client);
  client.mine->tail = 100;
  shutdown(client.socket.fd(), SHUT_RDWR);
  connection.set_read_handler([](conn::Connection&) {});
  RUN_UNTIL(server.loop, connection.state() == conn::State::kError);
  char bytes[60];
  std::size_t all = 0;
  int error = 0;
  for (int i = 0; i < 10; ++i) {
    const ssize_t n = connection.read(bytes, sizeof bytes);
    if (n > 0) all += static_cast<std::size_t>(n);
    if (n < 0 && error == 0) error = errno;
    client.mine->tail = client.mine->tail + 100;  // it goes on writing
  }
  CHECK(all == 100);
  CHECK(error == ECONNRESET);
}

TEST_CASE("shm hostile: a hello that is awaited at fork() is left to the parent",
          "[shm][shm-hostile]") {
  // Long enough for the parent to read the hello in time; the child lets it pass.
  const unsigned timeout = 500 * testing::slower();
  Server server("handshake-timeout=" + std::to_string(timeout) + "ms");
  RawClient client(server.address);
  testing::turns(server.loop, 5);  // accepted, and waits for the hello
  const pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    server.loop.after_fork();
    const auto limit = std::chrono::steady_clock::now() + timeout * 3 / 2 * 1ms;
    server.loop.add_time_event(20ms, [] { return ae::Duration(20ms); });
    while (std::chrono::steady_clock::now() < limit) server.loop.process_events(ae::kFullIteration);
    _exit(server.refused.empty() && server.accepted.empty() ? 0 : 1);
  }
  conn::Connection& connection = server.accept(client);
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  CHECK((WIFEXITED(status) && WEXITSTATUS(status) == 0));
  char byte;
  CHECK(::recv(client.socket.fd(), &byte, 1, MSG_DONTWAIT) == -1);  // nothing follows the answer
  CHECK(connection.state() == conn::State::kConnected);
}

TEST_CASE("shm hostile: what the client writes into the server's page is not believed",
          "[shm][shm-hostile][hostile]") {
  Server server;
  RawClient client(server.address);
  conn::Connection& connection = server.accept(client);
  REQUIRE(connection.write("abc", 3) == 3);
  std::memset(static_cast<void*>(client.theirs), 0xff, sizeof *client.theirs);
  REQUIRE(connection.write("def", 3) == 3);
  CHECK(client.theirs->tail == 6);
  client.mine->tail = 10;
  CHECK(testing::receive(server.loop, connection, 10).size() == 10);
  CHECK(client.theirs->head == 10);
}

TEST_CASE("shm hostile: a socket that ends without FIN and CLOSED is a reset, after the last byte",
          "[shm][shm-hostile]") {
  Server server;
  RawClient client(server.address);
  conn::Connection& connection = server.accept(client);
  client.mine->tail = 1000;
  const bool finished = GENERATE(false, true), closed = GENERATE(false, true);
  if (finished) client.mine->fin = 1;
  if (closed) client.mine->closed = 1;
  client.socket.close();
  testing::Collector collector(connection);
  RUN_UNTIL(server.loop, collector.over());
  CHECK(collector.bytes.size() == 1000);
  CHECK(collector.ended == (finished && closed));
  CHECK(collector.error == (finished && closed ? 0 : ECONNRESET));
}

TEST_CASE("shm hostile: a server that does not speak shm, or does not answer, is an error",
          "[shm][shm-hostile][hostile]") {
  Site site(kShm);
  const std::string path = site.folder.path() + "/raw";
  const testing::RawSocket listening(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const conn::SocketAddress address = conn::tcp::unix_address(path);
  REQUIRE(::bind(listening.fd(), address.get(), address.size) == 0);
  REQUIRE(::listen(listening.fd(), 4) == 0);
  conn::Endpoint to = conn::Endpoint::parse("shm://" + path + "?connect-timeout=200ms");
  ConnectionPtr client = site.connect(to);
  std::optional<testing::RawSocket> server;
  std::atomic<bool> accepted{false};
  std::thread accepting([&] {
    server = listening.accept();
    accepted = true;
  });
  while (!accepted) testing::turns(site.loop, 1);
  accepting.join();
  std::string text;
  SECTION("it sends nothing") { text = "timed out"; }
  SECTION("it sends something else") {
    server->send("-ERR unknown command\r\n");
    text = "does not speak shm";
  }
  SECTION("it closes") {
    server->close();
    text = "before its answer";
  }
  SECTION("its answer brings descriptors") {
    const int fd = listening.fd();
    const int error =
        conn::shm::send_message(server->fd(), conn::shm::encode(conn::shm::Answer{}), &fd, 1);
    REQUIRE((error == 0 || error == EPERM));  // since Linux 6.16
    text = error == 0 ? "does not speak shm" : "timed out";
  }
  SECTION("it has not sealed its memory") {
    server->send(conn::shm::encode(conn::shm::Answer{}));
    text = "has not sealed the memory";
  }
  SECTION("its answer ends too early") {
    server->send(conn::shm::encode(conn::shm::Answer{conn::shm::Answer::kRule, "x"}).substr(0, 64));
    server->close();
    text = "before its answer";
  }
  const std::size_t before = testing::count_descriptors();
  RUN_UNTIL(site.loop, client->state() == conn::State::kError);
  CHECK_THAT(client->last_error(), Contains(text));
  client.reset();
  testing::turns(site.loop, 2);
  CHECK(testing::count_descriptors() < before);
}

TEST_CASE("shm hostile: a peer that is killed anywhere leaves whole bytes, then a reset",
          "[shm][shm-hostile]") {
  for (int round = 0; round < 20; ++round) {
    Server server;
    const pid_t child = fork();
    REQUIRE(child >= 0);
    if (child == 0) {
      alarm(20 * testing::slower());
      testing::AnyLoop loop;
      const conn::Registry registry = testing::test_registry();
      ConnectionPtr peer = registry.require("shm").create(loop);
      if (!peer->connect_blocking(server.address, 5s)) _exit(1);
      const testing::Pattern pattern(1);
      for (std::uint64_t at = 0;;) {
        const std::string_view bytes = pattern.at(at);
        const ssize_t n =
            peer->sync_write(bytes.data(), std::min<std::size_t>(bytes.size(), 9999), 5s);
        if (n <= 0) _exit(2);
        at += static_cast<std::uint64_t>(n);
      }
    }
    RUN_UNTIL(server.loop, server.accepted.size() == 1);
    testing::Receiver receiver(*server.accepted[0], 1);
    RUN_UNTIL(server.loop, receiver.received > static_cast<std::uint64_t>(round) * 77777 + 1);
    ::kill(child, SIGKILL);
    RUN_UNTIL(server.loop, receiver.error != 0 || receiver.ended);
    int status = 0;
    waitpid(child, &status, 0);
    REQUIRE(WIFSIGNALED(status));
    CHECK(receiver.error == ECONNRESET);
    CHECK(receiver.intact);
  }
}

TEST_CASE("shm: close() reaches the peer although a child of fork() still has the socket",
          "[shm][shm-hostile]") {
  testing::Pair pair(kShm);
  const testing::IdleChild child;
  testing::Collector collector(*pair.server);
  pair.client.reset();
  RUN_UNTIL(pair.loop, collector.over());
  CHECK(collector.ended);
}

TEST_CASE("shm: one bell wakes a loop for all of its peers", "[shm]") {
  Server server;
  std::array<std::unique_ptr<RawClient>, 3> clients;
  std::size_t wishes = 0;  // of the others, while the handler of the first one runs
  for (auto& client : clients) {
    client = std::make_unique<RawClient>(server.address);
    server.accept(*client).set_read_handler([&, it = client.get()](conn::Connection& c) {
      (void)testing::read_some(c, 100);
      if (it != clients[0].get()) return;
      for (std::size_t i : {1u, 2u}) wishes += clients[i]->theirs->wish != 0 ? 1 : 0;
    });
  }
  // Lets the loop sleep. Returns the wishes that stood meanwhile.
  const auto sleep = [&] {
    std::array<std::uint32_t, 3> stood{};
    bool over = false;
    server.loop.add_time_event(5ms, [&] {
      for (std::size_t i = 0; i < stood.size(); ++i) stood[i] = clients[i]->theirs->wish;
      over = true;
      return ae::kNoMore;
    });
    RUN_UNTIL(server.loop, over);
    return stood;
  };
  // All three have news, so that they are hot.
  for (auto& client : clients) {
    client->mine->tail = 1;
    client->socket.send("b");
  }
  RUN_UNTIL(server.loop, server.count("bells_had") == 3);
  for (const std::uint32_t wish : sleep()) CHECK(wish != 0);
  clients[0]->mine->tail = 2;
  clients[0]->socket.send("b");
  wishes = 0;
  RUN_UNTIL(server.loop, server.count("bells_had") == 4);
  CHECK(wishes == 0);
  // Without news for long enough, they ask once and are left alone.
  std::uint32_t last = 0;
  for (int i = 0; i < 40; ++i) {
    last = sleep()[2];
    CHECK(last != 0);
  }
  for (int i = 0; i < 5; ++i) CHECK(sleep()[2] == last);
}
