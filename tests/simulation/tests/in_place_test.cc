// Data in place over rdma: what is copied and what is not, what a peer can do to bytes that are
// looked at, memory that stays as long as somebody looks at it or fills it, and when the program's
// own is its own again.

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "conn/connection_type.h"
#include "tests/simulation/costs.h"
#include "tests/simulation/memory.h"
#include "tests/simulation/room.h"
#include "tests/support/raw_peer.h"

using namespace simulation;
using conn::Connection;
using conn::Outgoing;
using conn::View;
using conn::rdma::registered_bytes;
using testing::Pattern;

namespace {

constexpr std::size_t kKibi = 1024;

/// A room whose accepted connections leave what comes where it is.
struct Place : Room {
  explicit Place(const std::string& options = "?in-place=yes&keepalive=0ms",
                 const Profile& profile = chosen_profile(), Config config = {})
      : Room(config, options, profile, profile) {}
  /// Both ends of a new connection: the accepted one has no handler.
  void join(const std::string& more = {}) {
    const std::size_t before = log.clients.size();
    client = connected(more);
    RUN_UNTIL(loop, log.clients.size() == before + 1);
    server = log.clients.back().get();
    server->set_read_handler(nullptr);
  }
  std::uint64_t counter(const std::string& name) {
    for (const auto& [key, value] : type.statistics(loop))
      if (key == name) return value;
    FAIL("no counter " << name);
    return 0;
  }
  conn::ConnectionPtr client;
  Connection* server = nullptr;
};

std::string text_of(const View& view) {
  std::string text;
  for (int i = 0; i < view.count; ++i) {
    const iovec& piece = view.pieces[static_cast<std::size_t>(i)];
    text.append(static_cast<const char*>(piece.iov_base), piece.iov_len);
  }
  return text;
}

std::string pattern_of(std::uint64_t seed, std::size_t size) {
  const Pattern pattern(seed);
  std::string text;
  while (text.size() < size) text.append(pattern.at(text.size()).substr(0, size - text.size()));
  return text;
}

/// Runs the loop until a peek shows so many bytes.
View peek_until(Place& place, Connection& connection, std::size_t size, std::size_t together = 1) {
  View view;
  RUN_UNTIL(place.loop, (view = connection.peek(together), view.size >= size));
  return view;
}

void put(Connection& connection, std::string_view text) {
  const std::span<std::byte> room = connection.reserve(text.size());
  REQUIRE(room.size() >= text.size());
  std::memcpy(room.data(), text.data(), text.size());
  connection.commit(text.size());
}

/// Memory of the program's, registered, and what was said of its parts.
struct Store {
  Store(Place& place, std::size_t size)
      : bytes(pattern_of(5, size)),
        memory(place.type.register_memory(place.loop,
                                          std::as_writable_bytes(std::span<char>(bytes)))) {}
  Outgoing part(std::size_t at, std::size_t size) {
    return {std::as_bytes(std::span<const char>(bytes)).subspan(at, size), &Store::released, this,
            memory.get()};
  }
  static void released(void* context, std::error_code why) noexcept {
    auto& store = *static_cast<Store*>(context);
    ++store.releases;
    if (why) ++store.errors;
  }
  std::string bytes;
  std::unique_ptr<conn::Memory> memory;
  int releases = 0, errors = 0;
};

/// Peeks and consumes what comes, and compares it.
struct Reader {
  Reader(Connection& connection, std::uint64_t seed) : pattern(seed) {
    connection.set_read_handler([this](Connection& here) {
      for (View view; (view = here.peek()).size != 0; here.consume(view.size)) {
        stable = view.stable;
        for (int i = 0; i < view.count; ++i) {
          const iovec& piece = view.pieces[static_cast<std::size_t>(i)];
          intact = intact &&
                   pattern.matches(size, {static_cast<const char*>(piece.iov_base), piece.iov_len});
          size += piece.iov_len;
        }
      }
      ended = errno == 0;
      if (errno != EAGAIN) here.set_read_handler(nullptr);
    });
  }
  const Pattern pattern;
  std::size_t size = 0;
  bool stable = true, intact = true, ended = false;
};

}  // namespace

// --- copies --------------------------------------------------------------------------------------

TEST_CASE("simulation: what is peeked is copied once, and not at all with in-place=yes",
          "[simulation][in-place]") {
  const bool in_place = GENERATE(false, true);
  Place place(in_place ? "?in-place=yes" : "");
  place.join();
  REQUIRE(place.type.capabilities().in_place);
  const std::uint64_t before = place.counter("bytes_copied_in");
  constexpr std::size_t kSize = 3 << 20;
  Reader reader(*place.server, 9);
  testing::Sender sender(*place.client, 9, kSize);
  RUN_UNTIL(place.loop, reader.size == kSize);
  CHECK(reader.intact);
  CHECK(reader.stable == !in_place);
  CHECK(place.server->bytes_read() >= kSize);
  CHECK(place.counter("bytes_copied_in") - before == (in_place ? 0 : kSize));
}

TEST_CASE("simulation: read() copies once, whatever in-place says", "[simulation][in-place]") {
  Place place;
  place.join();
  const std::uint64_t in = place.counter("bytes_copied_in"),
                      out = place.counter("bytes_copied_out");
  testing::Receiver receiver(*place.server, 4);
  testing::Sender sender(*place.client, 4, 1 << 20);
  RUN_UNTIL(place.loop, receiver.received == 1 << 20);
  CHECK(receiver.intact);
  CHECK(place.counter("bytes_copied_in") - in == 1 << 20);
  CHECK(place.counter("bytes_copied_out") - out == 1 << 20);
}

TEST_CASE("simulation: what is sent from registered memory is not copied",
          "[simulation][in-place]") {
  Place place;
  place.join();
  Store store(place, 1 << 20);
  const std::uint64_t before = place.counter("bytes_copied_out");
  Reader reader(*place.server, 5);
  std::size_t sent = 0;
  for (const std::size_t size : {64 * kKibi, std::size_t{1024}, std::size_t{5000}, 300 * kKibi}) {
    REQUIRE(place.client->send(store.part(sent, size)) == static_cast<ssize_t>(size));
    sent += size;
  }
  CHECK(store.releases == 0);  // never inside
  RUN_UNTIL(place.loop, reader.size == sent && store.releases == 4);
  CHECK(reader.intact);
  CHECK(store.errors == 0);
  CHECK(place.counter("bytes_copied_out") == before);
  SECTION("short parts are copied, and order is kept") {
    REQUIRE(place.client->send(store.part(sent, 100)) == 100);
    REQUIRE(place.client->send(store.part(sent + 100, 70 * kKibi)) > 0);
    REQUIRE(place.client->write(store.bytes.data() + sent + 100 + 70 * kKibi, 50) == 50);
    REQUIRE(place.client->send(store.part(sent + 150 + 70 * kKibi, 2000)) > 0);
    RUN_UNTIL(place.loop, reader.size == sent + 2150 + 70 * kKibi && store.releases == 7);
    CHECK(reader.intact);
    CHECK(place.counter("bytes_copied_out") - before == 150);
  }
  SECTION("what it does not hold is copied") {
    std::string other = store.bytes.substr(sent, 9000);
    Outgoing outgoing = store.part(0, 1);
    outgoing.bytes = std::as_bytes(std::span<const char>(other));
    REQUIRE(place.client->send(outgoing) == 9000);
    RUN_UNTIL(place.loop, reader.size == sent + 9000 && store.releases == 5);
    CHECK(reader.intact);
    CHECK(place.counter("bytes_copied_out") - before == 9000);
  }
  SECTION("without memory, too") {
    Outgoing outgoing = store.part(sent, 9000);
    outgoing.memory = nullptr;
    REQUIRE(place.client->send(outgoing) == 9000);
    RUN_UNTIL(place.loop, reader.size == sent + 9000 && store.releases == 5);
    CHECK(reader.intact);
    CHECK(place.counter("bytes_copied_out") - before == 9000);
  }
}

TEST_CASE("simulation: what is reserved and committed is not copied, and leaves in few requests",
          "[simulation][in-place]") {
  Place place("?in-place=yes&keepalive=0ms&window=1m");
  place.join();
  Store store(place, 64 * kKibi);
  const std::uint64_t before = place.counter("bytes_copied_out");
  place.run_for(10ms);
  const Costs costs = place.world.costs(*place.far);
  // A reply as a server makes it: a head, a value, an end.
  put(*place.client, "$65536\r\n");
  REQUIRE(place.client->send(store.part(0, 64 * kKibi)) > 0);
  put(*place.client, "\r\n");
  peek_until(place, *place.server, 64 * kKibi + 10);
  const View view = place.server->peek();
  CHECK(text_of(view) == "$65536\r\n" + store.bytes + "\r\n");
  RUN_UNTIL(place.loop, store.releases == 1);
  CHECK(place.counter("bytes_copied_out") == before);
  const std::int64_t requests = (place.world.costs(*place.far) - costs).requests;
  CHECK(requests == (chosen_profile().max_sge > 2 ? 1 : 3));
}

TEST_CASE("simulation: many bytes sent in place leave in long batches, whatever send-buffer is",
          "[simulation][in-place]") {
  Place place("?in-place=yes&keepalive=0ms&window=1m&send-buffer=64k");
  place.join();
  Store store(place, 1 << 20);
  place.run_for(10ms);
  const Costs costs = place.world.costs(*place.far);
  Reader reader(*place.server, 5);
  for (std::size_t at = 0; at < store.bytes.size(); at += 64 * kKibi)
    REQUIRE(place.client->send(store.part(at, 64 * kKibi)) > 0);
  RUN_UNTIL(place.loop, reader.size == store.bytes.size() && store.releases == 16);
  CHECK(reader.intact);
  // Of 256 KiB while so much waits.
  const std::int64_t doorbells = (place.world.costs(*place.far) - costs).doorbells;
  CHECK(doorbells == 5);
}

TEST_CASE("simulation: a device that takes fewer pieces than it claims is believed then",
          "[simulation][in-place]") {
  Profile profile = profile_named("mlx5");
  profile.most_sge = 1;
  Place place("?in-place=yes&keepalive=0ms&window=1m", profile);
  place.join();
  CHECK(place.far->costs.slow["ibv_create_qp"] > 2);
  Store store(place, 10'000);
  const Costs costs = place.world.costs(*place.far);
  put(*place.client, "head");
  REQUIRE(place.client->send(store.part(0, 10'000)) > 0);
  peek_until(place, *place.server, 10'004);
  CHECK((place.world.costs(*place.far) - costs).requests == 2);
  place.client.reset();
  const std::int64_t tried = place.far->costs.slow["ibv_create_qp"];
  place.join();
  CHECK(place.far->costs.slow["ibv_create_qp"] == tried + 1);  // nobody asks it again
}

TEST_CASE("simulation: requests in place allocate nothing once they have begun",
          "[simulation][in-place]") {
  Place place("?in-place=yes&keepalive=0ms");
  place.join();
  Store store(place, 32 * kKibi);
  std::size_t got = 0;
  bool wrong = false;
  place.client->set_read_handler([&](Connection& here) {
    for (View view; (view = here.peek()).size != 0; here.consume(view.size)) got += view.size;
  });
  place.server->set_read_handler([&](Connection& here) {
    for (View view; (view = here.peek(6)).size >= 6; here.consume(6)) {
      put(here, "$32768\r\n");
      wrong = wrong || here.send(store.part(0, 32 * kKibi)) < 0;
    }
  });
  const auto requests = [&](int count) {
    for (int i = 0; i < count; ++i) {
      got = 0;
      put(*place.client, "GET x\n");
      while (got < 32 * kKibi + 8) (void)place.loop.process_events(ae::kFullIteration);
    }
  };
  requests(200);
  const std::uint64_t before = allocations();
  requests(200);
  CHECK(allocations() == before);
  CHECK_FALSE(wrong);
}

// --- what comes ----------------------------------------------------------------------------------

TEST_CASE("simulation: a peer that rewrites what it sent changes it with in-place=yes alone",
          "[simulation][in-place][hostile]") {
  const bool in_place = GENERATE(false, true);
  Room room({}, in_place ? "?in-place=yes" : "");
  testing::RawNet net(room.loop);
  testing::RawOptions options;
  options.source = "10.77.0.2";
  auto peer = net.connect(room.address, options);
  RUN_UNTIL(room.loop, !peer->offers.empty() && !room.log.clients.empty());
  Connection& server = *room.log.clients.front();
  server.set_read_handler(nullptr);
  const testing::RawPeer::Offer window = peer->offer();
  peer->stream("user=alice");
  View view;
  RUN_UNTIL(room.loop, (view = server.peek()).size == 10);
  REQUIRE(view.stable == !in_place);
  peer->write("user=admin", window.address, window.key);
  room.run_for(100ms);
  CHECK(text_of(view) == (in_place ? "user=admin" : "user=alice"));
  server.consume(10);
  peer.reset();
  RUN_UNTIL(room.loop, server.peek().size == 0 && errno != EAGAIN);
}

TEST_CASE("simulation: the read handler waits for as many bytes as peek() wanted together",
          "[simulation][in-place]") {
  Place place;
  place.join();
  int calls = 0;
  std::string got;
  bool last = false;
  place.server->set_read_handler([&](Connection& here) {
    ++calls;
    const View view = here.peek(1000);
    last = view.last;
    if (view.size >= 1000 || last) {
      REQUIRE((view.pieces[0].iov_len >= 1000 || last));
      got += text_of(view);
      here.consume(view.size);
    }
    if (last) here.set_read_handler(nullptr);
  });
  const std::string sent = pattern_of(1, 1700);
  const auto send = [&](std::size_t from, std::size_t size) {
    REQUIRE(place.client->write(sent.data() + from, size) == static_cast<ssize_t>(size));
    place.run_for(10ms);
  };
  send(0, 300);
  CHECK(calls == 1);
  send(300, 300);
  send(600, 399);
  CHECK(calls == 1);
  CHECK(got.empty());
  send(999, 1);
  CHECK(calls == 2);
  CHECK(got == sent.substr(0, 1000));
  send(1000, 700);
  CHECK(calls == 3);
  place.client.reset();
  RUN_UNTIL(place.loop, last);
  CHECK(got == sent);
  CHECK(place.server->peek().size == 0);
  CHECK(errno == 0);
}

TEST_CASE("simulation: a read() after a peek() for more is told of what is left",
          "[simulation][in-place]") {
  Place place;
  place.join();
  testing::send(place.loop, *place.client, "abcdef");
  REQUIRE(peek_until(place, *place.server, 6, 100).size == 6);
  CHECK(testing::read_some(*place.server, 2) == "ab");
  // Nobody waits for a hundred any more.
  CHECK(testing::receive(place.loop, *place.server, 4) == "cdef");
}

TEST_CASE("simulation: more bytes together than lie together are copied together",
          "[simulation][in-place]") {
  // The windows are smaller than what is wanted, or what is wanted lies across two.
  const std::string windows = GENERATE("&window=4096&max-window=4096", "&window=20000", "");
  CAPTURE(windows);
  Place place("?in-place=yes" + windows);
  place.join("in-place=yes" + windows);
  constexpr std::size_t kSize = 2 << 20;
  const Pattern pattern(2);
  std::size_t size = 0;
  bool intact = true;
  std::size_t wanted = 60'000;
  place.server->set_read_handler([&](Connection& here) {
    for (;;) {
      const View view = here.peek(std::min(wanted, kSize - size));
      if (view.size < std::min(wanted, kSize - size) || view.size == 0) return;
      const std::size_t part = std::min(wanted, kSize - size);
      intact = intact && view.pieces[0].iov_len >= part &&
               pattern.matches(size, view.first().substr(0, std::min<std::size_t>(part, 7000)));
      here.consume(part);
      size += part;
      wanted = 1 + wanted * 7 % 65'536;
    }
  });
  testing::Sender sender(*place.client, 2, kSize);
  RUN_UNTIL(place.loop, size == kSize);
  CHECK(intact);
}

TEST_CASE("simulation: what is peeked in one iteration keeps to read-budget",
          "[simulation][in-place]") {
  Place place("?in-place=yes&read-budget=10000&window=1m&keepalive=0ms");
  place.join();
  testing::send(place.loop, *place.client, std::string(100'000, 'b'));
  place.run_for(10ms);
  std::vector<std::size_t> turns;
  place.server->set_read_handler([&](Connection& here) {
    turns.push_back(0);
    for (View view; (view = here.peek()).size != 0; here.consume(view.size))
      turns.back() += view.size;
  });
  RUN_UNTIL(place.loop, place.server->bytes_read() >= 100'000);
  REQUIRE(turns.size() >= 10);
  for (const std::size_t each : turns) CHECK(each <= 10'000);
}

// --- memory that somebody looks at, or fills -----------------------------------------------------

TEST_CASE("simulation: bytes that are looked at outlive the connection and its device",
          "[simulation][in-place]") {
  const std::string end = GENERATE("the peer closes", "the device goes", "the peer is lost");
  const std::string isolation =
      GENERATE(std::string(chosen_profile().bound_keys() ? "&isolation=window" : ""),
               std::string("&isolation=connection"), std::string("&isolation=none"));
  CAPTURE(end, isolation);
  Place place("?in-place=yes&keepalive=100ms" + isolation);
  place.join();
  const conn::ConnectionPtr other = place.connected();  // shares what is shared
  const std::string sent = pattern_of(3, 100'000);
  testing::send(place.loop, *place.client, sent);
  place.run_for(50ms);
  const View view = place.server->peek();
  REQUIRE(view.size >= 65'536);
  if (end == "the peer closes")
    place.client.reset();
  else if (end == "the device goes")
    place.world.remove_device(*place.near);
  else
    place.world.set_path(*place.near, *place.far, false);
  place.run_for(20s);
  // Others come, and what they get is not this.
  if (end == "the peer closes") {
    const auto next = place.connected();
    place.echoes(*next, 200'000);
  }
  if (end == "the device goes") CHECK(place.near->handles.empty());
  CHECK(text_of(view) == sent.substr(0, view.size));
  std::string got;
  for (View rest; (rest = place.server->peek()).size != 0; place.server->consume(rest.size))
    got += text_of(rest);
  CHECK(got.size() >= 65'536);
  CHECK(got == sent.substr(0, got.size()));
}

TEST_CASE("simulation: bytes that are looked at go with the connection, or with the loop",
          "[simulation][in-place]") {
  Place place;
  place.join();
  testing::send(place.loop, *place.client, std::string(50'000, 'v'));
  place.run_for(10ms);
  REQUIRE(place.server->peek().size == 50'000);
  place.client.reset();
  place.run_for(5s);
  SECTION("closed") { place.log.clients.clear(); }
  SECTION("the loop ends first") {
    const conn::ConnectionPtr keep = std::move(place.log.clients.back());
    place.log.clients.clear();
    place.listener.reset();
    place.loop_holder.reset();
    CHECK(keep->peek().size == 0);
  }
}

TEST_CASE("simulation: room that is filled outlives the connection and its device",
          "[simulation][in-place]") {
  const std::string end = GENERATE("the peer closes", "the device goes", "closed", "the loop ends");
  CAPTURE(end);
  Place place;
  place.join();
  const conn::ConnectionPtr other = place.connected();
  put(*place.server, "before");
  const std::span<std::byte> room = place.server->reserve(30'000);
  REQUIRE(room.size() >= 30'000);
  CHECK(place.server->write("x", 1) == -1);
  CHECK(errno == EBUSY);
  if (end == "the peer closes") place.client.reset();
  if (end == "the device goes") place.world.remove_device(*place.near);
  if (end == "closed") return place.log.clients.clear();
  if (end == "the loop ends") {
    const conn::ConnectionPtr keep = std::move(place.log.clients.front());
    place.log.clients.clear();
    place.listener.reset();
    place.loop_holder.reset();
    return keep->commit(1);
  }
  place.run_for(5s);
  if (end == "the device goes") CHECK(place.near->handles.empty());
  if (end == "the peer closes") place.echoes(*other, 100'000);  // does not get this memory
  std::memset(room.data(), 'r', room.size());
  place.server->commit(30'000);
  CHECK(place.server->reserve(1).empty());
}

TEST_CASE("simulation: room stays while what was committed before it arrives",
          "[simulation][in-place]") {
  const std::size_t before = GENERATE(4, 3000);
  Place place;
  place.join();
  const std::string head(before, 'h'), tail(500, 't');
  put(*place.client, head);
  const std::span<std::byte> room = place.client->reserve(tail.size());
  REQUIRE(room.size() >= tail.size());
  REQUIRE(testing::receive(place.loop, *place.server, before) == head);
  place.run_for(10s);  // the device has told by then
  std::memcpy(room.data(), tail.data(), tail.size());
  place.client->commit(tail.size());
  CHECK(testing::receive(place.loop, *place.server, tail.size()) == tail);
}

// --- sending -------------------------------------------------------------------------------------

TEST_CASE("simulation: room is never short, and there is none when send-buffer is full",
          "[simulation][in-place]") {
  const std::string buffer = GENERATE("4096", "100000", "262144");
  CAPTURE(buffer);
  Place place("?in-place=yes&keepalive=0ms&window=4096&max-window=4096&send-buffer=" + buffer);
  place.join();
  const Pattern pattern(8);
  std::size_t written = 0, size = 1;
  const auto fill = [&](Connection& here) {
    for (;;) {
      const std::span<std::byte> room = here.reserve(size);
      if (room.empty()) return;
      REQUIRE(room.size() >= size);
      std::size_t done = 0;
      while (done < size) {
        const std::string_view part = pattern.at(written + done).substr(0, size - done);
        std::memcpy(room.data() + done, part.data(), part.size());
        done += part.size();
      }
      here.commit(size);
      written += size;
      size = 1 + size * 31 % conn::kTogether;
    }
  };
  place.client->set_read_handler(nullptr);
  fill(*place.server);
  CHECK(errno == EAGAIN);
  CHECK(written <= std::stoul(buffer) + conn::kTogether);
  const std::size_t before = written;
  int calls = 0;
  place.server->set_write_handler([&](Connection& here) {
    ++calls;
    fill(here);
    if (written > before + 500'000) here.set_write_handler(nullptr);
  });
  place.run_for(100ms);
  CHECK(calls < 3);  // not again and again for nothing
  Reader reader(*place.client, 8);
  RUN_UNTIL(place.loop, !place.server->has_write_handler() && reader.size == written);
  CHECK(reader.intact);
}

TEST_CASE("simulation: at memory-limit there is still room for who has nothing under way",
          "[simulation][in-place]") {
  Place place("?in-place=yes&keepalive=0ms&memory-limit=" +
              std::string(chosen_profile().bound_keys() ? "3m" : "4m"));
  place.join("memory-limit=0&keepalive=0ms");
  Connection& server = *place.server;
  std::vector<conn::ConnectionPtr> hogs;
  for (int i = 0; i < 6; ++i) {
    conn::ConnectionPtr next = place.dial("memory-limit=0&keepalive=0ms");
    RUN_UNTIL(place.loop, next->state() != conn::State::kConnecting);
    if (next->state() != conn::State::kConnected) break;
    RUN_UNTIL(place.loop, place.log.clients.back().get() != &server);
    hogs.push_back(std::move(next));
    place.run_for(10ms);
    Connection& hog = *place.log.clients.back();
    hog.set_read_handler(nullptr);
    for (std::span<std::byte> room; !(room = hog.reserve(conn::kTogether)).empty();)
      hog.commit(conn::kTogether);
  }
  Reader reader(*place.client, 6);
  const std::string sent = pattern_of(6, 300'000);
  std::size_t written = 0;
  const auto more = [&](Connection& here) {
    while (written < sent.size()) {
      const std::size_t part = std::min<std::size_t>(sent.size() - written, 50'000);
      const std::span<std::byte> room = here.reserve(part);
      if (room.empty()) return;
      std::memcpy(room.data(), sent.data() + written, part);
      here.commit(part);
      written += part;
    }
    here.set_write_handler(nullptr);
  };
  server.set_write_handler(more);
  RUN_UNTIL(place.loop, reader.size == sent.size());
  CHECK(reader.intact);
  CHECK(registered_bytes() > 0);
}

TEST_CASE("simulation: registered memory counts as pinned while somebody sends from it",
          "[simulation][in-place]") {
  Place place;
  place.join();
  place.run_for(1s);
  const std::uint64_t before = registered_bytes();
  {
    Store store(place, 1 << 20);
    CHECK(registered_bytes() == before);  // nobody has
    Reader reader(*place.server, 5);
    REQUIRE(place.client->send(store.part(0, 100'000)) > 0);
    RUN_UNTIL(place.loop, store.releases == 1 && reader.size == 100'000);
    CHECK(registered_bytes() >= before + (1 << 20));
    const std::int64_t keys = place.far->costs.registrations;
    REQUIRE(place.client->send(store.part(100'000, 100'000)) > 0);
    RUN_UNTIL(place.loop, store.releases == 2);
    CHECK(place.far->costs.registrations <= keys + 2);  // a window's perhaps, not this once more
  }
  place.client.reset();
  place.log.clients.clear();
  place.run_for(100s);
  CHECK(registered_bytes() < before + (1 << 20));
}

TEST_CASE("simulation: memory that cannot be registered is copied", "[simulation][in-place]") {
  SECTION("memory-limit") {
    Place place("?in-place=yes&keepalive=0ms");
    place.join("keepalive=0ms&memory-limit=16m");
    Store store(place, 17 << 20);
    const std::uint64_t before = place.counter("bytes_copied_out");
    Reader reader(*place.server, 5);
    REQUIRE(place.client->send(store.part(0, 100'000)) > 0);
    RUN_UNTIL(place.loop, store.releases == 1 && reader.size == 100'000);
    CHECK(reader.intact);
    CHECK(place.counter("bytes_copied_out") - before == 100'000);
    CHECK(registered_bytes() < 17 << 20);
  }
  SECTION("the device refuses, and is asked again a second later") {
    Place place("?in-place=yes&keepalive=0ms");
    place.join();
    Store store(place, 1 << 20);
    Reader reader(*place.server, 5);
    // What it takes besides is there already.
    REQUIRE(place.client->write(store.bytes.data(), 100'000) == 100'000);
    RUN_UNTIL(place.loop, reader.size == 100'000);
    place.run_for(100ms);
    const std::uint64_t before = place.counter("bytes_copied_out");
    const auto tries = [&] { return place.far->costs.slow["ibv_reg_mr"]; };
    const std::int64_t tried = tries();
    place.world.fail_call(1);
    REQUIRE(place.client->send(store.part(100'000, 20'000)) > 0);
    place.client->flush();
    REQUIRE(place.world.failed_calls() == 1);
    REQUIRE(place.world.last_failed() == "ibv_reg_mr");
    REQUIRE(place.client->send(store.part(120'000, 20'000)) > 0);
    RUN_UNTIL(place.loop, store.releases == 2 && reader.size == 140'000);
    CHECK(tries() == tried + 1);
    CHECK(place.counter("bytes_copied_out") - before == 40'000);
    place.run_for(1100ms);
    REQUIRE(place.client->send(store.part(140'000, 20'000)) > 0);
    RUN_UNTIL(place.loop, store.releases == 3 && reader.size == 160'000);
    CHECK(tries() == tried + 2);
    CHECK(place.counter("bytes_copied_out") - before == 40'000);
    CHECK(reader.intact);
  }
}

TEST_CASE("simulation: what was referred to is released once, however it ends",
          "[simulation][in-place]") {
  const std::string end = GENERATE("close", "the peer closes", "the peer is lost",
                                   "the device goes", "the loop ends", "nobody lingers");
  CAPTURE(end);
  Place place("?in-place=yes&keepalive=100ms" +
              std::string(end == "nobody lingers" ? "&linger=0ms" : ""));
  place.join(end == "nobody lingers" ? "linger=0ms&keepalive=100ms" : "keepalive=100ms");
  Store store(place, 3 << 20);
  // The peer's windows take some of it; the rest waits.
  for (std::size_t i = 0; i < 12; ++i)
    REQUIRE(place.client->send(store.part(i * 200'000, 200'000)) > 0);
  if (end == "close") {
    Reader reader(*place.server, 5);
    place.client.reset();
    RUN_UNTIL(place.loop, reader.ended);
    CHECK(reader.size >= 12 * 200'000);
    CHECK(reader.intact);
    RUN_UNTIL(place.loop, store.releases == 12);
    CHECK(store.errors == 0);
    return;
  }
  place.run_for(20ms);
  CHECK(place.client->write("x", 1) == 1);  // send-buffer is for what is copied
  const int told = store.releases;
  CHECK(told < 12);
  CHECK(store.errors == 0);
  if (end == "the peer closes") place.log.clients.clear();
  if (end == "the peer is lost") place.world.set_path(*place.near, *place.far, false);
  if (end == "the device goes") place.world.remove_device(*place.far);
  if (end == "nobody lingers") place.client.reset();
  if (end == "the loop ends") {
    conn::ConnectionPtr keep = std::move(place.client);
    place.log.clients.clear();
    place.listener.reset();
    place.loop_holder.reset();
    CHECK(store.releases == 12);
    keep.reset();
  } else {
    RUN_UNTIL(place.loop, store.releases == 12);
    place.client.reset();
    place.run_for(10s);
  }
  CHECK(store.releases == 12);
  CHECK(store.errors > 0);
  CHECK(store.errors <= 12 - told);
}

TEST_CASE("simulation: memory outlives devices and loops, and is used again",
          "[simulation][in-place]") {
  Place place;
  place.join();
  Store store(place, 1 << 20);
  {
    Reader reader(*place.server, 5);
    REQUIRE(place.client->send(store.part(0, 100'000)) > 0);
    RUN_UNTIL(place.loop, store.releases == 1);
  }
  SECTION("a device comes back") {
    place.server->set_read_handler(nullptr);
    place.client.reset();
    place.log.clients.clear();
    place.run_for(10s);
    place.type.cleanup(place.loop);
    CHECK(place.far->handles.empty());
    CHECK(registered_bytes() < 1 << 20);
    place.join();
    Reader reader(*place.server, 5);
    const std::uint64_t before = place.counter("bytes_copied_out");
    REQUIRE(place.client->send(store.part(0, 100'000)) > 0);
    RUN_UNTIL(place.loop, store.releases == 2 && reader.size == 100'000);
    CHECK(place.counter("bytes_copied_out") == before);
  }
  SECTION("the loop ends") {
    place.server->set_read_handler(nullptr);
    place.client.reset();
    place.log.clients.clear();
    place.listener.reset();
    place.loop_holder.reset();
    CHECK(registered_bytes() == 0);
    store.memory.reset();
  }
}
