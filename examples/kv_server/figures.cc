// SPDX-License-Identifier: BSD-3-Clause
#include "figures.h"

#include "command.h"
#include "session.h"
#include "together.h"

namespace kv {
namespace {

void add(DataFigures& data, Store& store) {
  data.bytes += store.memory();
  data.expired += store.expired();
  for (std::size_t db = 0; db < data.keys.size(); ++db) {
    data.keys[db].first += store.database(db).size();
    data.keys[db].second += store.database(db).volatile_size();
  }
}

}  // namespace

Figures figures_of(const Server& server, bool by_transport) {
  Figures figures{
      server.statistics, server.sessions.size(), server.buffer_bytes, server.left_behind(), {}, {}};
  if (server.transports) figures.transports = server.transports();
  if (!by_transport) return figures;
  for (const auto& [id, session] : server.sessions) ++figures.clients_of[session->info().transport];
  return figures;
}

Figures sum_of(std::span<const Figures> loops) {
  Figures sum;
  sum.statistics.commands.resize(command_count());  // a loop that has ended reports none
  for (const Figures& each : loops) {
    sum.statistics.add(each.statistics);
    sum.clients += each.clients;
    sum.buffer_bytes += each.buffer_bytes;
    sum.left_behind += each.left_behind;
    for (const auto& [name, count] : each.clients_of) sum.clients_of[name] += count;
    sum.transports.insert(sum.transports.end(), each.transports.begin(), each.transports.end());
  }
  return sum;
}

DataFigures data_of(Server& server) {
  if (server.together != nullptr) return data_of(*server.together);
  DataFigures data;
  data.keys.resize(server.database_count);
  add(data, server.store);
  return data;
}

DataFigures data_of(Together& together) {
  DataFigures data;
  data.keys.resize(together.database_count());
  std::int64_t grown = 0;  // stays 0: reading changes nothing
  const ShardsLock lock(together.shards, grown);
  for (std::size_t i = 0; i < together.shards.count(); ++i) add(data, together.shards[i].store);
  return data;
}

}  // namespace kv
