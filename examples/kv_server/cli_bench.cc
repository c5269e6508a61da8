// SPDX-License-Identifier: BSD-3-Clause
#include "cli_bench.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>

#include "programs/service/standard_streams.h"

namespace kv {

void run_bench(CliClient& client, std::size_t count, std::vector<std::string> command) {
  using Clock = std::chrono::steady_clock;
  if (command.empty()) command = {"PING"};
  for (std::size_t i = 0; i < std::min<std::size_t>(count / 10, 1000); ++i) client.call(command);

  std::vector<double> microseconds(count);
  const auto start = Clock::now();
  for (double& time : microseconds) {
    const auto sent = Clock::now();
    client.call(command);
    time = std::chrono::duration<double, std::micro>(Clock::now() - sent).count();
  }
  const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
  std::sort(microseconds.begin(), microseconds.end());
  const auto at = [&](double part) {
    return microseconds[static_cast<std::size_t>(part * static_cast<double>(count - 1))];
  };
  service::print(fmt::format(
      "{} round trips, {:.0f} per second, latency us: mean {:.1f}, p50 {:.1f}, p99 {:.1f}\n", count,
      static_cast<double>(count) / seconds, seconds * 1e6 / static_cast<double>(count), at(0.5),
      at(0.99)));
}

}  // namespace kv
