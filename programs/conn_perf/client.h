// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// `conn-perf client`: goes through the sweep and hands each result to a report.

#include <string>
#include <vector>

#include "ae/loop_names.h"
#include "ae/spin.h"
#include "plan.h"

namespace perf {

struct ClientOptions {
  std::string url;
  Plan plan;  ///< what all points have in common
  std::vector<std::size_t> sizes{Plan{}.size}, connections{Plan{}.connections},
      depths{Plan{}.depth};
  std::size_t loops = 1;       ///< with several each has a thread of its own
  std::size_t reply_size = 0;  ///< 0: as the request
  ae::Spin spin;               ///< of each loop
  std::string event_loop{ae::loop_names().front()};
  ae::Duration hold{};    ///< how long idle connections stay after the figures
  std::string json, csv;  ///< files; "-": standard output, instead of the table
  std::string command;    ///< for the record
};

/// Throws conn::Error; a mistake in `options` before anything is connected is a UsageError.
void run_client(ClientOptions options);

class UsageError : public conn::Error {
 public:
  using conn::Error::Error;
};

}  // namespace perf
