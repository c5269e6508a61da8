// SPDX-License-Identifier: BSD-3-Clause
// Runs the conformance tests unchanged over simulated devices: each test case finds two devices and
// must leave nothing on them.

#ifndef AECONN_CATCH2_V3
#define CATCH_CONFIG_EXTERNAL_INTERFACES
#endif
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <memory>

#include "tests/simulation/world.h"
#include "tests/support/catch.h"

namespace {

#ifdef AECONN_CATCH2_V3
using Listener = Catch::EventListenerBase;
#else
using Listener = Catch::TestEventListenerBase;
#endif

class WorldForConformance : public Listener {
 public:
  using Listener::Listener;

  // Before the certificates are created: they name the address.
  void testRunStarting(const Catch::TestRunInfo&) override {
    setenv("AECONN_SIMULATED", "1", 1);
    setenv("AECONN_RDMA_ADDRESS", "10.77.0.1", 1);
    setenv("AECONN_TRANSPORTS", "rdma,tls+rdma", 0);
  }

  void testCaseStarting(const Catch::TestCaseInfo& test) override {
    const auto has = [&](const char* wanted) {
      return std::any_of(test.tags.begin(), test.tags.end(), [&](const auto& tag) {
#ifdef AECONN_CATCH2_V3
        return tag.original == wanted;
#else
        return tag == wanted;
#endif
      });
    };
    if (!has("conformance") && !has("rdma-device")) return;
    simulation::Config config;
    config.weather.in_step = true;
    config.strangers = has("hostile");
    world_ = std::make_unique<simulation::World>(config);
    world_->add_device("sim0", "10.77.0.1");
    world_->add_device("sim1", "10.77.0.2");
  }

  void testCaseEnded(const Catch::TestCaseStats&) override {
    if (!world_) return;
    world_->advance(world_->now() + std::chrono::seconds(200));
    bool clean = world_->violations().empty();
    for (const std::string& each : world_->violations()) std::fprintf(stderr, "%s\n", each.c_str());
    world_->let_orphans_go();
    for (const auto& [kind, number] : world_->objects()) {
      std::fprintf(stderr, "left behind: %d %s\n", number, kind.c_str());
      clean = false;
    }
    world_.reset();
    if (!clean) std::abort();  // too late for Catch2 to count it as a failure
  }

 private:
  std::unique_ptr<simulation::World> world_;
};
CATCH_REGISTER_LISTENER(WorldForConformance)

}  // namespace
