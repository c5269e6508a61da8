// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Output of results: table, JSON, CSV.

#include <fstream>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "plan.h"

namespace perf {

/// Facts of both sides, for a report's header. `server` has no value if the server is a plain echo.
struct Sides {
  Facts client;
  std::optional<Facts> server;
  std::vector<std::string> notes;  ///< remarks for the reader of the figures
};

/// Receives results: begin(), then result() for each as soon as it is available, then end().
class Report {
 public:
  virtual ~Report() = default;
  virtual void begin(const Sides& sides, const Plan& plan) = 0;
  virtual void result(const Result& result) = 0;
  virtual void end() = 0;
};

/// Returns how much of `what` an idle measurement used per connection.
std::optional<std::uint64_t> per_connection(const Result& result,
                                            std::optional<std::uint64_t> Usage::*what, bool server);
/// Return the seconds of CPU per million requests, and the system calls per request.
std::optional<double> cpu_per_million(const Result& result, bool server);
std::optional<double> calls_per_request(const Result& result, bool server);
/// Returns whether either side has several loops; reports then list each loop's share.
bool on_several_loops(const Result& result);
double per_second(const Result& result, std::uint64_t what);

using Output = std::function<void(std::string_view)>;
std::unique_ptr<Report> make_table(Output out);
/// Return reports that write to a file, or for "-" to standard output. Throw conn::Error if it
/// cannot be written.
std::unique_ptr<Report> make_json(const std::string& path);
std::unique_ptr<Report> make_csv(const std::string& path);

}  // namespace perf
