// SPDX-License-Identifier: BSD-3-Clause
// Operations and resources that cost time on hardware, counted exactly for each kind of device:
// slow calls, doorbells, requests whose bytes the device fetches, events, registrations and their
// entries on the device. The expected numbers are in costs_table.h; after a change of the library
//
//   AECONN_PRINT_COSTS=1 setarch -R build/tests/sim-tests '[costs]'
//
// prints the current table. AECONN_COSTS_PROFILE=mlx5,hns selects kinds of devices.

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>

#include "tests/simulation/room.h"
#include "tests/simulation/tests/costs_table.h"

using namespace simulation;

namespace {

/// Connections without keepalives, so that timers add nothing to the counts.
constexpr const char* kQuiet = "?keepalive=0ms&backlog=20000&accept-timeout=1h";
constexpr const char* kQuietClient = "keepalive=0ms&connect-timeout=1h&accept-timeout=1h";

struct Measured {
  std::string profile, what;
  CostNumbers numbers{};
  std::string calls;
};

CostNumbers numbers_of(const Costs& costs) {
  return {costs.slow_calls(),
          costs.rdma_cm_calls(),
          costs.doorbells,
          costs.requests,
          costs.not_inline,
          costs.notifications,
          costs.completion_events,
          costs.registrations,
          costs.keys,
          costs.translation_entries,
          costs.pinned / 1024,
          costs.completion_queues,
          costs.provider_mappings};
}

std::string line(const std::string& profile, const std::string& what, const CostNumbers& numbers,
                 const std::string& calls) {
  std::string text = fmt::format("    {{\"{}\", \"{}\",\n     {{", profile, what);
  for (std::size_t i = 0; i < numbers.size(); ++i)
    text += fmt::format("{}{}", i == 0 ? "" : ", ", numbers[i]);
  text += "},\n";
  // Split into pieces that fit into a line.
  std::string_view left = calls;
  do {
    const std::size_t cut = left.size() <= 80 ? left.size() : left.rfind(", ", 80) + 2;
    text += fmt::format("     \"{}\"{}", left.substr(0, cut), cut == left.size() ? "},\n" : "\n");
    left.remove_prefix(cut);
  } while (!left.empty());
  return text;
}

void check(const std::vector<Measured>& all) {
  static const bool print = std::getenv("AECONN_PRINT_COSTS") != nullptr;
  for (const Measured& each : all) {
    const std::string now = line(each.profile, each.what, each.numbers, each.calls);
    if (print) {
      fmt::print("{}", now);
      continue;
    }
    const auto same = [&](const CostRow& row) {
      return row.profile == each.profile && row.what == each.what;
    };
    const auto found = std::find_if(kCostRows.begin(), kCostRows.end(), same);
    const std::string expected = found == kCostRows.end()
                                     ? "no such row"
                                     : line(std::string(found->profile), std::string(found->what),
                                            found->numbers, std::string(found->calls));
    CHECK(now == expected);
  }
}

/// Two machines with devices of one kind; counts the costs between two steps.
class Meter {
 public:
  Meter(const Profile& profile, const std::string& options)
      : profile_(profile), room_({}, kQuiet + options, profile, profile) {}

  Room& room() noexcept { return room_; }
  void begin() {
    near_ = room_.world.costs(*room_.near);
    far_ = room_.world.costs(*room_.far);
  }
  /// Adds a row for each end, with the costs since begin().
  void add(const std::string& what, std::vector<Measured>& to) {
    add_end(what + ", server", room_.world.costs(*room_.near) - near_, to);
    add_end(what + ", client", room_.world.costs(*room_.far) - far_, to);
  }
  void add_end(const std::string& what, const Costs& costs, std::vector<Measured>& to) const {
    to.push_back({profile_.name, what, numbers_of(costs), costs.slow_text()});
  }
  void add_failure(const conn::Connection& client, std::vector<Measured>& to) const {
    std::string why = client.last_error();
    why.erase(0, why.find("2: ") == std::string::npos ? 0 : why.find("2: ") + 3);
    why.erase(std::min(why.find(" (the "), why.size()));  // strips the machine's own limits
    to.push_back({profile_.name, "no connection", {}, why});
  }
  /// Null if no connection can be made.
  conn::ConnectionPtr connect() {
    const std::size_t before = room_.log.clients.size();
    conn::ConnectionPtr client = room_.dial(kQuietClient);
    RUN_UNTIL(room_.loop, client->state() != conn::State::kConnecting);
    if (client->state() != conn::State::kConnected) return failed_ = std::move(client), nullptr;
    RUN_UNTIL(room_.loop, room_.log.clients.size() == before + 1);
    settle();
    return client;
  }
  const conn::Connection& failed() const noexcept { return *failed_; }
  void settle() { room_.run_for(100ms); }

 private:
  const Profile& profile_;
  Room room_;
  Costs near_, far_;
  conn::ConnectionPtr failed_;
};

// Reads everything that is available.
conn::Connection::Handler reader(std::size_t& total) {
  return [&total](conn::Connection& here) {
    static std::array<char, 1 << 16> bytes;
    for (ssize_t n = 0; (n = here.read(bytes.data(), bytes.size())) > 0;)
      total += static_cast<std::size_t>(n);
  };
}

// One write to each reader, taken as far as possible; they do not read for one second.
void burst(Meter& meter, const std::vector<conn::ConnectionPtr>& readers) {
  Room& room = meter.room();
  const std::string bytes(200000, 'b');
  std::size_t written = 0, read = 0;
  for (const conn::ConnectionPtr& each : readers) each->set_read_handler(nullptr);
  for (const conn::ConnectionPtr& each : room.log.clients) {
    const ssize_t n = each->write(bytes.data(), bytes.size());
    REQUIRE(n > 0);
    written += static_cast<std::size_t>(n);
  }
  room.run_for(1s);
  for (const conn::ConnectionPtr& each : readers) each->set_read_handler(reader(read));
  RUN_UNTIL(room.loop, read == written);
  meter.settle();
}

std::vector<Measured> measure(const Profile& profile) {
  std::vector<Measured> rows;
  Meter meter(profile, "");
  Room& room = meter.room();
  conn::ConnectionPtr first = meter.connect();  // makes what connections share
  if (!first) return meter.add_failure(meter.failed(), rows), rows;

  meter.begin();
  conn::ConnectionPtr client = meter.connect();
  meter.add("connect", rows);

  // Until windows of 64 KiB have been filled more than once.
  for (int i = 0; i < 3000; ++i) room.echoes(*client, 64);
  meter.begin();
  for (int i = 0; i < 1000; ++i) room.echoes(*client, 64);
  meter.add("1000 requests", rows);

  // One direction, read as it arrives.
  std::size_t read = 0;
  room.log.clients.back()->set_read_handler(reader(read));
  meter.begin();
  const std::string bytes(4 << 20, 'w');
  testing::send(room.loop, *client, bytes);
  RUN_UNTIL(room.loop, read == bytes.size());
  meter.settle();
  meter.add("4 MiB, the window grows", rows);

  meter.begin();
  client.reset();
  room.log.clients.pop_back();
  RUN_UNTIL(room.loop, room.type.counters(room.loop).open == 2);
  meter.settle();
  meter.add("close", rows);

  std::vector<conn::ConnectionPtr> readers;
  readers.push_back(std::move(first));
  while (readers.size() < 8) readers.push_back(meter.connect());
  meter.begin();
  burst(meter, readers);
  meter.add("8 slow readers", rows);
  room.run_for(30s);
  meter.begin();
  burst(meter, readers);
  meter.add("the same 30 s later", rows);
  room.run_for(60s);
  meter.begin();
  return rows;
}

}  // namespace

TEST_CASE("simulation: what devices are asked for, by step, is what the table says",
          "[simulation][costs]") {
  for (const Profile* each : profiles_from("AECONN_COSTS_PROFILE")) DYNAMIC_SECTION(each->name) {
      check(measure(*each));
    }
}

TEST_CASE("simulation: what idle connections of 64 KiB take is what the table says",
          "[simulation][costs]") {
  for (const Profile* profile : profiles_from("AECONN_COSTS_PROFILE")) {
    DYNAMIC_SECTION(profile->name) {
      // Without bound keys each end makes several mappings, and a process can have 65530.
      const std::size_t count = profile->bound_keys() ? 10000 : 1000;
      std::vector<Measured> rows;
      Meter meter(*profile, "");
      Room& room = meter.room();
      const std::int64_t mappings = process_mappings();
      std::vector<conn::ConnectionPtr> clients;
      while (clients.size() < count) clients.push_back(room.dial(kQuietClient));
      RUN_UNTIL(room.loop, std::all_of(clients.begin(), clients.end(), [](const auto& each) {
                  return each->state() != conn::State::kConnecting;
                }));
      const bool all = std::all_of(clients.begin(), clients.end(), [](const auto& each) {
        return each->state() == conn::State::kConnected;
      });
      if (all) {
        RUN_UNTIL(room.loop, room.log.clients.size() == count);
        room.run_for(65s);
        const double each_end =
            static_cast<double>(process_mappings() - mappings) / static_cast<double>(2 * count);
        meter.add_end(fmt::format("{} idle, server", count), room.world.costs(*room.near), rows);
        rows.back().calls = fmt::format("{:.1f} process mappings for each end", each_end);
        // The number of keepalives sent at a time depends on the connections' addresses.
        for (const std::size_t doorbells_and_events : {2, 5, 6})
          rows.back().numbers[doorbells_and_events] = 0;
      } else {
        meter.add_failure(**std::find_if(clients.begin(), clients.end(),
                                         [](const auto& each) {
                                           return each->state() != conn::State::kConnected;
                                         }),
                          rows);
      }
      check(rows);
      clients.clear();
      room.log.clients.clear();
    }
  }
}

TEST_CASE("simulation: what devices are asked for stays within our aims", "[simulation][costs]") {
  for (const CostRow& row : kCostRows) {
    const bool bound = profile_named(row.profile).bound_keys();
    const std::int64_t slow = row.numbers[0], registrations = row.numbers[7];
    INFO(row.profile << ": " << row.what);
    CHECK(row.what != "no connection");
    if (row.what.starts_with("connect")) CHECK(slow <= 8);
    if (row.what.starts_with("close") && bound) CHECK(slow <= 6);
    if (row.what.starts_with("1000 requests") || row.what.starts_with("the same")) CHECK(slow == 0);
    // On soft-RoCE a key grants access to the whole region, so each window has a region of its own.
    const std::int64_t most = profile_named(row.profile).binds_parts ? 400 : 10300;
    if (row.what.starts_with("10000 idle")) CHECK(registrations <= most);
    if (row.what.starts_with("1000 idle")) CHECK(registrations <= 2 * 1000);
  }
}
