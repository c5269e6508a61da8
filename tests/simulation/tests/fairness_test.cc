// SPDX-License-Identifier: BSD-3-Clause
// Events of many connections at once must not delay the others: no iteration of the loop may take
// longer than a few system calls of them, however many there are. Here a call takes 100 us, as on a
// slow device; unbounded, a thousand connections would block the loop for a second.

#include <algorithm>

#include "tests/simulation/room.h"
#include "tests/support/raw_peer.h"

using namespace simulation;

namespace {

constexpr std::size_t kMany = 500;

/// The longest delay of a timer of 1 ms since begin().
class Lateness {
 public:
  explicit Lateness(Room& room) : room_(room), due_(room.world.now() + kPeriod) {
    timer_ = room.loop.add_time_event(kPeriod, [this] {
      const Nanoseconds now = room_.world.now();
      longest_ = std::max(longest_, now - due_);
      due_ = now + kPeriod;
      return ae::Duration(kPeriod);
    });
  }
  ~Lateness() { room_.loop.remove_time_event(timer_); }
  Lateness(const Lateness&) = delete;
  Lateness& operator=(const Lateness&) = delete;
  Nanoseconds take() { return std::exchange(longest_, Nanoseconds{}); }

 private:
  static constexpr Nanoseconds kPeriod = 1ms;
  Room& room_;
  Nanoseconds due_, longest_{};
  ae::TimerId timer_;
};

std::string in_ms(Nanoseconds time) {
  return std::to_string(static_cast<double>(time.count()) / 1e6) + " ms";
}

}  // namespace

TEST_CASE("simulation: hundreds of connections that come and go at once stall nobody",
          "[simulation][fairness]") {
  Config config;
  config.weather.most_cm_delay = 100us;
  Room room(config, "?window=4096&send-buffer=8192&backlog=1000");
  std::vector<conn::ConnectionPtr> clients;
  for (std::size_t i = 0; i < kMany; ++i) clients.push_back(room.dial());
  Lateness lateness(room);
  room.run_for(1ms);
  lateness.take();
  room.world.config.system_call = 100us;

  RUN_UNTIL(room.loop, room.log.clients.size() == kMany &&
                           std::all_of(clients.begin(), clients.end(), [](const auto& each) {
                             return each->state() == conn::State::kConnected;
                           }));
  const Nanoseconds coming = lateness.take();

  const std::string way_out = GENERATE("closed by their peers", "a link that goes down",
                                       "device removed", "a network that falls silent");
  if (way_out == "closed by their peers") {
    clients.clear();
    lateness.take();  // our own work outside the loop
  } else if (way_out == "a link that goes down") {
    room.world.set_link(*room.near, false);
  } else if (way_out == "device removed") {
    room.world.remove_device(*room.near);
  } else {
    room.world.set_path(*room.near, *room.far, false);
  }
  RUN_UNTIL(room.loop, room.log.endings.size() == kMany);
  room.run_for(1s);
  // Disconnects that had to wait in the kernel are sent now.
  if (way_out == "a link that goes down") room.world.set_link(*room.near, true);
  room.run_for(1s);
  const Nanoseconds going = lateness.take();
  room.world.config.system_call = 0ns;
  WARN("longest delay, " << kMany << " connections: coming " << in_ms(coming) << ", " << way_out
                         << ' ' << in_ms(going));
  CHECK(coming < 10ms);
  CHECK(going < 10ms);
}

TEST_CASE("simulation: hundreds that wait for a paused listener stall nobody when it goes on",
          "[simulation][fairness]") {
  Room room({}, "?window=4096&send-buffer=8192&backlog=1000");
  room.listener->pause();
  std::vector<conn::ConnectionPtr> clients;
  for (std::size_t i = 0; i < kMany; ++i) clients.push_back(room.dial());
  room.run_for(1s);
  CHECK(room.log.clients.empty());
  Lateness lateness(room);
  room.world.config.system_call = 100us;
  room.listener->resume();
  RUN_UNTIL(room.loop, room.log.clients.size() == kMany);
  const Nanoseconds longest = lateness.take();
  room.world.config.system_call = 0ns;
  WARN("longest delay while a listener takes what waited for it: " << in_ms(longest));
  CHECK(longest < 10ms);
}

TEST_CASE("simulation: hundreds of connections that are never completed stall nobody",
          "[simulation][fairness]") {
  Room room({}, "?window=4096&send-buffer=8192&backlog=1000&accept-timeout=500ms");
  const auto accepting = [&] { return room.world.objects()["qp"]; };
  std::vector<conn::ConnectionPtr> clients;
  for (std::size_t i = 0; i < kMany; ++i) clients.push_back(room.dial());
  Lateness lateness(room);
  room.world.config.system_call = 100us;
  RUN_UNTIL(room.loop, accepting() >= 300);
  // From now on the server's answers are lost, and nothing arrives from the clients.
  room.world.set_path(*room.near, *room.far, false);
  lateness.take();
  RUN_UNTIL(room.loop, std::all_of(clients.begin(), clients.end(), [](const auto& each) {
              return each->state() != conn::State::kConnecting;
            }));
  RUN_UNTIL(room.loop, accepting() == 0);
  const Nanoseconds longest = lateness.take();
  room.world.config.system_call = 0ns;
  WARN("longest delay beside connections that are never completed: " << in_ms(longest));
  CHECK(longest < 10ms);
}

TEST_CASE("simulation: who breaks a rule is heard no more, however late its turn to be closed",
          "[simulation][fairness]") {
  constexpr std::size_t kPeers = 100;
  Room room({}, "?window=4096&send-buffer=8192&backlog=1000");
  testing::RawNet net(room.loop);
  testing::RawOptions options;
  options.source = "10.77.0.2";
  std::vector<std::unique_ptr<testing::RawPeer>> peers;
  for (std::size_t i = 0; i < kPeers; ++i) peers.push_back(net.connect(room.address, options));
  RUN_UNTIL(room.loop, room.log.clients.size() == kPeers &&
                           std::all_of(peers.begin(), peers.end(),
                                       [](const auto& each) { return !each->offers.empty(); }));
  const auto completions = [&] {
    for (const auto& [name, value] : room.type.statistics(room.loop))
      if (name == "sim0_completions") return value;
    return std::uint64_t{0};
  };
  const std::uint64_t before = completions();
  // Makes closing them take many iterations.
  room.world.config.system_call = 100us;
  for (const auto& each : peers) each->send(testing::raw_control(999));  // an invalid message
  struct Timer {
    Room& room;
    ae::TimerId id;
    ~Timer() { room.loop.remove_time_event(id); }
  };
  const Timer flood{room, room.loop.add_time_event(1ms, [&] {
                      for (const auto& each : peers)
                        if (!each->over() && each->can_post()) each->send(testing::raw_keepalive());
                      return ae::Duration(1ms);
                    })};
  RUN_UNTIL(room.loop,
            std::all_of(peers.begin(), peers.end(), [](const auto& each) { return each->over(); }));
  room.world.config.system_call = 0ns;
  const std::uint64_t heard = completions() - before;
  WARN(heard << " messages heard of " << kPeers << " who broke a rule and went on");
  CHECK(heard >= kPeers);
  // Where queue pairs have receives of their own, these complete as flushed, too.
  const Profile& profile = room.near->profile;
  const bool shared = profile.bound_keys() && profile.shared_receives;
  const std::size_t own_receives = profile.iwarp ? 1024 : 256;
  CHECK(heard <= 2 * kPeers + (shared ? 0 : kPeers * own_receives));
  CHECK(room.log.endings.size() == kPeers);
}
