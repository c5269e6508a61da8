// SPDX-License-Identifier: BSD-3-Clause
#include "tests/simulation/world.h"

#include <algorithm>
#include <cstring>
#include <stdexcept>

#include "conn/rdma/device/orphans.h"
#include "tests/simulation/memory.h"
#include "tests/simulation/objects.h"

namespace simulation {

World* World::current_ = nullptr;

// Duration of each call, so that events can happen between two calls.
static constexpr Nanoseconds kCallTakes = 200ns;

World::World(Config its_config) : config(its_config), random(its_config.seed, its_config.choices) {
  if (current_ != nullptr) throw std::logic_error("one simulated world at a time");
  current_ = this;
}

World::~World() {
  // Leftover objects still point at devices. Tests must make sure that there are none, except for
  // those that belong to the process.
  let_orphans_go();
  happenings_ = {};
  devices.clear();
  current_ = nullptr;
}

// --- the machines --------------------------------------------------------------------------------

Device& World::add_device(const std::string& name, const std::string& address,
                          const Profile& profile) {
  constexpr std::size_t kMostDevices = 63;  // limited by the ranges of queue pair numbers
  if (devices.size() == kMostDevices) throw std::logic_error("too many simulated devices");
  auto device = std::make_unique<Device>();
  Profile& own = device->profile;
  own = profile;
  own.max_cqe = config.max_cqe.value_or(own.max_cqe);
  own.max_qp_wr = config.max_qp_wr.value_or(own.max_qp_wr);
  own.max_srq_wr = config.max_srq_wr.value_or(own.max_srq_wr);
  own.max_inline = config.max_inline.value_or(own.max_inline);
  own.shared_receives = config.shared_receives.value_or(own.shared_receives);
  if (config.memory_windows)
    own.claims_windows = own.allocates_windows = own.binds_windows = *config.memory_windows;
  device->first_number = static_cast<std::uint32_t>(devices.size() + 1) << 18;
  device->numbers = static_cast<std::uint32_t>(own.qp_numbers);
  device->base.node_type = own.iwarp ? IBV_NODE_RNIC : IBV_NODE_CA;
  device->base.transport_type = own.iwarp ? IBV_TRANSPORT_IWARP : IBV_TRANSPORT_IB;
  std::strncpy(device->base.name, name.c_str(), sizeof device->base.name - 1);
  device->address = address;
  device->cm_handle = std::make_unique<Handle>(*device);
  devices.push_back(std::move(device));
  return *devices.back();
}

Device* World::find_device(const std::string& name) noexcept {
  for (const auto& each : devices)
    if (!each->removed && each->base.name == name) return each.get();
  return nullptr;
}

void World::remove_device(Device& device) {
  device.removed = true;
  device_removed(*this, device);
}

void World::raise(Device& device, int type) {
  ibv_async_event event{};
  event.event_type = static_cast<ibv_event_type>(type);
  event.element.port_num = 1;
  for (Handle* handle : device.handles) handle->raise(event);
}

void World::set_link(Device& device, bool up) {
  if (device.link_up == up || device.removed) return;
  device.link_up = up;
  if (device.profile.port_events) raise(device, up ? IBV_EVENT_PORT_ACTIVE : IBV_EVENT_PORT_ERR);
}

void World::set_other_port(Device& device, int port, bool up) {
  if (up)
    device.other_ports_down.erase(port);
  else
    device.other_ports_down.insert(port);
  ibv_async_event event{};
  event.event_type = up ? IBV_EVENT_PORT_ACTIVE : IBV_EVENT_PORT_ERR;
  event.element.port_num = port;
  for (Handle* handle : device.handles) handle->raise(event);
}

void World::set_address(Device& device, bool present) {
  device.address_present = present;
  if (device.profile.address_events) raise(device, IBV_EVENT_GID_CHANGE);
}

void World::move_address(Device& device) { address_moved(*this, device); }

void World::set_path(const Device& one, const Device& other, bool open) {
  const std::pair<const Device*, const Device*> both = std::minmax(&one, &other);
  std::erase(closed_paths_, both);
  if (!open) closed_paths_.push_back(both);
}

bool World::path_open(const Device& from, const Device& to) const {
  if (!from.alive() || !to.alive()) return false;
  const std::pair<const Device*, const Device*> both = std::minmax(&from, &to);
  return std::find(closed_paths_.begin(), closed_paths_.end(), both) == closed_paths_.end();
}

// --- time ----------------------------------------------------------------------------------------

Nanoseconds World::data_delay() {
  if (config.weather.slow_message > 0 && chance() < config.weather.slow_message) return 67ms;
  return between(config.weather.least_delay, config.weather.most_delay);
}

void World::after(Nanoseconds delay, std::function<void()> what) {
  happenings_.push({now_ + std::max(delay, Nanoseconds(0)), ++order_, std::move(what)});
}

void World::run_due() {
  const Below below;
  if (running_) return;
  if (pace != nullptr) pace->passing();
  running_ = true;
  while (!happenings_.empty() && happenings_.top().when <= std::min(now_, horizon_)) {
    const Nanoseconds when = happenings_.top().when;
    const std::function<void()> what = std::move(const_cast<Happening&>(happenings_.top()).what);
    happenings_.pop();
    const Nanoseconds now = now_;
    if (horizon_ != kNever) now_ = when;  // an event's time does not depend on when it is processed
    what();
    if (horizon_ != kNever) now_ = now;
  }
  running_ = false;
}

bool World::advance(Nanoseconds limit) {
  const Below below;
  if (happenings_.empty() || happenings_.top().when > limit) {
    now_ = std::max(now_, limit);
    return false;
  }
  now_ = std::max(now_, happenings_.top().when);
  // A loop blocks in the kernel in the middle of its work: the other processors do not move
  // meanwhile, so the next event happens although they are still before it.
  if (horizon_ != kNever) horizon_ = std::max(horizon_, happenings_.top().when);
  run_due();
  return true;
}

// --- faults --------------------------------------------------------------------------------------

int World::failing(const char* call, int usual_error) {
  const Below below;
  const std::string_view name = call;
  // Calls of the fast path, or work of other threads.
  const bool no_system_call = name.starts_with("ibv_post") || name == "ibv_poll_cq" ||
                              name == "ibv_req_notify_cq" || name.starts_with("IBV_WR_") ||
                              name.ends_with("resolution");
  now_ += no_system_call ? kCallTakes : kCallTakes + config.system_call;
  run_due();
  ++calls_;
  const bool chosen = calls_ >= fail_at_ && calls_ < fail_until_;
  if (!chosen && (config.failing_calls <= 0 || chance() >= config.failing_calls)) return 0;
  ++failed_calls_;
  last_failed_ = call;
  return usual_error;
}

Costs World::costs(const Device& device) const { return device.costs; }

void World::let_orphans_go() {
  if (!conn::rdma::any_orphans()) return;
  for (const auto& each : devices)
    if (!each->removed) set_link(*each, true);
  for (int seconds = 0; seconds < 200 && conn::rdma::any_orphans(); ++seconds) {
    const Nanoseconds limit = now_ + 1s;
    while (advance(limit)) {
    }
    conn::rdma::look_after_orphans();
  }
}

std::map<std::string, int> World::objects() const {
  std::map<std::string, int> present;
  for (const auto& [kind, number] : objects_)
    if (number != 0) present[kind] = number;
  return present;
}

}  // namespace simulation
