// SPDX-License-Identifier: BSD-3-Clause
// What tcp copies when bytes are read and sent in place, and the number of system calls.

#include <sys/ioctl.h>

#include <cerrno>
#include <cstring>

#include "tests/support/raw_socket.h"
#include "tests/support/zero_copy_half.h"

using testing::Parcel;
using testing::SocketCalls;

TEST_CASE("tcp: in place, no byte is copied by us on its way in or out", "[tcp]") {
  testing::Pair pair({.name = "tcp"});
  SocketCalls calls;
  const std::string text(10'000, 't');
  const std::span<std::byte> room = pair.client->reserve(text.size());
  const void* const from = room.data();
  std::memcpy(room.data(), text.data(), text.size());  // the program's own copy
  pair.client->commit(text.size());
  pair.client->flush();
  REQUIRE(calls.pieces.size() == 1);
  REQUIRE(calls.pieces[0].sent);
  REQUIRE(calls.pieces[0].data == from);
  REQUIRE(calls.pieces[0].result == 10'000);
  testing::await_readable(pair.loop, *pair.server);
  calls.pieces.clear();
  const conn::View view = pair.server->peek();
  REQUIRE(view.size == text.size());
  REQUIRE_FALSE(calls.pieces.empty());
  REQUIRE_FALSE(calls.pieces[0].sent);
  REQUIRE(calls.pieces[0].data == view.pieces[0].iov_base);
  REQUIRE(view.first() == text);
  pair.server->consume(view.size);
}

TEST_CASE("tcp: what was committed and what is sent leave in one call, from where they lie",
          "[tcp]") {
  testing::Pair pair({.name = "tcp"});
  SocketCalls calls;
  Parcel value(1, 0, 40'000);
  const void* const bytes = value.text.data();
  const auto put = [&](std::string_view text) {
    const std::span<std::byte> room = pair.client->reserve(text.size());
    std::memcpy(room.data(), text.data(), text.size());
    pair.client->commit(text.size());
  };
  put("$40000\r\n");
  REQUIRE(pair.client->send(value.outgoing()) == 40'000);
  put("\r\n");
  pair.client->flush();
  REQUIRE(calls.calls == 1);
  REQUIRE(calls.pieces.size() == 3);
  REQUIRE(calls.pieces[1].data == bytes);
  REQUIRE(calls.pieces[1].result == 40'010);
  RUN_UNTIL(pair.loop, value.releases == 1);
}

TEST_CASE("tcp: messages a little longer than a small chunk take one read each", "[tcp]") {
  testing::Pair pair({.name = "tcp"});
  const std::string message(16 * 1024 + 4, 'm');  // 4 bytes of length, 16 KiB of payload
  SocketCalls calls;
  const auto reads_of_a_message = [&] {
    testing::send(pair.loop, *pair.client, message);
    int bytes = 0;  // all of it, so that the number of reads does not depend on the kernel
    RUN_UNTIL(pair.loop, ::ioctl(pair.server->fd(), FIONREAD, &bytes) == 0 &&
                             bytes == static_cast<int>(message.size()));
    calls.calls = 0;
    const conn::View header = pair.server->peek(4);
    REQUIRE(header.size >= 4);
    const conn::View all = pair.server->peek(message.size());
    REQUIRE(all.size == message.size());
    const int reads = calls.calls;
    pair.server->consume(all.size);
    return reads;
  };
  REQUIRE(reads_of_a_message() == 2);  // the first one is not expected to be so long
  for (int i = 0; i < 3; ++i) REQUIRE(reads_of_a_message() == 1);
}

TEST_CASE("tcp: readv is one call of as many buffers", "[tcp]") {
  testing::Pair pair({.name = "tcp"});
  REQUIRE(pair.client->write("head and body", 13) == 13);
  testing::await_readable(pair.loop, *pair.server);
  SocketCalls calls;
  char head[5], body[20];
  const iovec vectors[] = {{head, 5}, {nullptr, 0}, {body, 20}};
  REQUIRE(pair.server->readv(vectors, 3) == 13);
  REQUIRE(calls.calls == 1);
  REQUIRE(std::string_view(head, 5) == "head ");
  REQUIRE(std::string_view(body, 8) == "and body");
  REQUIRE(pair.server->readv(vectors, 3) == -1);
  REQUIRE(errno == EAGAIN);
}

TEST_CASE("tcp: readv takes more pieces than one system call does", "[tcp]") {
  testing::Pair pair({.name = "tcp"});
  const Parcel text(1, 0, 3000);
  testing::send(pair.loop, *pair.client, text.text);
  testing::turns(pair.loop, 3);
  std::string got(5000, '\0');
  std::vector<iovec> pieces;
  for (char& byte : got) pieces.push_back({&byte, 1});
  pieces.insert(pieces.begin() + 10, 2000, iovec{nullptr, 0});  // empty pieces for a whole call
  REQUIRE(pair.server->readv(pieces.data(), static_cast<int>(pieces.size())) == 3000);
  REQUIRE(got.substr(0, 3000) == text.text);
  pair.client.reset();
  testing::Collector collector(*pair.server);
  RUN_UNTIL(pair.loop, collector.over());
  REQUIRE(pair.server->readv(pieces.data(), static_cast<int>(pieces.size())) == 0);
}

TEST_CASE("tcp: with linger=0 a busy iteration does not lose the end of committed output",
          "[tcp]") {
  testing::Site site({.name = "tcp"});
  site.type.configure({{"linger", "0"}});
  std::vector<conn::ConnectionPtr> servers;
  const conn::ListenerPtr listener =
      site.listen([&](conn::ConnectionPtr next) { servers.push_back(std::move(next)); });
  const testing::RawSocket client = testing::RawSocket::connect(testing::address_of(*listener));
  const testing::RawSocket other = testing::RawSocket::connect(testing::address_of(*listener));
  RUN_UNTIL(site.loop, servers.size() == 2);
  // Bytes that are read ahead make a handler due in each iteration. It takes all the time of one.
  other.send("x");
  testing::await_readable(site.loop, *servers[1]);
  REQUIRE(servers[1]->peek().size == 1);
  bool closed = false, busy = false;
  servers[1]->set_read_handler([&](conn::Connection&) {
    busy = closed;
    while (closed && site.loop.has_time()) continue;
    closed = false;
  });
  const std::string much(64 << 10, 'm');
  const auto fill = [&] {
    while (servers[0]->write(much.data(), much.size()) > 0) continue;
  };
  for (int i = 0; i < 10; ++i) {
    fill();
    testing::turns(site.loop, 1);
  }
  site.loop.post([&] {
    fill();
    const std::span<std::byte> room = servers[0]->reserve(100);
    if (room.size() < 100) return;
    std::memset(room.data(), 'c', 100);
    servers[0]->commit(100);
    servers[0].reset();
    closed = true;
  });
  RUN_UNTIL(site.loop, busy);
  client.send("the peer may send on");
  RUN_UNTIL(site.loop, site.type.counters(site.loop).open == 1);
}
