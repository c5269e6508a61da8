// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// `conn-perf plot`: pictures of the results that --json wrote.

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

namespace perf {

/// One line in a picture: what was measured alike but for the depth.
struct Series {
  struct Point {
    std::size_t depth = 0;
    double requests_per_s = 0, p50_us = 0, p99_us = 0;
    std::vector<std::pair<double, double>> buckets;  ///< us, count
  };
  std::string name;
  std::vector<Point> points;  ///< by depth
};

/// The request-response results of files, as lines whose names say how they differ. Throws
/// conn::Error.
std::vector<Series> load_series(const std::vector<std::string>& files);

/// What gnuplot is to do: three pictures, each as PNG and SVG, into `folder`.
std::string plot_script(const std::vector<Series>& all, const std::string& folder);

/// Writes throughput-depth, latency-depth and latency-distribution into `folder`, which is made if
/// need be. Throws conn::Error.
void run_plot(const std::vector<std::string>& files, const std::string& folder);

}  // namespace perf
