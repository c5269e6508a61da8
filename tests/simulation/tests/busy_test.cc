// SPDX-License-Identifier: BSD-3-Clause
// Many busy connections on one loop: no connection may be ended, starve, or have a handler called
// in vain, and memory must stay within its bound. Runs on the kind of device that AECONN_PROFILE
// names.
//
//   AECONN_BUSY_SECONDS=60         simulated seconds of each busy world
//   AECONN_BUSY_CONNECTIONS=10000  idle connections beside a busy one, instead of 64 and 1,000
//   AECONN_SEEDS=20                number of worlds, from AECONN_FIRST_SEED on

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "conn/core/spurious_wakeups.h"
#include "tests/simulation/memory.h"
#include "tests/simulation/room.h"

using namespace simulation;
using conn::Connection;
using conn::rdma::registered_bytes;

namespace {

constexpr std::uint64_t kMebi = 1 << 20;

std::uint64_t number_from(const char* variable, std::uint64_t usual) {
  const char* text = std::getenv(variable);
  return text != nullptr ? std::stoull(text) : usual;
}

// --- a busy connection beside idle ones ----------------------------------------------------------

struct Crowd : Room {
  explicit Crowd(std::size_t count)
      : Room({.weather = {.most_delay = 2us}}, "?backlog=20000&window=4096&max-window=64k") {
    std::vector<conn::ConnectionPtr> next;
    while (others.size() < count) {
      while (next.size() < 500 && others.size() + next.size() < count)
        next.push_back(dial("window=4096&receive-queue=16"));
      RUN_UNTIL(loop, std::all_of(next.begin(), next.end(), [](const auto& each) {
                  return each->state() != conn::State::kConnecting;
                }));
      for (auto& each : next) {
        REQUIRE(each->state() == conn::State::kConnected);
        others.push_back(std::move(each));
      }
      next.clear();
    }
  }
  std::vector<conn::ConnectionPtr> others;
};

std::vector<std::size_t> crowds() {
  const std::uint64_t asked = number_from("AECONN_BUSY_CONNECTIONS", 0);
  return asked != 0 ? std::vector<std::size_t>{asked} : std::vector<std::size_t>{64, 1000};
}

// --- a busy world --------------------------------------------------------------------------------

enum class Kind : char {
  kRequests = 'r',
  kUp = 'u',    ///< a stream to the server
  kBoth = 'b',  ///< streams both ways
  kBursts = 'g',
  kSlow = 's',     ///< the server reads a little every now and then
  kNever = 'n',    ///< the server never reads
  kStopped = 'x',  ///< its loop no longer runs
};

/// One direction of a connection: writes a pattern by one of the write calls, or verifies it.
class Side {
 public:
  explicit Side(std::uint64_t seed) : pattern_(seed), way_(seed % 5) {}
  const conn::Memory* memory = nullptr;  ///< registered: the pattern, for sending in place
  std::uint64_t sent = 0, received = 0, vain_writes = 0, vain_reads = 0;
  bool intact = true;

  /// Writes until the send buffer is full or `upto` bytes are sent. A handler's first write must
  /// succeed.
  void write(Connection& to, std::uint64_t upto, bool as_handler) {
    const std::uint64_t before = sent;
    while (sent < upto) {
      const std::string_view part =
          pattern_.at(sent).substr(0, std::min<std::uint64_t>(upto - sent, 9000));
      if (!write_some(to, part)) {
        if (as_handler && sent == before && errno == EAGAIN) ++vain_writes;
        return;
      }
    }
  }
  /// Reads what is available, at most `most` bytes.
  void read(Connection& from, std::size_t most, bool as_handler) {
    const std::uint64_t before = received;
    std::array<char, 8192> bytes;
    while (received - before < most) {
      const std::size_t left = std::min<std::size_t>(most - (received - before), bytes.size());
      std::size_t got = 0;
      if (way_ % 2 == 0) {
        const ssize_t n = from.read(bytes.data(), left);
        if (n < 0) break;
        if (n == 0) return;
        got = static_cast<std::size_t>(n);
        intact = intact && pattern_.matches(received, {bytes.data(), got});
      } else {
        const conn::View view = from.peek();
        if (view.size == 0) break;
        const iovec& piece = view.pieces[0];
        got = std::min(left, piece.iov_len);
        intact = intact && pattern_.matches(received, {static_cast<char*>(piece.iov_base), got});
        from.consume(got);
      }
      received += got;
    }
    if (as_handler && received == before && errno == EAGAIN) ++vain_reads;
  }

 private:
  bool write_some(Connection& to, std::string_view part) {
    switch (way_) {
      case 0: {
        const ssize_t n = to.write(part.data(), part.size());
        if (n > 0) sent += static_cast<std::size_t>(n);
        return n > 0;
      }
      case 1: {
        const std::span<std::byte> room = to.reserve(std::min<std::size_t>(part.size(), 3000));
        if (room.empty()) return false;
        const std::size_t size = std::min(room.size(), part.size());
        std::copy_n(reinterpret_cast<const std::byte*>(part.data()), size, room.begin());
        to.commit(size);
        sent += size;
        return true;
      }
      case 2: {
        const ssize_t n = to.send({std::as_bytes(std::span(part))});
        if (n > 0) sent += static_cast<std::size_t>(n);
        return n > 0;
      }
      case 3: {
        const ssize_t n = to.send({std::as_bytes(std::span(part)), nullptr, nullptr, memory});
        if (n > 0) sent += static_cast<std::size_t>(n);
        return n > 0;
      }
      default: {
        std::array<iovec, 2> two{
            {{const_cast<char*>(part.data()), part.size() / 2},
             {const_cast<char*>(part.data()) + part.size() / 2, part.size() - part.size() / 2}}};
        const ssize_t n = to.writev(two.data(), 2);
        if (n > 0) sent += static_cast<std::size_t>(n);
        return n > 0;
      }
    }
  }
  testing::Pattern pattern_;
  std::uint64_t way_;
};

/// The two ends of a connection and what they do. `seed` selects the patterns of both directions.
struct Worker {
  Worker(std::uint64_t its_seed, Kind its_kind)
      : kind(its_kind), seed(its_seed), up(seed), up_read(seed), down(seed), down_read(seed) {}
  Kind kind;
  std::uint64_t seed;
  conn::ConnectionPtr client, server;
  Side up, up_read, down, down_read;
  std::uint64_t due = 0;  // bytes still to be sent up
  std::size_t size = 1;   // of a request
  std::uint64_t progress() const {
    return kind == Kind::kNever || kind == Kind::kStopped ? 0
                                                          : up_read.received + down_read.received;
  }
  std::uint64_t vain() const {
    return up.vain_writes + down.vain_writes + up_read.vain_reads + down_read.vain_reads;
  }
};

struct BusyWorld : Room {
  static std::string options(std::size_t count) {
    // The memory limit that all connections together must fit into.
    return fmt::format(
        "window=4096&max-window=16k&send-buffer=16k&max-send-buffer=32k&"
        "keepalive=200ms&memory-limit={}",
        bound(count));
  }
  static std::uint64_t bound(std::size_t count) { return (32 + count / 2) * kMebi; }

  /// Bandwidth. A third of the connections have 16 to 32 KiB under way; the link takes 5 ms for all
  /// of that, however many connections there are.
  static double line(std::size_t count) { return 2e6 * static_cast<double>(count); }

  BusyWorld(std::uint64_t seed, std::size_t count)
      : Room({.seed = seed,
              .weather = {.least_delay = 100us,
                          .most_delay = 400us,
                          .bytes_per_second = line(count)}},
             "?backlog=20000&" + options(count)) {
    std::mt19937_64 random(seed);
    constexpr std::string_view kKinds = "rrrrrrrrubbggsn";
    listener = type.listen(
        loop, conn::Endpoint::parse("rdma://10.77.0.1:0?backlog=20000&" + options(count)),
        [this](conn::ConnectionPtr next) { accept(std::move(next)); });
    address = listener->endpoints().front();
    address.options = address.options.merged_with(conn::Options::parse("source=10.77.0.2"));
    const std::string_view bytes = testing::Pattern(0).at(0);
    memory = type.register_memory(
        loop, std::as_writable_bytes(std::span(const_cast<char*>(bytes.data()), bytes.size())));
    std::size_t up = 0;
    for (std::size_t i = 0; i < count; ++i) {
      const Kind kind =
          i == count / 2 ? Kind::kStopped : static_cast<Kind>(kKinds[random() % kKinds.size()]);
      workers.push_back(std::make_unique<Worker>(seed * 100'000 + i, kind));
      Worker& worker = *workers.back();
      worker.size = 1 + random() % 300;
      worker.up.memory = worker.down.memory = memory.get();
      // The stopped one is on a loop of its own, which runs until its first byte has been received.
      ae::EventLoop& its = kind == Kind::kStopped ? *stopped_loop : loop;
      worker.client = type.create(its);
      conn::Endpoint to = address;
      to.options = to.options.merged_with(conn::Options::parse(options(count)));
      worker.client->connect(to, [&](Connection&) { ++up; });
      if (workers.size() % 200 == 0 || i + 1 == count)
        RUN_UNTIL(loop, ((void)stopped_loop->process_events(ae::kFullIteration | ae::kDontWait),
                         up == workers.size()));
    }
    for (auto& each : workers) {
      REQUIRE(each->client->state() == conn::State::kConnected);
      by_name[each->client->local_address()] = each.get();
      testing::send(*each->client->loop(), *each->client,
                    std::string(1, static_cast<char>(each->kind)));
    }
    RUN_UNTIL(loop, ((void)stopped_loop->process_events(ae::kFullIteration | ae::kDontWait),
                     begun == workers.size()));
    for (auto& each : workers) begin_client(*each);
  }
  ~BusyWorld() {
    workers.clear();
    waiting.clear();
    listener.reset();
    stopped_loop.reset();
    run_for(1s);  // lets the in-place sends be released
    memory.reset();
  }

  void accept(conn::ConnectionPtr next) {
    Connection* key = next.get();
    waiting[key] = std::move(next);
    key->set_read_handler([this](Connection& here) {
      char kind = 0;
      if (here.read(&kind, 1) != 1) return;
      const auto found = by_name.find(here.peer_address());
      REQUIRE(found != by_name.end());
      Worker& worker = *found->second;
      REQUIRE(static_cast<Kind>(kind) == worker.kind);
      worker.server = std::move(waiting[&here]);
      waiting.erase(&here);
      ++begun;
      begin_server(worker);
    });
  }
  void end_of(Worker& worker, Connection& here) {
    if (here.state() == conn::State::kConnected) return;
    if (worker.kind == Kind::kStopped) {
      ++stopped_ended;
      here.set_read_handler(nullptr);
      return;
    }
    FAIL("ended: " << here.last_error() << ", kind " << static_cast<char>(worker.kind));
  }
  void begin_server(Worker& worker) {
    Connection& server = *worker.server;
    server.set_read_handler(nullptr);
    switch (worker.kind) {
      case Kind::kRequests:
        server.set_read_handler([this, &worker](Connection& here) {
          worker.up_read.read(here, kMebi, true);
          worker.down.write(here, worker.up_read.received, false);
          REQUIRE(worker.down.sent == worker.up_read.received);
          end_of(worker, here);
        });
        break;
      case Kind::kBoth:
        server.set_write_handler(
            [&worker](Connection& here) { worker.down.write(here, ~0ull, true); });
        [[fallthrough]];
      case Kind::kUp:
      case Kind::kBursts:
        server.set_read_handler([this, &worker](Connection& here) {
          worker.up_read.read(here, kMebi, true);
          end_of(worker, here);
        });
        break;
      case Kind::kSlow:
        slow.push_back(&worker);
        break;
      case Kind::kStopped:
        server.set_write_handler(
            [&worker](Connection& here) { worker.down.write(here, ~0ull, true); });
        server.set_close_handler([this, &worker](Connection& here) { end_of(worker, here); });
        break;
      case Kind::kNever:
        break;
    }
  }
  void begin_client(Worker& worker) {
    Connection& client = *worker.client;
    if (worker.kind == Kind::kStopped) return;
    if (worker.kind == Kind::kRequests) {
      client.set_read_handler([this, &worker](Connection& here) {
        worker.down_read.read(here, kMebi, true);
        if (worker.down_read.received == worker.up.sent) {
          ++round_trips;
          worker.up.write(here, worker.up.sent + worker.size, false);
        }
        end_of(worker, here);
      });
      worker.up.write(client, worker.size, false);
      return;
    }
    client.set_read_handler([this, &worker](Connection& here) {
      worker.down_read.read(here, kMebi, true);
      end_of(worker, here);
    });
    if (worker.kind == Kind::kBursts)
      bursts.push_back(&worker);
    else
      client.set_write_handler([&worker](Connection& here) { worker.up.write(here, ~0ull, true); });
  }
  /// Runs for `span`: slow readers read, bursts begin.
  void run(Nanoseconds span) {
    const Nanoseconds until = world.now() + span;
    std::mt19937_64 random(world.config.seed);
    while (world.now() < until) {
      for (Worker* each : slow) each->up_read.read(*each->server, 1500, false);
      for (Worker* each : bursts) {
        if (random() % 50 != 0 || each->up.sent < each->due) continue;
        each->due = each->up.sent + 20'000 + random() % 100'000;
        each->client->set_write_handler([each](Connection& here) {
          each->up.write(here, each->due, true);
          if (each->up.sent == each->due) here.set_write_handler(nullptr);
        });
      }
      run_for(2ms);
      most_bytes = std::max(most_bytes, registered_bytes());
    }
  }

  std::unique_ptr<ae::EventLoop> stopped_loop = testing::make_loop();
  std::unique_ptr<conn::Memory> memory;
  std::vector<std::unique_ptr<Worker>> workers;
  std::vector<Worker*> slow, bursts;
  std::map<Connection*, conn::ConnectionPtr> waiting;
  std::map<std::string, Worker*> by_name;
  std::size_t begun = 0, stopped_ended = 0;
  std::uint64_t round_trips = 0, most_bytes = 0;
};

}  // namespace

TEST_CASE("simulation: one busy connection beside many is not ended, whatever it does",
          "[simulation][busy]") {
  const std::size_t count = GENERATE(from_range(crowds()));
  CAPTURE(count);
  Crowd crowd(count);
  const auto client = crowd.connected();
  SECTION("requests and answers") {
    std::uint64_t answers = 0;
    client->set_read_handler([&](Connection& here) {
      std::array<char, 64> bytes;
      while (here.read(bytes.data(), bytes.size()) > 0) ++answers;
      (void)here.write("request", 7);
    });
    REQUIRE(client->write("request", 7) == 7);
    RUN_UNTIL(crowd.loop, answers >= 20'000 || client->state() != conn::State::kConnected);
    CHECK(answers >= 20'000);
  }
  SECTION("a stream and its echo") {
    std::uint64_t written = 0, read = 0;
    client->set_read_handler([&](Connection& here) {
      std::array<char, 8192> bytes;
      for (ssize_t n = 0; (n = here.read(bytes.data(), bytes.size())) > 0;)
        read += static_cast<std::uint64_t>(n);
    });
    client->set_write_handler([&](Connection& here) {
      static const std::string bytes(2000, 's');
      const ssize_t n = here.write(bytes.data(), written - read < 60'000 ? bytes.size() : 1);
      if (n > 0) written += static_cast<std::uint64_t>(n);
    });
    RUN_UNTIL(crowd.loop, written >= 8 * kMebi || client->state() != conn::State::kConnected);
    client->set_write_handler(nullptr);
  }
  INFO(client->last_error());
  CHECK(client->state() == conn::State::kConnected);
  for (const std::string& each : crowd.log.endings) CHECK(each == "");
  CHECK(std::all_of(crowd.others.begin(), crowd.others.end(),
                    [](const auto& each) { return each->state() == conn::State::kConnected; }));
}

TEST_CASE("simulation: a busy world", "[simulation][busy]") {
  const std::size_t count = GENERATE(std::size_t{100}, std::size_t{1000});
  const std::uint64_t first = number_from("AECONN_FIRST_SEED", 1);
  const std::uint64_t seeds = number_from("AECONN_SEEDS", 1);
  const Nanoseconds span = std::getenv("AECONN_BUSY_SECONDS") != nullptr
                               ? Nanoseconds(number_from("AECONN_BUSY_SECONDS", 1) * 1'000'000'000)
                           : count > 100 ? Nanoseconds(80ms)
                                         : Nanoseconds(500ms);
  for (std::uint64_t seed = first; seed < first + seeds; ++seed) {
    CAPTURE(count, seed);
    conn::SpuriousWakeups::longest_row = 0;
    BusyWorld world(seed, count);
    std::map<Kind, std::uint64_t> moved;
    std::uint64_t vain = 0, starved = 0;
    constexpr int kParts = 4;  // every connection must make progress in each part
    for (int part = 0; part < kParts; ++part) {
      std::vector<std::uint64_t> before;
      for (const auto& each : world.workers) before.push_back(each->progress());
      world.run(span / kParts);
      for (std::size_t i = 0; i < world.workers.size(); ++i) {
        const Worker& worker = *world.workers[i];
        if (worker.kind == Kind::kNever || worker.kind == Kind::kStopped ||
            worker.kind == Kind::kBursts)
          continue;
        starved += worker.progress() == before[i] ? 1 : 0;
      }
    }
    for (const auto& each : world.workers) {
      vain += each->vain();
      moved[each->kind] += each->progress();
      CHECK(each->up_read.intact);
      CHECK(each->down_read.intact);
      CHECK(each->up.sent >= each->up_read.received);
    }
    WARN(fmt::format(
        "{}, {} connections, seed {}, {} ms: {} round trips, MiB up {} both {} bursts {} slow {}; "
        "{} starved, {} handlers in vain, longest row {}, {} MiB registered of {}; the stopped one "
        "{}",
        chosen_profile().name, count, seed, span / 1ms, world.round_trips, moved[Kind::kUp] / kMebi,
        moved[Kind::kBoth] / kMebi, moved[Kind::kBursts] / kMebi, moved[Kind::kSlow] / kMebi,
        starved, vain, conn::SpuriousWakeups::longest_row.load(), world.most_bytes / kMebi,
        BusyWorld::bound(count) / kMebi, world.stopped_ended != 0 ? "was ended" : "stands"));
    CHECK(starved == 0);
    CHECK(vain == 0);
    CHECK(conn::SpuriousWakeups::longest_row <= 1);
    CHECK(world.most_bytes <= BusyWorld::bound(count));
    CHECK(world.round_trips > 0);
  }
}

TEST_CASE("simulation: who waits for memory is called when there is some, and not in vain",
          "[simulation][busy][memory]") {
  // On iWARP the receives of a connection take so much that 3 MiB hold three connections only.
  const std::string options = fmt::format(
      "window=4096&max-window=4096&keepalive=0ms&memory-limit={}m", chosen_profile().iwarp ? 6 : 3);
  constexpr std::size_t kWriters = 40;
  constexpr std::uint64_t kEach = 150'000;
  Room room({.weather = {.most_delay = 50us}}, "?" + options);
  std::vector<std::unique_ptr<Worker>> workers;
  for (std::size_t i = 0; i < kWriters; ++i) {
    conn::ConnectionPtr client = room.dial(options);
    RUN_UNTIL(room.loop, client->state() != conn::State::kConnecting);
    if (client->state() == conn::State::kError) break;  // no memory for more connections
    room.echoes(*client);
    workers.push_back(std::make_unique<Worker>(i, Kind::kUp));
    workers.back()->client = std::move(client);
    workers.back()->server = std::move(room.log.clients.back());
    room.log.clients.pop_back();
    workers.back()->server->set_read_handler(nullptr);
  }
  for (auto& each : workers)
    each->client->set_write_handler([&worker = *each](Connection& here) {
      worker.up.write(here, kEach, true);
      if (worker.up.sent == kEach) here.set_write_handler(nullptr);
    });
  room.run_for(3s);  // nothing is read; waiting connections retry once per second
  std::uint64_t waiting = 0;
  for (auto& each : workers) waiting += each->up.sent < kEach ? 1 : 0;
  CHECK(workers.size() >= 5);
  CHECK(waiting != 0);
  for (auto& each : workers)
    each->server->set_read_handler(
        [&worker = *each](Connection& here) { worker.up_read.read(here, 5000, true); });
  RUN_UNTIL(room.loop, std::all_of(workers.begin(), workers.end(), [](const auto& each) {
              return each->up_read.received == kEach;
            }));
  for (auto& each : workers) {
    // The first writer that finds no memory learns it by its own call.
    CHECK(each->up.vain_writes <= 1);
    CHECK(each->up_read.vain_reads == 0);
    CHECK(each->up_read.intact);
  }
  CHECK(conn::SpuriousWakeups::longest_row <= 1);
}
