// SPDX-License-Identifier: BSD-3-Clause
#include "conn/shm/type.h"

#include <fstream>
#include <memory>
#include <string>
#include <utility>

#include "conn/error.h"
#include "conn/shm/hello.h"
#include "conn/shm/loop_state.h"
#include "conn/shm/settings.h"

namespace conn { inline namespace AECONN_ABI { namespace shm {
namespace {

/// Returns the limit on the process's memory mappings; each connection needs two.
Capacity mapping_capacity(std::uint64_t connections) {
  Capacity limit;
  limit.name = "memory mappings (vm.max_map_count)";
  if (!(std::ifstream("/proc/sys/vm/max_map_count") >> limit.most)) limit.most = 65530;
  std::ifstream mine("/proc/self/maps");
  for (std::string line; std::getline(mine, line);) ++limit.used;
  limit.needed = 2 * connections;
  limit.connections = limit.most > limit.used ? (limit.most - limit.used) / 2 : 0;
  limit.raise =
      "raise it with sysctl -w vm.max_map_count=" + std::to_string(limit.used + limit.needed);
  return limit;
}

/// Returns the message that tells a client why it is refused; its hello (set-up message) is not
/// read.
std::string refusal(std::string_view why) {
  return encode(Answer{Answer::kFull, std::string(why)});
}

}  // namespace

ShmType::ShmType()
    : table_(shm::option_table()),
      socket_("shm", this, &refusal),
      settings_(std::make_shared<const Settings>()) {}

void ShmType::configure(const Options& options) {
  if (options.has("shm-path"))
    throw Error("option shm-path belongs in the URL of a list of schemes, as in " +
                std::string("shm|tcp://127.0.0.1:6379?shm-path=/run/kv.shm"));
  settings_ = parse_settings(options);  // throws for a bad option, before anything is changed
  options_ = options;
}

std::shared_ptr<const Settings> ShmType::settings_for(const Options& endpoint) const {
  return endpoint.empty() ? settings_ : parse_settings(options_.merged_with(endpoint));
}

Endpoint ShmType::socket_endpoint(const Endpoint& endpoint) const {
  Endpoint socket = endpoint;
  if (const std::string path = endpoint.options.text("shm-path", ""); !path.empty()) {
    socket.path = path;
    socket.hosts.clear();
    socket.port = 0;
  }
  socket.options = socket_options(options_.merged_with(endpoint.options));
  return socket;
}

void ShmType::check(const Endpoint& endpoint) const {
  try {
    (void)settings_for(endpoint.options);
    if (!endpoint.hosts.empty() && !endpoint.options.has("shm-path"))
      throw Error("a shm endpoint has a path and no host");
  } catch (const Error& error) {
    throw Error(error.code(), endpoint.to_string() + ": " + error.what());
  }
  socket_.check(socket_endpoint(endpoint));
}

PortListenerPtr ShmType::open_port(ae::EventLoop& loop, const Endpoint& endpoint,
                                   PendingHandler arrived) const {
  check(endpoint);
  return socket_.open_port(loop, socket_endpoint(endpoint), std::move(arrived));
}

PortListenerPtr ShmType::adopt_port(ae::EventLoop& loop, int fd, PendingHandler arrived,
                                    const Options& options) const {
  (void)settings_for(options);
  return socket_.adopt_port(loop, fd, std::move(arrived),
                            socket_options(options_.merged_with(options)));
}

std::vector<Capacity> ShmType::capacity(const Endpoint& endpoint, std::uint64_t connections) const {
  check(endpoint);
  return {descriptor_capacity(connections, 1), mapping_capacity(connections)};
}

Statistics ShmType::statistics(ae::EventLoop& loop) const {
  Statistics all = Transport::statistics(loop);
  const Counters& c = LoopState::of(*this, loop).counters;
  all.insert(all.end(), {{"hellos", c.hellos},
                         {"hello_failures", c.hello_failures},
                         {"peer_errors", c.peer_errors},
                         {"bells_sent", c.bells_sent},
                         {"bells_had", c.bells_had},
                         {"wakes_in_vain", c.wakes_in_vain},
                         {"ring_bytes", c.ring_bytes}});
  return all;
}

}}}  // namespace conn::shm
