// SPDX-License-Identifier: BSD-3-Clause
// A child of fork() destroys the objects that it inherited, in any order: no call may reach a
// device, rdma_cm or a descriptor of the parent.

#include <algorithm>
#include <array>
#include <cerrno>
#include <string>
#include <vector>

#include "conn/redial.h"
#include "tests/simulation/child.h"
#include "tests/simulation/in_place.h"
#include "tests/support/raw_peer.h"

using namespace simulation;
using conn::Connection;
using conn::ConnectionPtr;

namespace {

// Connections in each state: idle, with bytes under way and waiting, with memory in use by sends,
// with peeked bytes, with reserved bytes, closing, connecting, and waiting at a paused listener.
struct Crowd : Place {
  explicit Crowd(const Profile& profile)
      : Place("?in-place=yes&keepalive=100ms&prepared=4", profile), store(*this, 1 << 20) {
    join();
    rests = connected();
    sends = connected();
    log.clients.back()->set_read_handler(nullptr);
    const std::string much(300000, 'm');
    (void)sends->write(much.data(), much.size());
    (void)sends->send(store.part(0, 100000));
    closes = connected();
    log.clients.back()->set_read_handler(nullptr);
    (void)closes->write(much.data(), much.size());
    (void)server->write("look at this", 12);
    client->set_read_handler(nullptr);
    RUN_UNTIL(loop, client->peek().size == 12);
    (void)client->reserve(100);
    closes.reset();
    listener->pause();
    waits = dial();
    run_for(5ms);
    connects = dial();
    redial = std::make_unique<conn::Redial>(registry, loop, address, conn::Redial::Handlers{});
    loop.post([this] { (void)rests->write("posted", 6); });
  }
  std::int64_t calls() const {
    std::int64_t all = static_cast<std::int64_t>(world.calls());
    for (const Device* device : {near, far}) {
      const Costs costs = world.costs(*device);
      for (const auto& [name, count] : costs.slow) all += count;
      all += costs.doorbells + costs.polls + costs.notifications;
    }
    return all;
  }
  void drop_users() {
    redial.reset();
    rests.reset();
    sends.reset();
    waits.reset();
    connects.reset();
    client.reset();
    log.clients.clear();
  }
  Store store;
  ConnectionPtr rests, sends, closes, waits, connects;
  std::unique_ptr<conn::Redial> redial;
};

// Calls everything that a program may call on a connection and its loop, for each connection.
void try_everything(Crowd& crowd) {
  for (Connection* here :
       {crowd.rests.get(), crowd.sends.get(), crowd.client.get(), crowd.server}) {
    char byte = 0;
    (void)here->write("x", 1);
    (void)here->send(crowd.store.part(200000, 100000));
    (void)here->send(crowd.store.part(300000, 1));
    (void)here->reserve(100000);
    here->commit(0);
    here->consume(12);  // bytes peeked at before the fork
    here->consume(here->peek().size);
    (void)here->read(&byte, 1);
    (void)here->info();
    (void)here->path();
    here->set_read_handler([](Connection&) {});
    here->set_write_handler([](Connection&) {});
    (void)here->sync_write("x", 1, std::chrono::milliseconds(1));
  }
  (void)crowd.type.statistics(crowd.loop);
  crowd.listener->resume();
  for (int i = 0; i < 20; ++i) crowd.loop.process_events(ae::kFullIteration | ae::kDontWait);
}

std::string in_child(Crowd& crowd, const std::string& what) {
  const std::int64_t before = crowd.calls();
  const Costs near = crowd.world.costs(*crowd.near), far = crowd.world.costs(*crowd.far);
  if (what == "the loop") {
    crowd.loop_holder.reset();
  } else if (what == "everything, the loop last") {
    crowd.drop_users();
    crowd.listener.reset();
    crowd.store.memory.reset();
    crowd.loop_holder.reset();
  } else if (what == "everything, the loop first") {
    crowd.redial.reset();  // must not outlive the loop
    crowd.loop_holder.reset();
    crowd.listener.reset();
    crowd.drop_users();
    crowd.store.memory.reset();
  } else if (what == "tries everything") {
    try_everything(crowd);
    crowd.drop_users();
    crowd.loop_holder.reset();
  } else {
    // The child goes on with the loop; the RDMA connections do nothing.
    for (int i = 0; i < 20; ++i) crowd.loop.process_events(ae::kFullIteration | ae::kDontWait);
    crowd.client->flush();
    char byte = 0;
    // Calls that block end at once, instead of trying again until their time is over.
    errno = 0;
    if (crowd.rests->sync_read(&byte, 1, std::chrono::milliseconds(1)) != -1 || errno != ECANCELED)
      return "a read that waits is not refused";
    errno = 0;
    if (crowd.rests->sync_write("x", 1, std::chrono::milliseconds(1)) != -1 || errno != ECANCELED)
      return "a write that waits is not refused";
    (void)crowd.rests->shutdown_both();
    if (crowd.rests->state() == conn::State::kConnected) return "shutdown_both() had no effect";
    try {
      (void)crowd.dial();
      return "a new connection was begun";
    } catch (const std::exception& error) {
      if (std::string(error.what()).find("fork") == std::string::npos) return error.what();
    }
    crowd.listener.reset();
    crowd.run_for(5s);
    crowd.drop_users();
    crowd.run_for(5s);
    crowd.loop_holder.reset();
  }
  if (crowd.calls() != before)
    return std::to_string(crowd.calls() - before) + " calls reached the parent's devices: " +
           (crowd.world.costs(*crowd.near) - near).slow_text() +
           (crowd.world.costs(*crowd.near) - near).text() + "; " +
           (crowd.world.costs(*crowd.far) - far).text();
  if (!crowd.world.violations().empty()) return crowd.world.violations().front();
  return {};
}

}  // namespace

TEST_CASE("simulation: a child that destroys what it inherited calls nothing of its parent's",
          "[simulation][fork]") {
  for (const Profile* profile : serving_profiles()) {
    DYNAMIC_SECTION(profile->name) {
      Crowd crowd(*profile);
      for (const char* what : {"the loop", "everything, the loop last",
                               "everything, the loop first", "goes on", "tries everything"}) {
        CAPTURE(what);
        const ChildRun<int> run = run_in_child<int>([&](int&) { return in_child(crowd, what); });
        CHECK(run.complaint == "");
      }
      crowd.listener->resume();
      crowd.echoes(*crowd.rests);
      crowd.drop_users();
      crowd.store.memory.reset();
      crowd.run_for(10s);
    }
  }
}
