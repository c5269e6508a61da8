// SPDX-License-Identifier: BSD-3-Clause
// The decisions of a walk's seed before the walk begins: transport, devices, options, faults.

#include <fmt/format.h>

#include "tests/simulation/walk_internal.h"

namespace simulation {

// The network has a generator of its own, so that the two do not use each other's numbers.
static Config world_config(std::uint64_t seed, std::span<const std::uint8_t> choices) {
  return {.seed = seed * 2 + 1, .choices = choices};
}

Walk::Walk(std::uint64_t seed, std::span<const std::uint8_t> choices, const WalkPlan& plan)
    : random_(seed, choices.first(choices.size() / 2)),
      world_(world_config(seed, choices.subspan(choices.size() / 2))),
      transport_(plan.transport),
      crowd_(plan.connections),
      resumes_(plan.resume) {
  if (resumes_ && transport_.empty()) transport_ = chance(0.9) ? "rdma" : "tls+rdma";
  if (transport_.empty()) {
    // Half of the walks use bare RDMA.
    const auto& all = walk_transports();
    transport_ = chance(0.5) ? "rdma" : all[pick(0, all.size() - 1)];
  }
  const auto drawn = static_cast<LoopPlan>(pick(1, 3));
  loop_plan_ = plan.loop == LoopPlan::kSeed ? drawn : plan.loop;
  host_prepares_ = chance(0.5);
  is_rdma_ = transport_.ends_with("rdma");
  // The hello of shm is one message; the kernel has room for all of it.
  is_socket_ = !is_rdma_ && !transport_.ends_with("memory") && !transport_.ends_with("shm");
  calm_ = chance(0.3) && !resumes_;
  choose_network();
  choose_devices(plan.profiles.empty() ? serving_profiles_of_all_ages() : plan.profiles);
  choose_options();
  const std::string devices =
      is_rdma_ ? fmt::format("{}-{} ", near_->profile.name, far_->profile.name) : "";
  static constexpr std::array<const char*, 4> kLoops = {"", "libev", "epoll", "hosted"};
  report_.story =
      fmt::format("{} {} {}{}{}{}", transport_, kLoops[static_cast<std::size_t>(loop_plan_)],
                  devices, calm_ ? "calm " : "", options_, client_options_);
}

// --- choices of the seed -------------------------------------------------------------------------

void Walk::choose_network() {
  Config& config = world_.config;
  Weather& weather = config.weather;
  weather.most_delay = 1us * pick(2, chance(0.2) ? 5000 : 50);
  weather.most_cm_delay = 1us * pick(50, chance(0.2) ? 200000 : 3000);
  if (!calm_ && chance(0.4)) weather.slow_message = 0.02;
  if (!calm_ && chance(0.2)) weather.stale_requests = 0.05;
  if (is_socket_ && chance(0.7)) config.short_transfers = chance(0.5) ? 0.3 : 0.9;
}

// Two kinds with the same transport, some of them with lower limits than usual.
void Walk::choose_devices(std::vector<const Profile*> profiles) {
  Config& config = world_.config;
  const auto is_iwarp = [](const Profile* each) { return each->iwarp; };
  if (resumes_) std::erase_if(profiles, is_iwarp);
  if (profiles.empty()) {  // only iWARP was asked for, where nothing resumes
    profiles = serving_profiles_of_all_ages();
    std::erase_if(profiles, is_iwarp);
  }
  if (chance(0.1)) config.memory_windows = false;
  if (chance(0.1)) config.shared_receives = false;
  if (chance(0.1)) config.max_inline = 0;
  if (chance(0.2)) config.max_qp_wr = 64;
  if (chance(0.2)) config.max_cqe = static_cast<int>(pick(1000, 5000));
  const Profile* near = profiles[pick(0, profiles.size() - 1)];
  std::erase_if(profiles, [&](const Profile* each) { return each->iwarp != near->iwarp; });
  const Profile* far = profiles[pick(0, profiles.size() - 1)];
  near_ = &world_.add_device("sim0", "10.77.0.1", *near);
  far_ = &world_.add_device("sim1", "10.77.0.2", *far);
}

void Walk::choose_options() {
  if (!is_rdma_) return;
  const auto add = [this](const std::string& one) {
    options_ += (options_.empty() ? "?" : "&") + one;
  };
  if (crowd_ != 0)
    add(fmt::format("window=4096&send-buffer=8192&backlog={}", crowd_));
  else if (chance(0.4))
    add(fmt::format("window={}", std::uint64_t{1} << pick(12, 17)));
  if (chance(0.3)) add(fmt::format("max-window={}", std::uint64_t{1} << pick(17, 20)));
  if (chance(0.3)) add(fmt::format("max-windows={}", pick(2, 8)));
  if (crowd_ == 0 && chance(0.4))
    add(fmt::format("send-buffer={}", std::uint64_t{1} << pick(13, 19)));
  if (chance(0.3)) add(fmt::format("send-queue={}", pick(8, 64)));
  if (chance(0.3)) add(fmt::format("receive-queue={}", pick(32, 128)));
  if (chance(0.3)) add(fmt::format("shared-receive-queue={}", pick(512, 4096)));
  if (chance(0.3)) add(fmt::format("inline={}", pick(0, 200)));
  if (chance(0.3)) add("read-budget=16k");
  if (chance(0.5)) add("in-place=yes");
  if (chance(0.3)) add(chance(0.5) ? "isolation=none" : "isolation=connection");
  if (chance(0.2) && !resumes_) add(fmt::format("keepalive={}ms", pick(100, 5000)));
  if (chance(0.3)) add(fmt::format("prepared={}", pick(1, 16)));
  if (resumes_) choose_resume_options();
}

void Walk::choose_disturbances() {
  if (calm_) return;
  if (resumes_) return choose_path_faults();
  if (chance(0.5)) world_.config.failing_calls = chance(0.3) ? 0.01 : 0.001;
  for (std::uint64_t i = pick(0, 3); i != 0 && is_rdma_; --i) {
    const Nanoseconds when = 1us * pick(1, 100000);
    const Nanoseconds until = when + 1us * pick(1000, chance(0.3) ? 8000000 : 100000);
    Device& device = chance(0.5) ? *near_ : *far_;
    World* world = &world_;
    const std::uint64_t kind = pick(0, 5);
    ++report_.faults;
    static constexpr std::array<const char*, 6> kNames = {"path",    "link",  "address",
                                                          "removal", "event", "stop"};
    report_.story += fmt::format(" {}@{}ms", kNames[kind], when / 1ms);
    switch (kind) {
      case 0:
        world->after(when, [=, this] { world->set_path(*near_, *far_, false); });
        world->after(until, [=, this] { world->set_path(*near_, *far_, true); });
        break;
      case 1:
        world->after(when, [=, &device] { world->set_link(device, false); });
        world->after(until, [=, &device] { world->set_link(device, true); });
        break;
      case 2:
        world->after(when, [=, &device] { world->set_address(device, false); });
        world->after(until, [=, &device] { world->set_address(device, true); });
        break;
      case 3:
        world->after(when, [=, &device] {
          if (!device.removed) world->remove_device(device);
        });
        break;
      case 4:
        world->after(when, [=, &device, type = static_cast<int>(pick(0, 19))] {
          // Events of a queue pair or a queue name one; the others are about the device.
          if (type == IBV_EVENT_DEVICE_FATAL ||
              (type > IBV_EVENT_PATH_MIG_ERR && type != IBV_EVENT_QP_LAST_WQE_REACHED))
            world->raise(device, type);
        });
        break;
      default:  // this process is stopped for a while
        world->after(when, [=] { world->advance(world->now() + (until - when)); });
    }
  }
}

}  // namespace simulation
