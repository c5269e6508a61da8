// SPDX-License-Identifier: BSD-3-Clause
#include "conn/rdma/type.h"

#include "conn/rdma/config/limits.h"
#include "conn/rdma/config/settings.h"
#include "conn/rdma/device/availability.h"
#include "conn/rdma/device/port_counters.h"
#include "conn/rdma/loop/loop_state.h"
#include "conn/rdma/memory/user_memory.h"

namespace conn { inline namespace AECONN_ABI { namespace rdma {

RdmaType::RdmaType() : table_(Settings::options()) {}

void RdmaType::configure(const Options& options) {
  (void)Settings::from(options);
  const std::lock_guard lock(mutex_);
  options_ = options;
}

Options RdmaType::options_for(const Endpoint& endpoint) const {
  const std::lock_guard lock(mutex_);
  return options_.merged_with(endpoint.options);
}

void RdmaType::check(const Endpoint& endpoint) const {
  if (endpoint.hosts.empty() || endpoint.no_port)
    throw Error(endpoint.to_string() +
                ": an rdma URL needs an address and a port, as in rdma://10.0.0.1:6379");
  (void)Settings::from(options_for(endpoint));
}

std::unique_ptr<Memory> RdmaType::register_memory(ae::EventLoop& loop,
                                                  std::span<std::byte> bytes) const {
  return std::make_unique<UserMemory>(*this, loop, bytes);
}

bool RdmaType::has_pending_data(ae::EventLoop& loop) const {
  const LoopState* state = LoopState::find(loop, *this);
  return state != nullptr && state->has_pending();
}

std::size_t RdmaType::process_pending_data(ae::EventLoop& loop) const {
  LoopState* state = LoopState::find(loop, *this);
  return state != nullptr ? state->process_pending() : 0;
}

void RdmaType::cleanup(ae::EventLoop& loop) const {
  if (LoopState* state = LoopState::find(loop, *this)) state->devices().give_back_what_is_idle();
}

namespace {

// Appends to `all` the limits of the process and, if an address of the endpoint belongs to a
// device, those of that device. Opens the device, because its limits cannot be queried otherwise.
void add_device(const Endpoint& endpoint, std::uint64_t connections, const Settings& settings,
                std::vector<Capacity>& all) {
  CmChannel channel;
  std::string name;  // name of the endpoint's device; empty: there is none
  for (const Endpoint::Host& host : endpoint.hosts) {
    Resolved resolved = resolve(host.name, 0, true);
    for (SocketAddress& address : resolved.addresses) {
      const CmId id = channel.create_id(nullptr);
      if (rdma_bind_addr(id.get(), address.get()) != 0 || id->verbs == nullptr) continue;
      name = ibv_get_device_name(id->verbs->device);
      try {
        const Device device(id->verbs->device, settings.inline_data);
        for (Capacity& each : capacities(device, connections, settings))
          all.push_back(std::move(each));
        return;
      } catch (const VerbsError&) {  // the device cannot be opened, perhaps because of a limit
        break;
      }
    }
    if (!name.empty()) break;
  }
  for (const Limit& limit : process_limits(name.empty() ? settings.device : name))
    all.push_back(capacity_of(limit, connections, settings, {}));
}

}  // namespace

std::vector<Capacity> RdmaType::capacity(const Endpoint& endpoint,
                                         std::uint64_t connections) const {
  check(endpoint);
  std::vector<Capacity> all{descriptor_capacity(connections, 0)};
  const Settings settings = Settings::from(options_for(endpoint));
  try {
    add_device(endpoint, connections, settings, all);
  } catch (const VerbsError& error) {
    throw unavailable(error);
  }
  return all;
}

Statistics RdmaType::statistics(ae::EventLoop& loop) const {
  Statistics all = Transport::statistics(loop);
  all.emplace_back("registered_bytes", registered_bytes());
  all.emplace_back("teardown_failures", teardown_failures());
  LoopState* state = LoopState::find(loop, *this);
  if (state == nullptr) return all;
  const LoopStatistics& s = state->statistics();
  const RegistrationCounts& registrations = state->devices().registrations();
  all.insert(all.end(), {{"cm_events", s.cm_events},
                         {"doorbells", s.doorbells},
                         {"work_requests", s.work_requests},
                         {"inline_sends", s.inline_sends},
                         {"control_sent", s.control_sent},
                         {"control_received", s.control_received},
                         {"windows", s.windows},
                         {"protocol_errors", s.protocol_errors},
                         {"peers_dead", s.peers_dead},
                         {"rejected", s.rejected},
                         {"control_floods", s.control_floods},
                         {"peer_windows_refused", s.peer_windows_refused},
                         {"memory_refusals", s.memory_refusals},
                         {"bytes_copied_in", s.bytes_copied_in},
                         {"bytes_copied_out", s.bytes_copied_out},
                         {"stalls_window", s.stalls_window},
                         {"stalls_receives", s.stalls_receives},
                         {"stalls_send_queue", s.stalls_send_queue},
                         {"registrations_windows", registrations.windows},
                         {"registrations_buffers", registrations.buffers},
                         {"registrations_user_memory", registrations.user_memory},
                         {"resumes", s.resumes},
                         {"paths_lost", s.lost},
                         {"resumes_refused", s.resumes_refused},
                         {"bytes_resent", s.bytes_resent},
                         {"sessions_forgotten", s.forgotten},
                         {"room_for_connections", s.room_for_connections},
                         {"limits_too_low", s.limits_too_low},
                         {"prepared", state->devices().prepared()},
                         {"prepared_used", state->preparation().used()}});
  for (auto [name, c] : state->devices().counted_before()) {
    std::uint64_t queue_pairs = 0, completion_queues = 0;
    for (const auto& context : state->devices().contexts()) {
      if (context->name() != name) continue;
      c += context->counters();
      queue_pairs += context->queue_pairs();
      completion_queues += context->completion_queues();
    }
    all.insert(all.end(), {{name + "_queue_pairs", queue_pairs},
                           {name + "_completions", c.completions},
                           {name + "_completion_events", c.completion_events},
                           {name + "_arms", c.arms},
                           {name + "_async_events", c.async_events},
                           {name + "_receive_shortages", c.receive_shortages},
                           {name + "_receives_lost", c.receives_lost},
                           {name + "_completion_queues", completion_queues}});
    for (const auto& [counter, value] : port_counters(name))
      all.emplace_back(name + '_' + counter, value);
  }
  return all;
}

}}}  // namespace conn::rdma
