// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// `conn-perf client`: runs all points of the sweep and passes each result to the reports.

#include <string>
#include <vector>

#include "ae/loop_names.h"
#include "ae/spin.h"
#include "plan.h"

namespace perf {

struct ClientOptions {
  std::string url;
  Plan plan;  ///< settings common to all points
  std::vector<std::size_t> sizes{Plan{}.size}, connections{Plan{}.connections},
      depths{Plan{}.depth};
  std::size_t loops = 1;       ///< number of loops; with several, each has its own thread
  std::size_t reply_size = 0;  ///< bytes of a reply; 0: the same size as the request
  ae::Spin spin;               ///< spinning of each loop
  std::string event_loop{ae::loop_names().front()};
  ae::Duration hold{};    ///< how long idle connections stay open after the figures
  std::string json, csv;  ///< file names of reports; "-": standard output, instead of the table
  std::string command;    ///< the command line, recorded in the report
};

/// Runs the measurements. Throws conn::Error; UsageError for invalid `options`, before any
/// connection is opened.
void run_client(ClientOptions options);

}  // namespace perf
