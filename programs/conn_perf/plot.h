// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// `conn-perf plot`: pictures of the results that --json wrote.

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

namespace perf {

/// One line in a picture: points that differ in depth only.
struct Series {
  struct Point {
    std::size_t depth = 0;
    double requests_per_s = 0, p50_us = 0, p99_us = 0;
    std::vector<std::pair<double, double>> buckets;  ///< time in microseconds, count
  };
  std::string name;
  std::vector<Point> points;  ///< sorted by depth
};

/// Loads the request-response results of files as lines whose names show how they differ. Throws
/// conn::Error.
std::vector<Series> load_series(const std::vector<std::string>& files);

/// Returns a gnuplot script that draws three pictures, each as PNG and SVG, into `folder`.
std::string plot_script(const std::vector<Series>& all, const std::string& folder);

/// Writes throughput-depth, latency-depth and latency-distribution into `folder`, which is created
/// if necessary. Throws conn::Error.
void run_plot(const std::vector<std::string>& files, const std::string& folder);

}  // namespace perf
