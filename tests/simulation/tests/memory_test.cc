// SPDX-License-Identifier: BSD-3-Clause
// Registered memory: it is checked against memory-limit before it is taken, returned when it is no
// longer needed, and cleared of old bytes before it is used for another peer.

#include <algorithm>
#include <array>
#include <memory>
#include <string>
#include <vector>

#include "tests/simulation/costs.h"
#include "tests/simulation/room.h"
#include "tests/support/raw_peer.h"

using namespace simulation;
using conn::rdma::registered_bytes;
using testing::Contains;

namespace {

constexpr std::uint64_t kMebi = 1 << 20;

// Writes until nothing more is accepted.
std::size_t fill(conn::Connection& connection) {
  static const std::string bytes(64 * 1024, 'f');
  std::size_t taken = 0;
  for (ssize_t n = 0; (n = connection.write(bytes.data(), bytes.size())) > 0;)
    taken += static_cast<std::size_t>(n);
  CHECK(errno == EAGAIN);
  return taken;
}

std::uint64_t fact_of(const conn::Connection& connection, const std::string& name) {
  for (const auto& [key, value] : connection.info())
    if (key == name) return std::stoull(value);
  FAIL("no " << name);
  return 0;
}

std::size_t read_all(conn::Connection& connection) {
  std::array<char, 1 << 16> bytes;
  std::size_t total = 0;
  for (ssize_t n = 0; (n = connection.read(bytes.data(), bytes.size())) > 0;)
    total += static_cast<std::size_t>(n);
  return total;
}

}  // namespace

TEST_CASE(
    "simulation: peers that do not read keep to memory-limit, and it is all back a minute "
    "after they left",
    "[simulation][memory]") {
  // Without bound keys each connection has memory of its own from the beginning.
  const std::uint64_t limit = (chosen_profile().bound_keys() ? 8 : 24) * kMebi;
  Room room({}, "?memory-limit=" + std::to_string(limit));
  const auto stays = room.connected("memory-limit=0&window=4096&max-window=4096");
  room.run_for(100s);
  const std::uint64_t before = registered_bytes();
  {
    std::vector<conn::ConnectionPtr> crowd;
    for (int i = 0; i < 40; ++i)
      crowd.push_back(room.dial("memory-limit=0&window=4096&max-window=4096"));
    RUN_UNTIL(room.loop, room.log.clients.size() == 41);
    for (const auto& each : room.log.clients) each->set_read_handler(nullptr);
    for (int round = 0; round < 20; ++round) {
      for (std::size_t i = 1; i < room.log.clients.size(); ++i) (void)fill(*room.log.clients[i]);
      CHECK(registered_bytes() <= limit);
      room.run_for(10ms);
    }
    CHECK(registered_bytes() > limit * 5 / 8);  // the limit was what stopped them
    // A connection without bytes under way may use the last quarter.
    const std::string word = "still here";
    CHECK(room.log.clients.front()->write(word.data(), word.size()) ==
          static_cast<ssize_t>(word.size()));
    CHECK(testing::receive(room.loop, *stays, word.size()) == word);
  }
  room.log.clients.resize(1);
  room.run_for(5s);  // while they linger
  // The next client is served at once, not only an hour later.
  {
    const auto next = room.connected("memory-limit=0");
    CHECK(next->state() == conn::State::kConnected);
  }
  room.run_for(62s);
  CHECK(registered_bytes() == before);
}

TEST_CASE("simulation: a writer that found no memory is called when there is some",
          "[simulation][memory]") {
  Room room({}, "?memory-limit=" + std::string(chosen_profile().bound_keys() ? "4m" : "8m") +
                    "&send-buffer=1m");
  std::vector<conn::ConnectionPtr> crowd;
  for (int i = 0; i < 12; ++i)
    crowd.push_back(room.dial("memory-limit=0&window=4096&max-window=4096"));
  RUN_UNTIL(room.loop, room.log.clients.size() == 12);
  for (const auto& each : room.log.clients) each->set_read_handler(nullptr);
  // The first connections take what is available.
  std::size_t held = 0;
  for (std::size_t i = 0; i + 1 < 12; ++i) held += fill(*room.log.clients[i]);
  conn::Connection& last = *room.log.clients.back();
  // Until the last quarter is used up, too, and the peer's window is full.
  for (bool more = true; more; room.run_for(50ms))
    for (more = false; last.write("x", 1) == 1;) more = true;
  CHECK(last.write("x", 1) == -1);
  REQUIRE(errno == EAGAIN);
  std::size_t called = 0;
  last.set_write_handler([&](conn::Connection& here) {
    ++called;
    if (here.write("more", 4) == 4) here.set_write_handler(nullptr);
  });
  room.run_for(500ms);
  CHECK(called <= 30);  // not called again and again in vain
  CHECK(last.has_write_handler());
  for (const auto& each : crowd) each->set_read_handler([](auto& here) { (void)read_all(here); });
  RUN_UNTIL(room.loop, !last.has_write_handler());
  CHECK(held > 0);
}

TEST_CASE("simulation: at memory-limit a writer goes on with what its own bytes give back",
          "[simulation][memory]") {
  Room room({}, "?keepalive=0ms&send-buffer=4m&memory-limit=" + std::to_string(3 * kMebi));
  const auto client = room.connected("memory-limit=0&keepalive=0ms");
  conn::Connection& server = *room.log.clients.front();
  // Other connections leave it only the last block.
  const auto hog = room.connected("memory-limit=0&keepalive=0ms");
  room.log.clients.back()->set_read_handler(nullptr);
  hog->set_read_handler(nullptr);
  (void)fill(*room.log.clients.back());
  const std::string bytes(200000, 'w');
  std::size_t written = 0, read = 0;
  client->set_read_handler([&](conn::Connection& here) { read += read_all(here); });
  server.set_write_handler([&](conn::Connection& here) {
    const ssize_t n = here.write(bytes.data() + written, bytes.size() - written);
    if (n > 0) written += static_cast<std::size_t>(n);
    if (written == bytes.size()) here.set_write_handler(nullptr);
  });
  const Nanoseconds begin = room.world.now();
  RUN_UNTIL(room.loop, read == bytes.size());
  CHECK(room.world.now() - begin < 1s);
}

TEST_CASE("simulation: a writer whose own bytes have all the memory is called when they arrived",
          "[simulation][memory]") {
  const Profile& rxe = profile_named("rxe");  // its connections share the memory
  Room room({}, "?keepalive=0ms&send-buffer=4m&memory-limit=3m", rxe, rxe);
  const auto client = room.connected("memory-limit=0&keepalive=0ms&window=1m&max-window=1m");
  conn::Connection& server = *room.log.clients.front();
  const auto hog = room.connected("memory-limit=0&keepalive=0ms");
  room.log.clients.back()->set_read_handler(nullptr);
  hog->set_read_handler(nullptr);
  (void)fill(*room.log.clients.back());
  client->set_read_handler([&](conn::Connection& here) { (void)read_all(here); });
  // The memory of what the echo has sent is returned.
  const std::string block(4096, 'w');
  REQUIRE(server.write(block.data(), block.size()) > 0);
  room.run_for(100ms);
  // No memory was missing when these were sent, so no completion was requested for them.
  REQUIRE(server.write(block.data(), block.size()) == static_cast<ssize_t>(block.size()));
  room.run_for(10ms);
  REQUIRE(server.write("x", 1) == -1);
  REQUIRE(errno == EAGAIN);
  server.set_write_handler([](conn::Connection& here) {
    if (here.write("x", 1) == 1) here.set_write_handler(nullptr);
  });
  const Nanoseconds begin = room.world.now();
  RUN_UNTIL(room.loop, !server.has_write_handler());
  CHECK(room.world.now() - begin < 10ms);
}

TEST_CASE("simulation: a writer that has nothing under way is called when others gave memory back",
          "[simulation][memory]") {
  const Profile& rxe = profile_named("rxe");
  Room room({}, "?memory-limit=8m&keepalive=0ms&linger=0ms&window=4096&max-window=4096", rxe, rxe);
  std::vector<conn::ConnectionPtr> crowd;
  for (int i = 0; i < 250; ++i)
    crowd.push_back(room.dial("memory-limit=0&keepalive=0ms&window=4096&max-window=4096"));
  RUN_UNTIL(room.loop, std::none_of(crowd.begin(), crowd.end(), [](const auto& each) {
              return each->state() == conn::State::kConnecting;
            }));
  room.run_for(1s);
  // How many were served at once depends on the loop; now there is no room for another.
  do {
    crowd.push_back(room.dial("memory-limit=0&keepalive=0ms&window=4096&max-window=4096"));
    RUN_UNTIL(room.loop, crowd.back()->state() != conn::State::kConnecting);
  } while (crowd.back()->state() == conn::State::kConnected);
  room.run_for(1s);
  for (const auto& each : room.log.clients) each->set_read_handler(nullptr);
  for (bool more = true; more; room.run_for(50ms)) {
    more = false;
    for (const auto& each : room.log.clients) more = fill(*each) != 0 || more;
  }
  // Some have no memory at all. One of them closes before memory is available again.
  const auto is_empty = [](const conn::ConnectionPtr& each) {
    const auto facts = each->info();
    return std::all_of(facts.begin(), facts.end(), [](const auto& fact) {
      return (fact.first != "unsent" && fact.first != "unconfirmed") || fact.second == "0";
    });
  };
  std::vector<conn::ConnectionPtr>& all = room.log.clients;
  const auto found = std::find_if(all.begin(), all.end(), is_empty);
  REQUIRE(found != all.end());
  conn::Connection& waits = **found;
  const auto goes = std::find_if(found + 1, all.end(), is_empty);
  REQUIRE(goes != all.end());
  // It is queued for notification behind more connections than are notified in one iteration.
  for (const auto& each : all) REQUIRE(fill(*each) == 0);
  all.erase(goes);
  waits.set_write_handler([](conn::Connection& here) {
    if (here.write("more", 4) == 4) here.set_write_handler(nullptr);
  });
  room.run_for(5s);
  CHECK(waits.has_write_handler());
  for (const auto& each : crowd) each->set_read_handler([](auto& here) { (void)read_all(here); });
  const Nanoseconds begin = room.world.now();
  RUN_UNTIL(room.loop, !waits.has_write_handler());
  CHECK(room.world.now() - begin < 100ms);
}

TEST_CASE("simulation: who gets no first window is refused, and who gets no larger one goes on",
          "[simulation][memory]") {
  SECTION("no first one") {
    Room room({}, "?memory-limit=40m&window=64m&max-window=64m");
    const auto client = room.dial("memory-limit=0");
    RUN_UNTIL(room.loop, client->state() != conn::State::kConnecting);
    CHECK(client->state() == conn::State::kError);
    CHECK_THAT(client->last_error(), Contains("memory-limit reached"));
  }
  SECTION("no larger one") {
    const std::string limit = chosen_profile().bound_keys() ? "8m" : "20m";
    Room room({}, "?memory-limit=" + limit + "&window=4096&max-window=64m&keepalive=0ms");
    const auto client = room.connected("memory-limit=0&keepalive=0ms");
    const auto refusals = [&] {
      for (const auto& [key, value] : room.type.statistics(room.loop))
        if (key == "memory_refusals") return value;
      return ~std::uint64_t{0};
    };
    room.log.clients.front()->set_read_handler([](auto& here) { (void)read_all(here); });
    const std::string bytes(8 << 20, 'w');
    const Nanoseconds begin = room.world.now();
    for (int i = 0; i < 20; ++i) testing::send(room.loop, *client, bytes);
    // Growth is tried again once per second.
    CHECK(refusals() >= 1);
    CHECK(refusals() <= 2u + static_cast<std::uint64_t>((room.world.now() - begin) / 1s));
  }
}

TEST_CASE("simulation: cleanup() lets go of a device that nobody uses", "[simulation][memory]") {
  Room room;
  room.connected().reset();
  RUN_UNTIL(room.loop, room.log.endings.size() == 1);
  room.run_for(5s);
  REQUIRE_FALSE(room.far->handles.empty());
  const auto completions = [&] {
    for (const auto& [key, value] : room.type.statistics(room.loop))
      if (key == "sim1_completions") return value;
    return std::uint64_t{0};
  };
  const std::uint64_t before = completions();
  CHECK(before > 0);
  room.type.cleanup(room.loop);
  CHECK(room.far->handles.empty());
  CHECK(completions() == before);
  (void)room.connected();
  CHECK(completions() > before);
}

TEST_CASE("simulation: memory-limit refuses who comes in words, and holds for who connects",
          "[simulation][memory]") {
  Room room({}, "?memory-limit=1");
  SECTION("who comes") {
    const auto client = room.dial("memory-limit=0");
    RUN_UNTIL(room.loop, client->state() != conn::State::kConnecting);
    CHECK_THAT(client->last_error(), Contains("refused by the server: memory-limit reached") ||
                                         Contains("Connection refused: memory-limit reached"));
  }
  SECTION("who connects") {
    const std::uint64_t before = registered_bytes();
    const auto client = room.dial();
    RUN_UNTIL(room.loop, client->state() != conn::State::kConnecting);
    CHECK_THAT(client->last_error(), Contains("memory-limit reached"));
    CHECK_FALSE(client->last_error().find("by the server") != std::string::npos);
    CHECK(registered_bytes() == before);
    // One more for the probe of the device, with less inline data if 128 bytes are refused.
    const Profile& device = chosen_profile();
    const bool twice = device.max_inline < 128 && device.too_much_inline != TooMuchInline::kLess;
    CHECK(room.far->costs.slow["ibv_create_qp"] == (twice ? 2 : 1));
  }
  const auto counter = [&](const std::string& name) {
    for (const auto& [key, value] : room.type.statistics(room.loop))
      if (key == name) return value;
    return std::uint64_t{0};
  };
  CHECK(counter("memory_refusals") <= 1);
}

TEST_CASE(
    "simulation: a burst that comes again costs no slow call but for windows that it has more of, "
    "and its memory goes in the end",
    "[simulation][memory]") {
  Room room({}, "?keepalive=0ms");
  const auto client = room.connected("keepalive=0ms");
  conn::Connection& server = *room.log.clients.front();
  std::size_t read = 0;
  std::uint64_t pinned = 0;  // highest value within this burst
  server.set_read_handler([&](conn::Connection& here) {
    pinned = std::max(pinned, fact_of(here, "pinned"));
    read += read_all(here);
  });
  const std::string bytes(6 << 20, 'w');
  const auto burst = [&] {
    const std::size_t before = read;
    pinned = 0;
    testing::send(room.loop, *client, bytes);
    RUN_UNTIL(room.loop, read == before + bytes.size());
    room.run_for(1s);
    return pinned / kMebi;  // windows of the maximum length
  };
  const auto slow = [&] {
    const Costs costs[] = {room.world.costs(*room.near), room.world.costs(*room.far)};
    return costs[0].slow_calls() + costs[1].slow_calls();
  };
  room.run_for(100s);
  const std::uint64_t idle = registered_bytes();
  std::uint64_t most = burst(), last = most;
  CHECK(registered_bytes() > idle);
  // The windows are long from the beginning, so a burst may find that one more window is faster
  // than the burst before, which had to grow its windows first.
  for (int i = 0; i < 6; ++i) {
    room.run_for(30s);
    const std::int64_t before = slow();
    const std::uint64_t windows = burst();
    CAPTURE(i, windows, last, most);
    CHECK(windows <= most + 1);
    // Windows that the last burst did not use were unused for a minute and may be gone.
    CHECK(slow() - before <= static_cast<std::int64_t>(windows > last ? windows - last : 0));
    last = windows;
    most = std::max(most, windows);
  }
  CHECK(most < 8);
  room.run_for(60s);
  CHECK(registered_bytes() == idle);
  burst();
}

TEST_CASE("simulation: memory that was another connection's window is zeros, with a key of its own",
          "[simulation][memory][hostile]") {
  Room room({}, "?window=16384");
  testing::RawNet net(room.loop);
  testing::RawOptions options;
  options.source = "10.77.0.2";
  const auto offers = [&](testing::RawPeer& peer) {
    RUN_UNTIL(room.loop, !peer.offers.empty());
    return peer.offer();
  };
  const auto leave = [&](std::unique_ptr<testing::RawPeer>& peer) {
    const std::size_t before = room.log.endings.size();
    peer->disconnect();
    RUN_UNTIL(room.loop, room.log.endings.size() > before);
    peer.reset();
    room.run_for(1s);
  };
  const auto stays = room.connected("window=16384");
  std::vector<testing::RawPeer::Offer> seen;
  bool again = false;
  for (int i = 0; i < 4; ++i) {
    auto peer = net.connect(room.address, options);
    const testing::RawPeer::Offer offer = offers(*peer);
    // Bytes that the peer never announces: the memory's next user must not see them.
    peer->write(std::string(offer.length, 's'), offer.address, offer.key);
    RUN_UNTIL(room.loop, *reinterpret_cast<const volatile char*>(offer.address + 5) == 's');
    for (const auto& each : seen) {
      again = again || each.address == offer.address;
      CHECK((each.address != offer.address || each.key != offer.key));
    }
    seen.push_back(offer);
    leave(peer);
    auto liar = net.connect(room.address, options);
    const testing::RawPeer::Offer next = offers(*liar);
    again = again || next.address == offer.address;
    // The liar announces its whole window and writes nothing.
    liar->immediate(next.length);
    RUN_UNTIL(room.loop, liar->received.size() == next.length);
    CHECK(liar->received == std::string(next.length, '\0'));
    leave(liar);
  }
  CHECK(again);  // the same memory was used again
}

TEST_CASE("simulation: windows longer than the largest block come and go like others",
          "[simulation][memory]") {
  Room room({}, "?keepalive=0ms&window=3m&max-window=16m&memory-limit=0");
  const auto client = room.connected("keepalive=0ms&memory-limit=0&window=3m");
  conn::Connection& server = *room.log.clients.front();
  std::size_t read = 0;
  std::uint64_t pinned = 0;
  server.set_read_handler([&](conn::Connection& here) {
    static std::array<char, 1 << 16> bytes;
    pinned = std::max(pinned, fact_of(here, "pinned"));
    for (ssize_t n = 0; (n = here.read(bytes.data(), bytes.size())) > 0;
         read += static_cast<std::size_t>(n))
      CHECK(std::all_of(bytes.begin(), bytes.begin() + n, [](char c) { return c == 'w'; }));
  });
  const std::string bytes(48 << 20, 'w');
  room.run_for(100s);
  const std::uint64_t idle = registered_bytes();
  // More is registered only for a burst that had more at once than any before it: either windows,
  // since each burst may find that one more is faster, or send buffers.
  std::uint64_t most_pinned = 0, most_to_send = 0, registered = 0;
  for (int i = 0; i < 8; ++i) {
    const std::size_t before = read;
    pinned = 0;
    testing::send(room.loop, *client, bytes);
    RUN_UNTIL(room.loop, read == before + bytes.size());
    const std::uint64_t to_send = fact_of(*client, "send-buffer");
    room.run_for(3s);
    CAPTURE(i, pinned, most_pinned, to_send, most_to_send);
    if (pinned <= most_pinned && to_send <= most_to_send) CHECK(registered_bytes() == registered);
    registered = registered_bytes();
    most_pinned = std::max(most_pinned, pinned);
    most_to_send = std::max(most_to_send, to_send);
  }
  CHECK(most_pinned <= 4 * 16 * kMebi);
  room.run_for(80s);
  CHECK(registered_bytes() == idle);
}

TEST_CASE("simulation: cleanup gives back at once what was kept for the next",
          "[simulation][memory]") {
  Room room;
  const auto crowd = [&] {
    {
      std::vector<conn::ConnectionPtr> clients;
      for (int i = 0; i < 40; ++i) clients.push_back(room.connected());
      for (const auto& each : clients) (void)fill(*each);
      room.run_for(1ms);
      room.log.clients.clear();
    }
    RUN_UNTIL(room.loop, room.type.counters(room.loop).open == 0);
    const std::int64_t kept = process_mappings();
    room.type.cleanup(room.loop);
    return std::pair(kept, process_mappings());
  };
  (void)crowd();  // warms up the allocator
  const auto [kept, left] = crowd();
  CHECK(left + 2 <= kept);
}

TEST_CASE("simulation: what is given back after the last connection's end goes, too",
          "[simulation][memory]") {
  // The connections end between two runs of run_maintenance(), and the disconnect gets no answer.
  for (const auto offset : {0ms, 300ms, 600ms, 900ms}) {
    Room room;
    room.connected().reset();
    RUN_UNTIL(room.loop, room.log.clients.empty());
    room.run_for(150s);
    const std::uint64_t before = registered_bytes();
    auto client = room.connected();
    room.run_for(5s + offset);
    room.world.set_path(*room.near, *room.far, false);
    room.log.clients.clear();
    client.reset();
    room.run_for(150s);
    CHECK(registered_bytes() == before);
  }
}

TEST_CASE("simulation: an idle connection keeps one window, keepalives or not",
          "[simulation][memory]") {
  const std::string keepalive = GENERATE("keepalive=0ms", "keepalive=3s");
  Room room({}, "?" + keepalive);
  const auto client = room.connected(keepalive);
  conn::Connection& server = *room.log.clients.front();
  server.set_read_handler([](conn::Connection& here) { (void)read_all(here); });
  const auto pinned = [&] {
    const auto info = server.info();
    return std::find_if(info.begin(), info.end(), [](auto& each) { return each.first == "pinned"; })
        ->second;
  };
  room.run_for(5s);
  const std::string before = pinned();
  // A window that is filled slowly.
  for (int i = 0; i < 9; ++i) {
    testing::send(room.loop, *client, std::string(10000, 'a'));
    room.run_for(20ms);
  }
  room.run_for(60s);
  CHECK(pinned() == before);
}

TEST_CASE("simulation: a loop may go when a connection that ended has unread bytes",
          "[simulation][memory]") {
  Room room;
  auto client = room.connected();
  conn::Connection& server = *room.log.clients.front();
  server.set_read_handler(nullptr);
  testing::send(room.loop, *client, std::string(50000, 'u'));
  room.run_for(100ms);
  client.reset();
  room.run_for(5s);
  std::array<char, 100> some{};
  CHECK(server.read(some.data(), some.size()) == 100);
  const conn::ConnectionPtr keep = std::move(room.log.clients.front());
  room.log.clients.clear();
  room.listener.reset();
  room.loop_holder.reset();
  CHECK(keep->state() != conn::State::kConnected);
}

TEST_CASE("simulation: unread bytes outlive the device they came through", "[simulation][memory]") {
  Room room;
  const auto client = room.connected();
  conn::Connection& server = *room.log.clients.front();
  server.set_read_handler(nullptr);
  const std::string bytes(100000, 'u');
  testing::send(room.loop, *client, bytes);
  room.run_for(100ms);
  room.world.remove_device(*room.near);
  room.run_for(2s);
  CHECK(room.near->handles.empty());  // nothing keeps it open
  std::string got(200000, '?');
  std::size_t size = 0;
  for (ssize_t n = 0; (n = server.read(&got[size], got.size() - size)) > 0;)
    size += static_cast<std::size_t>(n);
  CHECK(size >= 65536);  // the contents of the windows
  CHECK(got.substr(0, size) == bytes.substr(0, size));
  CHECK_THAT(server.last_error(), Contains("was removed"));
}
