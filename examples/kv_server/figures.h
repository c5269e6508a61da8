// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// What INFO and GET /metrics report: each loop's figures, their sum, and the size of the data.

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "server_state.h"

namespace kv {

/// What one loop reports.
struct Figures {
  Statistics statistics;
  std::size_t clients = 0, buffer_bytes = 0, left_behind = 0;
  std::map<std::string, std::size_t> clients_of;  ///< by transport; only if asked for
  std::vector<conn::SchemeStatistics> transports;
};
Figures figures_of(const Server& server, bool by_transport);
/// The sum of all but `transports`, which are appended.
Figures sum_of(std::span<const Figures> loops);

/// The data, in the server's own store or in the shards.
struct DataFigures {
  std::size_t bytes = 0;
  std::uint64_t expired = 0;
  /// By database: all keys, and those that expire.
  std::vector<std::pair<std::size_t, std::size_t>> keys;
};
DataFigures data_of(Server& server);
/// Locks all shards at one moment. Any thread.
DataFigures data_of(Together& together);

}  // namespace kv
