// SPDX-License-Identifier: BSD-3-Clause
// Runs each hostile vector on a real device, in both roles, beside a neighbour that must not be
// affected.
#if AECONN_RDMA

#include <fmt/format.h>

#include <array>
#include <set>

#include "conn/rdma/device/memory.h"
#include "conn/rdma/device/verbs.h"
#include "tests/support/descriptor_table.h"
#include "tests/support/hostile_vectors.h"
#include "tests/support/neighbour.h"
#include "tests/support/rdma_kit.h"

using conn::State;
using testing::Culprit;
using testing::EchoLog;
using testing::HostileVector;
using testing::Neighbour;
using testing::Outcome;
using testing::RawNet;
using testing::RawPeer;
using testing::Scene;
using namespace std::chrono_literals;

namespace {

/// Resources of this side's connections, without the neighbour's.
struct Level {
  std::uint64_t queue_pairs, open;
  std::size_t descriptors;
  bool operator==(const Level&) const = default;
};

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

// iWARP: the kernel requires a queue pair before it connects, and a peer's device that ends the
// stream gives no more information than a close.
//
// immediates_by_flag: `irdma` may have reported an immediate by its flag alone, so a SEND with
// immediate counts as data.
struct Kind {
  bool iwarp = false, immediates_by_flag = false;
};
Kind kind_of_device() {
  Kind kind;
  int count = 0;
  ibv_context** list = rdma_get_devices(&count);
  if (count != 0) {
    ibv_device_attr attributes{};
    CHECK(ibv_query_device(list[0], &attributes) == 0);
    kind.iwarp = list[0]->device->transport_type == IBV_TRANSPORT_IWARP;
    kind.immediates_by_flag = attributes.vendor_id == 0x8086;
  }
  rdma_free_devices(list);
  return kind;
}

class Arena {
 public:
  explicit Arena(const std::string& options = {}) : options_(options) {
    testing::outlast_sleeps(scene_.loop);  // opens the timerfd of an EpollLoop
    HostileVector harmless;  // creates everything that is created only once
    harmless.outcome = Outcome::kGoesOn;
    play(harmless, true);
    play(harmless, false);
    clients_played_ = servers_played_ = 0;
    objects_ = objects();
  }
  ~Arena() { clients_.close_all(); }

  void play_all(const std::vector<HostileVector>& vectors) {
    for (HostileVector each : vectors) {
      if (kind_.immediates_by_flag && each.sends_immediate) each.outcome = Outcome::kEither;
      if (kind_.iwarp && !each.options.completes) {
        WARN("iWARP, so not played: " << each.name);
        continue;
      }
      if (each.culprit != Culprit::kServer) play(each, true);
      if (each.culprit != Culprit::kClient) play(each, false);
    }
    CHECK(objects() == objects_);
    WARN(
        fmt::format("{} hostile vectors: {} by clients, {} by servers; the longest, {:.0f} ms "
                    "beyond its clock: {}; the neighbour meanwhile: {}",
                    vectors.size(), clients_played_, servers_played_,
                    std::chrono::duration<double, std::milli>(longest_).count(), longest_name_,
                    neighbour_.take_figures()));
  }

 private:
  void play(const HostileVector& vector, bool by_client) {
    INFO(vector.name << ", by a " << (by_client ? "client" : "server"));
    ++(by_client ? clients_played_ : servers_played_);
    const Level before = settled_level();
    if (by_client) {
      const auto peer = scene_.net.connect(scene_.address, vector.options);
      strike(vector, *peer, scene_.log, before);
    } else {
      RawNet servers(scene_.loop);
      face_server(vector, servers, before);
    }
    RUN_UNTIL(scene_.loop, level() == before);
    CHECK(conn::rdma::teardown_failures() == 0);
    const std::size_t trips = neighbour_.round_trips;
    RUN_UNTIL(scene_.loop, neighbour_.round_trips >= trips + 3 || !neighbour_.trouble.empty());
    REQUIRE(neighbour_.trouble == "");
  }

  void face_server(const HostileVector& vector, RawNet& servers, const Level& before) {
    const bool enters = vector.outcome != Outcome::kNoEntry;
    const conn::Endpoint to = servers.listen(vector.options, vector.answer);
    const ae::TimePoint begin = testing::now();
    auto ours = scene_.connect(testing::with_options(
        to, std::string(testing::kHostileOptions) + (enters ? "" : "&connect-timeout=2s")));
    if (!enters) {
      RUN_UNTIL(scene_.loop, ours->state() == State::kError);
      note_time(vector, begin);
      INFO(ours->last_error());
      CHECK(contains(ours->last_error(), vector.sentence));
      for (const char c : ours->last_error()) CHECK((c >= ' ' && c <= '~'));
      return;
    }
    RUN_UNTIL(scene_.loop, !servers.accepted.empty() && ours->state() != State::kConnecting);
    clients_.handler()(std::move(ours));
    strike(vector, *servers.accepted.front(), clients_, before);
  }

  void strike(const HostileVector& vector, RawPeer& peer, EchoLog& log, const Level& before) {
    const std::size_t endings = log.endings.size();
    const std::size_t accepted = log.accepted;
    RUN_UNTIL(scene_.loop, vector.ready(peer) || peer.over());
    const ae::TimePoint begin = testing::now();
    const auto act = [&] {
      if (vector.strike && !peer.over()) vector.strike(peer);
    };
    const auto ended = [&] { return log.endings.size() > endings; };
    act();
    switch (vector.outcome) {
      case Outcome::kError: {
        RUN_UNTIL(scene_.loop, (vector.repeats ? act() : void(), ended()));
        note_time(vector, begin);
        INFO("it ended with: " << log.endings.back());
        if (kind_.iwarp && log.endings.back() == "end of stream") break;
        CHECK(contains(log.endings.back(), vector.sentence));
        CHECK(log.endings.back() != "end of stream");
        CHECK_FALSE(log.endings.back().empty());
        RUN_UNTIL(scene_.loop, peer.over());  // the peer gets a disconnect
        break;
      }
      case Outcome::kGoesOn:
        peer.stream("still here");
        RUN_UNTIL(scene_.loop, peer.received.ends_with("still here") || ended() || peer.over());
        CHECK_FALSE(ended());
        CHECK_FALSE(peer.over());
        break;
      case Outcome::kGone:
      case Outcome::kEither: {
        const std::size_t trips = neighbour_.round_trips;
        RUN_UNTIL(scene_.loop,
                  neighbour_.round_trips >= trips + 20 || ended() || !neighbour_.trouble.empty());
        break;
      }
      case Outcome::kNoEntry:
        RUN_UNTIL(scene_.loop, level() == before);
        note_time(vector, begin);
        CHECK(log.accepted == accepted);
    }
  }

  void note_time(const HostileVector& vector, ae::TimePoint begin) {
    const ae::Duration took = testing::now() - begin - vector.allowance;
    CHECK(took < testing::promptly());
    if (took <= longest_) return;
    longest_ = took;
    longest_name_ = vector.name;
  }

  Level level() {
    Level now{0, scene_.type.counters(scene_.loop).open, testing::open_descriptors()};
    for (const auto& [name, value] : scene_.type.statistics(scene_.loop))
      if (name.ends_with("_queue_pairs")) now.queue_pairs += value;
    return now;
  }

  /// Waits until only the neighbour's connections are left.
  Level settled_level() {
    RUN_UNTIL(scene_.loop, scene_.type.counters(scene_.loop).open == 2);
    return level();
  }

  /// Without memory regions: the neighbour's windows change.
  static testing::DeviceObjects objects() {
    testing::DeviceObjects all = testing::device_objects();
    all.erase("mr");
    return all;
  }

  const std::string options_;
  const Kind kind_ = kind_of_device();
  Scene scene_{options_.empty() ? testing::kHostileOptions
                                : testing::kHostileOptions + ("&" + options_)};
  EchoLog clients_;
  Neighbour neighbour_{scene_.loop, *scene_.innocent};
  testing::DeviceObjects objects_;
  std::size_t clients_played_ = 0, servers_played_ = 0;
  ae::Duration longest_{};
  std::string longest_name_ = "none";
};

using Table = std::vector<HostileVector> (*)();
constexpr std::array<Table, 6> kTables = {testing::control_vectors, testing::window_vectors,
                                          testing::data_vectors,    testing::flood_vectors,
                                          testing::receive_vectors, testing::setup_vectors};

}  // namespace

TEST_CASE("rdma hostile: the vectors are many, and each says which rule it breaks",
          "[rdma][hostile]") {
  std::set<std::string> names;
  std::size_t total = 0;
  for (const Table table : kTables)
    for (const HostileVector& each : table()) {
      INFO(each.name);
      ++total;
      names.insert(each.name);
      CHECK_FALSE(each.rule.empty());
      CHECK((each.outcome == Outcome::kError || each.outcome == Outcome::kNoEntry ||
             each.sentence.empty()));
    }
  CHECK(names.size() == total);
  CHECK(total >= 60);
}

TEST_CASE("rdma hostile: control messages that break the rules end their connection or nothing",
          "[rdma-device][hostile][long]") {
  Arena().play_all(testing::control_vectors());
}

TEST_CASE("rdma hostile: windows that break the rules end their connection or nothing",
          "[rdma-device][hostile][long]") {
  Arena().play_all(testing::window_vectors());
}

TEST_CASE("rdma hostile: claims, writes, reads and atomics outside the rules end their connection",
          "[rdma-device][hostile][long]") {
  Arena().play_all(testing::data_vectors());
}

TEST_CASE("rdma hostile: writes outside the rules end their connection also without shared keys",
          "[rdma-device][hostile][long]") {
  Arena("isolation=connection").play_all(testing::data_vectors());
}

TEST_CASE("rdma hostile: every flood ends its connection", "[rdma-device][hostile][long]") {
  Arena().play_all(testing::flood_vectors());
}

TEST_CASE("rdma hostile: peers that neither listen nor speak nor say goodbye leave nothing",
          "[rdma-device][hostile][long]") {
  Arena().play_all(testing::receive_vectors());
}

TEST_CASE("rdma hostile: set-ups that break the rules leave nothing",
          "[rdma-device][hostile][long]") {
  Arena().play_all(testing::setup_vectors());
}

#endif
