// SPDX-License-Identifier: BSD-3-Clause
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <tuple>

#include "conn/error.h"
#include "plot.h"

namespace perf {
namespace {

using Json = nlohmann::json;

/// What the results of one line have in common.
struct Key {
  std::size_t file = 0;  // file index, not name: before/tcp.json and after/tcp.json differ
  std::string transport;
  std::size_t connections = 0, size = 0;
  bool operator<(const Key& other) const {
    return std::tie(file, transport, connections, size) <
           std::tie(other.file, other.transport, other.connections, other.size);
  }
};

Series::Point point_of(const Json& result) {
  Series::Point point;
  point.depth = result.at("depth");
  point.requests_per_s = result.at("requests_per_s");
  point.p50_us = result.at("latency_us").at("p50");
  point.p99_us = result.at("latency_us").at("p99");
  for (const Json& bucket : result.at("histogram"))
    point.buckets.emplace_back(bucket.at(0), bucket.at(1));
  return point;
}

void add_file(const std::string& path, std::size_t index, std::map<Key, Series>& all) {
  std::ifstream file(path);
  if (!file) throw conn::Error(fmt::format("cannot read {}: {}", path, conn::errno_text(errno)));
  if (std::filesystem::is_directory(path))
    throw conn::Error(path + " is a folder: name files that conn-perf client --json wrote");
  try {
    const Json json = Json::parse(file);
    if (json.at("tool") != "conn-perf")
      throw conn::Error(path +
                        " is of another tool: name files that conn-perf client --json wrote");
    for (const Json& result : json.at("results")) {
      if (result.at("mode") != "request-response" || result.at("latency_us").is_null()) continue;
      const Key key{index, result.at("transport"), result.at("connections"), result.at("size")};
      all[key].points.push_back(point_of(result));
    }
  } catch (const Json::exception&) {
    throw conn::Error(path +
                      " is not what conn-perf --json writes, or not all of it: name files that "
                      "conn-perf client --json wrote");
  }
}

/// The files' stems; for equal stems, with the folder's name before them; if still ambiguous, the
/// path.
std::vector<std::string> names_of(const std::vector<std::string>& files) {
  using std::filesystem::path;
  const auto stem = [](const std::string& file) { return path(file).stem().string(); };
  const auto with_folder = [](const std::string& file) {
    const path whole = std::filesystem::absolute(file).lexically_normal();
    return (whole.parent_path().filename() / whole.stem()).string();
  };
  const auto alone = [&](const std::string& file, const auto& name_of) {
    return std::count_if(files.begin(), files.end(), [&](const std::string& other) {
             return name_of(other) == name_of(file);
           }) == 1;
  };
  std::vector<std::string> names;
  names.reserve(files.size());
  for (const std::string& file : files) {
    names.push_back(alone(file, stem)          ? stem(file)
                    : alone(file, with_folder) ? with_folder(file)
                                               : file);
  }
  return names;
}

}  // namespace

std::vector<Series> load_series(const std::vector<std::string>& files) {
  std::map<Key, Series> all;
  for (std::size_t i = 0; i < files.size(); ++i) add_file(files[i], i, all);
  if (all.empty())
    throw conn::Error(
        "nothing to plot: no file has an answered request; measure with conn-perf client --mode "
        "request-response --json FILE");

  // A name contains only what distinguishes its line from the others.
  std::set<std::size_t> connections, sizes;
  std::map<std::tuple<std::string, std::size_t, std::size_t>, int> alike;
  for (const auto& [key, line] : all) {
    connections.insert(key.connections);
    sizes.insert(key.size);
    ++alike[{key.transport, key.connections, key.size}];
  }
  const std::vector<std::string> names = names_of(files);
  std::vector<Series> lines;
  for (auto& [key, line] : all) {
    line.name = key.transport;
    if (alike[{key.transport, key.connections, key.size}] > 1) line.name += " " + names[key.file];
    if (connections.size() > 1) line.name += fmt::format(", {} connections", key.connections);
    if (sizes.size() > 1) line.name += fmt::format(", {} bytes", key.size);
    std::sort(line.points.begin(), line.points.end(),
              [](const auto& a, const auto& b) { return a.depth < b.depth; });
    lines.push_back(std::move(line));
  }
  return lines;
}

}  // namespace perf
