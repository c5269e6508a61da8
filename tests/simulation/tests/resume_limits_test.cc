// SPDX-License-Identifier: BSD-3-Clause
// resume=yes: what a connection may hold, wait for and cost when its path is lost again and again.

#include <malloc.h>

#include <algorithm>
#include <array>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "conn/rdma/protocol/resume_message.h"
#include "conn/rdma/protocol/wire.h"
#include "tests/simulation/memory.h"
#include "tests/simulation/resume_kit.h"
#include "tests/support/raw_peer.h"

using namespace simulation;
using conn::rdma::Hello;

namespace {

std::string fact(const conn::Connection& of, std::string_view name) {
  for (const auto& [key, value] : of.info())
    if (key == name) return value;
  return "?";
}

std::string text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

std::vector<const Profile*> resuming_profiles() {
  std::vector<const Profile*> found;
  for (const Profile* each : serving_profiles())
    if (!each->iwarp) found.push_back(each);
  return found;
}

constexpr std::uint64_t kMostUnread = 4 * 16384;
const std::string kSmall =
    "resume=yes&resume-time=10s&keepalive=3s&window=4096&max-window=16384&max-windows=4&"
    "send-buffer=16384";

/// A client of an echo server which is not aeconn: it asks for a new path whenever it likes.
struct Hopper {
  Hopper(const Profile& profile, const std::string& options)
      : room({.strangers = true}, "?" + options, profile, profile), net(room.loop) {
    const Hello hello{.flags = kFlags | Hello::kResumes, .resume_ms = 10000};
    const auto bytes = encode(hello, conn::rdma::HelloKind::kRequest);
    testing::RawOptions first;
    first.private_data = text_of(bytes);
    first.source = "10.77.0.2";
    peers.push_back(net.connect(room.address, first));
    RUN_UNTIL(room.loop, peer().established && !peer().offers.empty() && !room.log.clients.empty());
    const auto answer =
        decode_hello(std::as_bytes(std::span(peer().private_data)), conn::rdma::HelloKind::kAnswer);
    REQUIRE(answer);
    grant = answer->grant;
  }
  ~Hopper() {
    peers.clear();
    room.run_for(20ms);
    room.log.clients.clear();
    room.run_for(15s);
  }
  Hopper(const Hopper&) = delete;
  Hopper& operator=(const Hopper&) = delete;
  testing::RawPeer& peer() { return *peers.back(); }
  conn::Connection& server() { return *room.log.clients.front(); }
  /// Says that all windows of the present path are full, as far as it is offered any.
  void claim_all() {
    for (std::size_t used = 0; used < peer().offers.size();) {
      for (; used < peer().offers.size(); ++used) peer().immediate(peer().offers[used].length);
      room.run_for(1ms);
    }
  }
  /// Asks for a new path. `completes`: completes the handshake, too.
  void ask(bool completes = true) {
    testing::RawOptions options;
    options.completes = completes;
    options.source = "10.77.0.2";
    options.at_request = [this](testing::RawPeer& here) {
      conn::SocketAddress from;
      REQUIRE(conn::numeric_address("10.77.0.2", static_cast<std::uint16_t>(here.port()), from));
      return text_of(conn::rdma::seal_request(
          {.hello = {.flags = kFlags}, .generation = ++generation, .session = grant.session},
          grant.key, conn::rdma::bound_address(from)));
    };
    peers.push_back(net.connect(room.address, options));
  }
  void hop() {
    ask();
    RUN_UNTIL(room.loop, peer().over() || peer().established);
    REQUIRE(peer().established);
    room.run_for(1ms);
    peers.erase(peers.begin());
  }
  std::uint64_t unread() { return std::stoull(fact(server(), "unread")); }

  static constexpr std::uint32_t kFlags =
      Hello::kFinishes | Hello::kWindowMayChange | Hello::kTakesAhead | Hello::kMarksWindows;
  Room room;
  testing::RawNet net;
  std::vector<std::unique_ptr<testing::RawPeer>> peers;
  conn::rdma::Grant grant;
  std::uint32_t generation = 0;
};

}  // namespace

TEST_CASE("resume: who asks for path after path is offered no more than is read",
          "[simulation][resume][hostile]") {
  for (const Profile* profile : resuming_profiles()) {
    const bool in_place = GENERATE(false, true);  // the program holds a view all the time
    CAPTURE(profile->name, in_place);
    Hopper hopper(*profile, kSmall + (in_place ? "&in-place=yes" : ""));
    conn::Connection& server = hopper.server();
    bool viewed = false;
    server.set_read_handler([&](conn::Connection& here) {
      viewed = in_place && here.peek().size != 0;
      here.set_read_handler(nullptr);
    });
    const conn::ConnectionPtr other = hopper.room.connected(kSmall);
    const std::uint64_t before = live_bytes();
    std::uint64_t most = 0, most_unread = 0;
    for (int i = 0; i < 60; ++i) {
      hopper.claim_all();
      hopper.hop();
      most = std::max(most, live_bytes());
      most_unread = std::max(most_unread, hopper.unread());
    }
    CHECK(viewed == in_place);
    CHECK(most_unread <= kMostUnread);
    CHECK(most - std::min(most, before) <= 2 * kMostUnread + 65536);
    hopper.room.echoes(*other);
    // When the program reads, windows are offered again, and the stream goes on.
    const std::uint64_t waits = hopper.unread();
    std::uint64_t got = 0;
    server.set_read_handler([&](conn::Connection& here) {
      std::array<char, 1000> bytes;
      const ssize_t n = here.read(bytes.data(), bytes.size());
      if (n > 0) got += static_cast<std::uint64_t>(n);
    });
    RUN_UNTIL(hopper.room.loop, got == waits && !hopper.peer().offers.empty());
    hopper.peer().immediate(3);
    RUN_UNTIL(hopper.room.loop, got == waits + 3);
  }
}

TEST_CASE("resume: losses while nobody reads cost no byte, and end when somebody does",
          "[simulation][resume]") {
  for (const Profile* profile : resuming_profiles()) {
    CAPTURE(profile->name);
    const std::string options = kResume + "&window=4096&max-window=16384&max-windows=4" +
                                "&send-buffer=32768&accept-timeout=300ms";
    Pair pair(*profile, {}, options, options);
    Talker client(*pair.client, 1, 2, 1'000'000), server(*pair.server, 2, 1, 0);
    server.set_reads(false);
    for (int i = 0; i < 5; ++i) {
      pair.room.run_for(100ms);
      pair.room.world.set_path(*pair.room.near, *pair.room.far, false);
      RUN_UNTIL(pair.room.loop, pair.counted("paths_lost") == 2);
      pair.room.world.set_path(*pair.room.near, *pair.room.far, true);
      RUN_UNTIL(pair.room.loop, pair.counted("paths_lost") == 0);
      CHECK(std::stoull(fact(*pair.server, "unread")) <= kMostUnread);
    }
    // No window is offered, and no deadline takes that for a fault.
    const std::uint64_t resumes = pair.counted("resumes");
    pair.room.run_for(1s);
    CHECK(pair.counted("resumes") == resumes);
    server.set_reads(true);
    testing::run_until(
        pair.room.loop, [&] { return server.received() == 1'000'000; }, "all bytes", 30s);
    CHECK(client.ending() + server.ending() == "");
  }
}

TEST_CASE("resume: a view stays what it was through losses of the path", "[simulation][resume]") {
  for (const Profile* profile : resuming_profiles()) {
    CAPTURE(profile->name);
    const std::string options = kResume + "&window=4096&max-window=4096&in-place=yes";
    Pair pair(*profile, {}, options, options);
    const testing::Pattern pattern(1);
    Talker client(*pair.client, 1, 2, 1'000);
    const auto lose = [&](std::uint64_t more) {
      pair.room.world.set_path(*pair.room.near, *pair.room.far, false);
      RUN_UNTIL(pair.room.loop, pair.counted("paths_lost") == 2);
      pair.room.world.set_path(*pair.room.near, *pair.room.far, true);
      RUN_UNTIL(pair.room.loop, pair.counted("paths_lost") == 0);
      client.more(more);
      pair.room.run_for(50ms);
    };
    pair.room.run_for(50ms);
    std::uint64_t read = 0;
    for (int views = 0; views < 3; ++views) {
      const conn::View view = pair.server->peek();
      REQUIRE(view.size > 300);
      for (int i = 0; i < 3; ++i) lose(500);
      std::uint64_t at = read;
      for (int i = 0; i < view.count; ++i)
        for (const char each : std::string_view(static_cast<const char*>(view.pieces[i].iov_base),
                                                view.pieces[i].iov_len))
          REQUIRE(each == pattern.at(at++).front());
      pair.server->consume(300);
      read += 300;
    }
    CHECK(client.ending() == "");
  }
}

namespace {

/// While it exists, the C library overwrites freed memory, so that a view of it is noticed.
struct OverwriteFreed {
  OverwriteFreed() noexcept { (void)mallopt(M_PERTURB, 0x5a); }
  ~OverwriteFreed() { (void)mallopt(M_PERTURB, 0); }
  OverwriteFreed(const OverwriteFreed&) = delete;
  OverwriteFreed& operator=(const OverwriteFreed&) = delete;
};

}  // namespace

// peek() ends the view of the peek() before. Each view is one of memory of another path, or of
// bytes that were copied out of it, or of both.
TEST_CASE("resume: a view that follows another without consume() stays what it was",
          "[simulation][resume]") {
  const OverwriteFreed overwrite;
  const bool arrives = GENERATE(true, false);       // more bytes come before each loss
  const bool without_path = GENERATE(true, false);  // some views begin while there is no path
  for (const Profile* profile : resuming_profiles()) {
    for (const char* isolation : {"window", "connection"}) {
      if (!profile->bound_keys() && isolation == std::string_view("window")) continue;
      CAPTURE(profile->name, isolation, arrives, without_path);
      const std::string options = kResume +
                                  "&window=4096&max-window=4096&max-windows=4&in-place=yes" +
                                  "&isolation=" + isolation;
      Pair pair(*profile, {}, options, options);
      const testing::Pattern pattern(1);
      Talker client(*pair.client, 1, 2, 1500);
      pair.room.run_for(50ms);
      conn::View view;
      std::uint64_t read = 0;
      const auto check = [&] {
        std::uint64_t at = read;
        for (int i = 0; i < view.count; ++i) {
          const iovec& piece = view.pieces[static_cast<std::size_t>(i)];
          REQUIRE(pattern.matches(at, {static_cast<const char*>(piece.iov_base), piece.iov_len}));
          at += piece.iov_len;
        }
      };
      const auto look = [&] {
        view = pair.server->peek();
        REQUIRE(view.size > 300);
        check();
      };
      for (int i = 0; i < 24; ++i) {
        const auto every = [i](int n) { return i % n == n - 1; };
        if (every(2) && (!arrives || every(4))) {
          pair.server->consume(300);
          read += 300;
          view = {};
        }
        if (!every(5)) look();
        if (arrives || i % 6 == 0) client.more(arrives ? 200 : 1200);
        pair.room.run_for(50ms);
        check();
        pair.room.world.set_path(*pair.room.near, *pair.room.far, false);
        RUN_UNTIL(pair.room.loop, pair.counted("paths_lost") == 2);
        check();
        if (without_path && every(3)) look();
        pair.room.run_for(1s);  // attempts to find a path fail meanwhile
        check();
        pair.room.world.set_path(*pair.room.near, *pair.room.far, true);
        RUN_UNTIL(pair.room.loop, pair.counted("paths_lost") == 0);
        check();
      }
      CHECK(client.ending() == "");
    }
  }
}

// Views and reservations of several paths, each with memory of its own.
TEST_CASE("resume: a view stays what it was, whatever is reserved or viewed on the next path",
          "[simulation][resume]") {
  for (const Profile* profile : resuming_profiles()) {
    for (const bool ends : {true, false}) {
      CAPTURE(profile->name, ends);
      const std::string options =
          kResume + "&window=4096&max-window=4096&in-place=yes&isolation=connection";
      Pair pair(*profile, {}, options, options);
      const testing::Pattern pattern(1);
      Talker client(*pair.client, 1, 2, 1'000);
      std::uint64_t read = 0;
      conn::View view;
      const auto look = [&] {
        view = pair.server->peek();
        REQUIRE(view.size > 300);
      };
      const auto lose = [&] {
        pair.room.world.set_path(*pair.room.near, *pair.room.far, false);
        RUN_UNTIL(pair.room.loop, pair.counted("paths_lost") == 2);
        pair.room.world.set_path(*pair.room.near, *pair.room.far, true);
        RUN_UNTIL(pair.room.loop, pair.counted("paths_lost") == 0);
      };
      pair.room.run_for(50ms);
      look();
      lose();
      REQUIRE_FALSE(pair.server->reserve(100).empty());
      if (ends) {
        pair.client.release()->abort();
        pair.room.run_for(1s);
      } else {
        pair.server->consume(1000);
        read = 1000;
        client.more(500);
        pair.room.run_for(50ms);
        look();
        pair.server->commit(0);
        lose();
      }
      // Others use the memory that is free.
      std::vector<conn::ConnectionPtr> others;
      const auto another = pair.room.type.listen(
          pair.room.loop, conn::Endpoint::parse("rdma://10.77.0.1:0?" + options),
          [&](conn::ConnectionPtr next) { others.push_back(std::move(next)); });
      pair.room.address = another->endpoints().front();
      for (std::size_t i = 0; i < 4; ++i) {
        const conn::ConnectionPtr other = pair.room.dial(options);
        RUN_UNTIL(pair.room.loop, others.size() == i + 1);
        testing::send(pair.room.loop, *other, std::string(4000, '#'));
        pair.room.run_for(10ms);
      }
      std::uint64_t at = read;
      for (int i = 0; i < view.count; ++i)
        for (const char each : std::string_view(static_cast<const char*>(view.pieces[i].iov_base),
                                                view.pieces[i].iov_len))
          REQUIRE(each == pattern.at(at++).front());
    }
  }
}

// The end that has read its peer's end of stream offers no window.
TEST_CASE("resume: a half-closed connection keeps its new path", "[simulation][resume]") {
  for (const Profile* profile : resuming_profiles()) {
    for (const bool server_shuts : {false, true}) {
      CAPTURE(profile->name, server_shuts);
      const std::string options = kResume + "&accept-timeout=500ms";
      Pair pair(*profile, {}, options, options);
      conn::Connection& shuts = server_shuts ? *pair.server : *pair.client;
      conn::Connection& stays = server_shuts ? *pair.client : *pair.server;
      Talker staying(stays, 2, 1, 1000), ending(shuts, 1, 2, 0);
      REQUIRE(shuts.shutdown() == 0);
      RUN_UNTIL(pair.room.loop, staying.ending() == "end of stream");
      flap(pair.room, 3s);
      RUN_UNTIL(pair.room.loop, pair.counted("resumes") == 2 && pair.counted("paths_lost") == 0);
      pair.room.run_for(1500ms);
      staying.more(100);
      pair.room.run_for(1500ms);
      CHECK(pair.counted("resumes") == 2);
      CHECK(pair.counted("paths_lost") == 0);
      CHECK(ending.received() == 1100);
      CHECK(ending.ending() == "");
    }
  }
}

// The deadline of close() is not that of the peer's first window.
TEST_CASE("resume: who closes before its bytes are sent again waits no longer than linger",
          "[simulation][resume]") {
  for (const Profile* profile : resuming_profiles()) {
    CAPTURE(profile->name);
    const std::string small = kResume + "&window=4096&max-window=4096&max-windows=2";
    Pair pair(*profile, {}, small, small + "&linger=1s");
    Talker client(*pair.client, 1, 2, 100'000), server(*pair.server, 2, 1, 0);
    server.set_reads(false);
    pair.room.run_for(50ms);
    pair.room.world.set_path(*pair.room.near, *pair.room.far, false);
    RUN_UNTIL(pair.room.loop, pair.counted("paths_lost") == 2);
    pair.room.world.set_path(*pair.room.near, *pair.room.far, true);
    const Nanoseconds begin = pair.room.world.now();
    pair.client.reset();  // the server's reader is behind: the bytes cannot be delivered
    RUN_UNTIL(pair.room.loop, pair.room.type.counters(pair.room.loop).open == 1);
    CHECK(pair.room.world.now() - begin < 2500ms);
  }
}

TEST_CASE("resume: an attempt that asks twice is answered", "[simulation][resume]") {
  for (const Profile* profile : resuming_profiles()) {
    CAPTURE(profile->name);
    const auto both = [](Pair& pair, Talker& client) {
      client.more(1000);
      testing::run_until(
          pair.room.loop,
          [&] { return pair.counted("resumes") >= 2 && pair.counted("paths_lost") == 0; },
          "a new path", 15s);
    };
    {  // rdma_cm finds during the handshake that the peer's address has another neighbour
      Pair pair(*profile);
      Talker client(*pair.client, 1, 2, 1000), server(*pair.server, 2, 1, 1000);
      pair.room.run_for(50ms);
      pair.room.world.set_path(*pair.room.near, *pair.room.far, false);
      RUN_UNTIL(pair.room.loop, pair.counted("paths_lost") == 2);
      pair.room.world.set_path(*pair.room.near, *pair.room.far, true);
      RUN_UNTIL(pair.room.loop, fact(*pair.server, "phase") == "accepting");
      pair.room.world.move_address(*pair.room.far);
      both(pair, client);
      pair.room.run_for(1s);
      CHECK(client.ending() + server.ending() == "");
      CHECK(server.received() == 2000);
    }
    {  // the new device cannot bind keys: the queue pair is made again
      Profile bad = *profile;
      bad.bind_status = IBV_WC_MW_BIND_ERR;
      Pair pair(*profile);
      Talker client(*pair.client, 1, 2, 1000), server(*pair.server, 2, 1, 1000);
      pair.room.run_for(50ms);
      pair.room.world.remove_device(*pair.room.far);
      pair.room.run_for(300ms);
      pair.room.far = &pair.room.world.add_device("sim2", "10.77.0.2", bad);
      both(pair, client);
      pair.room.run_for(1s);
      CHECK(client.ending() + server.ending() == "");
      CHECK(server.received() == 2000);
    }
  }
}

// The server's answer has arrived, so the program may write; what the client sends next is lost.
TEST_CASE("resume: a path that is lost before the server knows that it is set up is no end",
          "[simulation][resume]") {
  for (const Profile* profile : resuming_profiles()) {
    CAPTURE(profile->name);
    Room room({}, "?" + kResume, *profile, *profile);
    conn::ConnectionPtr server;
    room.listener =
        room.type.listen(room.loop, conn::Endpoint::parse("rdma://10.77.0.1:0?" + kResume),
                         [&](conn::ConnectionPtr next) { server = std::move(next); });
    room.address = room.listener->endpoints().front();
    room.address.options =
        room.address.options.merged_with(conn::Options::parse("source=10.77.0.2"));
    const conn::ConnectionPtr client = room.dial(kResume);
    RUN_UNTIL(room.loop, client->state() == conn::State::kConnected);
    REQUIRE(server == nullptr);
    room.world.set_path(*room.near, *room.far, false);
    Talker writer(*client, 1, 2, 1000);
    room.run_for(2s);
    CHECK(server == nullptr);
    room.world.set_path(*room.near, *room.far, true);
    RUN_UNTIL(room.loop, server != nullptr || !writer.ending().empty());
    REQUIRE(writer.ending() == "");
    {
      Talker reader(*server, 2, 1, 500);
      RUN_UNTIL(room.loop, (reader.received() == 1000 && writer.received() == 500) ||
                               !(writer.ending() + reader.ending()).empty());
      CHECK(writer.ending() + reader.ending() == "");
      server->clear_handlers();
    }
    client->clear_handlers();
  }
}

TEST_CASE("resume: leaving a path takes no longer than the device's last reports",
          "[simulation][resume]") {
  for (const Profile* profile : resuming_profiles()) {
    for (const bool server_moves : {false, true}) {
      for (const Nanoseconds idle : {Nanoseconds(1ms), Nanoseconds(40ms), Nanoseconds(2s)}) {
        CAPTURE(profile->name, server_moves, idle / 1ms);
        const std::string options = "resume=yes&resume-time=10s&keepalive=3s";
        Pair pair(*profile, {}, options, options);
        Talker client(*pair.client, 1, 2, 200), server(*pair.server, 2, 1, 200);
        pair.room.run_for(50ms);
        client.more(100);
        server.more(100);
        pair.room.run_for(idle);
        conn::Connection& moves = server_moves ? *pair.server : *pair.client;
        const Nanoseconds begin = pair.room.world.now();
        REQUIRE(moves.leave());
        CHECK(pair.room.world.now() - begin < 5ms);
        testing::turns(pair.room.loop, 1);
        REQUIRE(moves.join(pair.room.loop));
        client.more(100);
        RUN_UNTIL(pair.room.loop, server.received() == 400);
      }
    }
  }
}

// A client that does not finish what it has asked for keeps no closed connection.
TEST_CASE("resume: close() while a new path is granted waits no longer than linger",
          "[simulation][resume][hostile]") {
  for (const Profile* profile : resuming_profiles()) {
    CAPTURE(profile->name);
    Hopper client(*profile, kSmall + "&linger=1s&accept-timeout=60s");
    client.ask(false);
    RUN_UNTIL(client.room.loop, fact(client.server(), "phase") == "accepting");
    client.server().set_read_handler(nullptr);
    client.server().write("not delivered", 13);
    client.room.log.clients.clear();
    client.room.run_for(2500ms);
    CHECK(client.room.type.counters(client.room.loop).open == 0);
  }
}
