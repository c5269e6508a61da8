// SPDX-License-Identifier: BSD-3-Clause
// Port listeners and loop acceptors, as a group of listeners uses them: they move connection
// requests of rdma_cm from one loop to another. Both loops run on this thread.

#include <array>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "conn/core/pending_connection.h"
#include "tests/simulation/room.h"

using namespace simulation;
using testing::Contains;

namespace {

struct Gates : Room {
  Gates() {
    const auto where = conn::Endpoint::parse("rdma://10.77.0.1:0");
    gate = type.open_port(loop, where, [this](conn::PendingConnectionPtr next) {
      arrivals.push_back(std::move(next));
    });
    receiver = type.open_acceptor(
        other, where, [this](conn::ConnectionPtr next) { served.push_back(std::move(next)); });
  }
  ~Gates() {
    served.clear();
    arrivals.clear();
    receiver.reset();
    gate.reset();
    turns(10);
  }
  void turns(int count) {
    for (int i = 0; i < count; ++i) {
      for (ae::EventLoop* each : std::array<ae::EventLoop*, 2>{&loop, &other})
        (void)each->process_events(ae::kAllEvents | ae::kDontWait);
      world.advance(world.now() + 100us);
    }
  }
  conn::ConnectionPtr dial_gate() {
    conn::ConnectionPtr client = type.create(loop);
    conn::Endpoint to = gate->endpoints().front();
    to.options.set("source", "10.77.0.2");
    client->connect(to, {});
    turns(200);
    return client;
  }
  void hand_over() {
    REQUIRE(arrivals.size() == 1);
    REQUIRE(receiver->handoff()->pass(*arrivals.front()));
    receiver->arrive(std::move(arrivals.front()));
    arrivals.clear();
    turns(200);
  }

  testing::AnyLoop other;
  conn::PortListenerPtr gate;
  conn::LoopAcceptorPtr receiver;
  std::vector<conn::PendingConnectionPtr> arrivals;
  std::vector<conn::ConnectionPtr> served;
};

}  // namespace

TEST_CASE("simulation: what a receiver keeps can be had back whole", "[simulation][gates]") {
  Gates room;
  const auto client = room.dial_gate();
  room.receiver->pause();
  room.hand_over();
  CHECK(room.served.empty());
  conn::PendingConnectionPtr back = room.receiver->give_back();
  REQUIRE(back != nullptr);
  CHECK_THAT(back->peer(), Contains("10.77.0.2"));
  CHECK(room.receiver->give_back() == nullptr);
  room.receiver->resume();
  room.arrivals.push_back(std::move(back));
  room.hand_over();
  CHECK(room.served.size() == 1);
  CHECK(client->state() == conn::State::kConnected);
}

TEST_CASE("simulation: what waits at a gate goes along to another loop", "[simulation][gates]") {
  Gates room;
  room.gate->pause();
  const auto client = room.dial_gate();
  REQUIRE(room.arrivals.empty());
  REQUIRE(room.gate->leave(room.receiver->handoff().get()));
  room.gate->arrive(room.other);
  CHECK(room.arrivals.empty());
  room.gate->resume();
  room.turns(10);
  CHECK(client->state() == conn::State::kConnecting);
  room.hand_over();
  CHECK(room.served.size() == 1);
  CHECK(client->state() == conn::State::kConnected);
}

TEST_CASE("simulation: a receiver tells of an arrival that the gate refused",
          "[simulation][gates]") {
  Gates room;
  std::string said;
  room.receiver->on_refused([&](const conn::Failure& why) { said = why.text; });
  room.receiver->refused({std::make_error_code(std::errc::no_buffer_space), "full house"});
  CHECK(said.empty());
  room.turns(2);
  CHECK(said == "full house");
}

TEST_CASE("simulation: a gate whose device went is near no processor, and near none is no error",
          "[simulation][gates]") {
  Gates room;
  CHECK(room.gate->near_processors().empty());
  room.world.remove_device(*room.near);
  room.turns(10);
  CHECK(room.gate->near_processors().empty());
}

TEST_CASE("simulation: who was ready while the listener paused is handed over when it goes on",
          "[simulation][gates]") {
  Config config;
  config.weather.least_cm_delay = config.weather.most_cm_delay = 10ms;
  Room room(config);
  const auto client = room.dial();
  RUN_UNTIL(room.loop, room.near->costs.slow["rdma_accept"] == 1);
  room.listener->pause();
  room.run_for(200ms);
  CHECK(client->state() == conn::State::kConnected);
  CHECK(room.log.clients.empty());
  room.listener->resume();
  room.run_for(1ms);
  REQUIRE(room.log.clients.size() == 1);
  room.echoes(*client);
}
