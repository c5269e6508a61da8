// SPDX-License-Identifier: BSD-3-Clause
#include "plot.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <set>

#include "conn/error.h"
#include "output_file.h"

namespace perf {
namespace {

/// A text in gnuplot quotes in which nothing is interpreted.
std::string quoted(const std::string& text) {
  std::string out = "'";
  for (const char c : text) {
    if (c == '\'') out += '\'';
    out += static_cast<unsigned char>(c) < ' ' ? ' ' : c;
  }
  return out + "'";
}

/// Colours distinguishable in greyscale and with red-green colour blindness.
std::string color(std::size_t line) {
  constexpr std::array kColors = {"#0072b2", "#d55e00", "#009e73", "#cc79a7",
                                  "#e69f00", "#56b4e9", "#000000", "#999933"};
  return fmt::format("lc rgb '{}'", kColors[line % kColors.size()]);
}

/// Columns: depth, requests/s, p50, p99.
std::string depth_data(std::size_t line, const Series& series) {
  std::string out = fmt::format("$depth{} << END\n", line);
  for (const auto& point : series.points)
    out +=
        fmt::format("{} {} {} {}\n", point.depth, point.requests_per_s, point.p50_us, point.p99_us);
  return out + "END\n";
}

/// Columns: 1 / (1 - share of requests that were at most this slow), us. On a logarithmic axis the
/// first column spreads the tail: each step to the right is ten times rarer.
std::string distribution_data(std::size_t line, const Series::Point& point) {
  std::string out = fmt::format("$distribution{} << END\n", line);
  double total = 0, seen = 0;
  for (const auto& [us, count] : point.buckets) total += count;
  for (const auto& [us, count] : point.buckets) {
    out += fmt::format("{} {}\n", 1 / (1 - seen / total), us);
    seen += count;
    out += fmt::format("{} {}\n", 1 / (1 - (seen - 0.5) / total), us);
  }
  return out + "END\n";
}

std::string both_formats(const std::string& folder, const std::string& name,
                         const std::string& plot) {
  const auto file = [&](const char* end) {
    return quoted((std::filesystem::path(folder) / (name + end)).string());
  };
  return fmt::format(
      "if (strstrt(GPVAL_TERMINALS, 'pngcairo')) {{\n"
      "  set terminal pngcairo noenhanced size 1000,600 font 'Sans,11'\n"
      "}} else {{\n"
      "  set terminal png noenhanced size 1000,600\n"
      "}}\n"
      "set output {}\n{}\nset output\n"
      "set terminal svg noenhanced size 1000,600 font 'Sans,13' background '#ffffff'\n"
      "set output {}\nreplot\nset output\n",
      file(".png"), plot, file(".svg"));
}

/// A "plot" command with one item per line, written by `item`.
template <class Item>
std::string plot_of(const std::vector<Series>& all, Item item) {
  std::string out;
  for (std::size_t i = 0; i < all.size(); ++i)
    out += (i == 0 ? "plot " : ", \\\n     ") + item(i, all[i]);
  return out;
}

std::string depth_tics(const std::vector<Series>& all) {
  std::set<std::size_t> depths;
  for (const Series& line : all)
    for (const auto& point : line.points) depths.insert(point.depth);
  std::string tics;
  for (const std::size_t depth : depths)
    tics += fmt::format("{}{}", tics.empty() ? "" : ",", depth);
  return fmt::format("set xtics ({})\nset xrange [{}:{}]\n", tics,
                     static_cast<double>(*depths.begin()) / 1.2,
                     static_cast<double>(*depths.rbegin()) * 1.2);
}

void run_gnuplot(const std::string& script) {
  const char* const arguments[] = {"gnuplot", script.c_str(), nullptr};
  // It would inherit that this program ignores SIGPIPE.
  sigset_t pipe;
  sigemptyset(&pipe);
  sigaddset(&pipe, SIGPIPE);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  posix_spawnattr_setsigdefault(&attributes, &pipe);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGDEF);
  pid_t child = 0;
  const int error = posix_spawnp(&child, "gnuplot", nullptr, &attributes,
                                 const_cast<char* const*>(arguments), environ);
  posix_spawnattr_destroy(&attributes);
  if (error == ENOENT)
    throw conn::Error("gnuplot is not installed: install the package gnuplot-nox");
  if (error != 0) throw conn::Error("gnuplot cannot be started: " + conn::errno_text(error));
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  if (WIFSIGNALED(status))
    throw conn::Error(fmt::format("gnuplot was ended by signal {}", WTERMSIG(status)));
  if (WEXITSTATUS(status) != 0)
    throw conn::Error(fmt::format("gnuplot failed, with exit status {}", WEXITSTATUS(status)));
}

/// Makes the folder for the pictures. Throws Error if no file can be made in it.
void prepare_folder(const std::string& folder) {
  if (folder.empty()) throw conn::Error("--out is empty: name a folder for the pictures");
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error)
    throw conn::Error(fmt::format("cannot make the folder {}: {}; name another one with --out",
                                  folder, error.message()));
  std::string name = (std::filesystem::path(folder) / ".conn-perf.XXXXXX").string();
  const int fd = mkstemp(name.data());
  if (fd < 0)
    throw conn::Error(
        fmt::format("cannot write into the folder {}: {}; name another one with --out", folder,
                    conn::errno_text(errno)));
  close(fd);
  unlink(name.c_str());
}

/// A temporary folder, deleted with its contents.
class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::error_code error;
    std::string name = (std::filesystem::temp_directory_path(error) / "conn-perf.XXXXXX").string();
    if (!error && mkdtemp(name.data()) == nullptr) error = {errno, std::generic_category()};
    if (error)
      throw conn::Error("cannot make a temporary folder: " + error.message() +
                        "; set TMPDIR to a folder that can be written");
    path = name;
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  ~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path, ignored);
  }
  std::filesystem::path path;
};

}  // namespace

std::string plot_script(const std::vector<Series>& all, const std::string& folder) {
  std::string script;
  bool several_depths = false;
  for (std::size_t i = 0; i < all.size(); ++i) {
    script += depth_data(i, all[i]) + distribution_data(i, all[i].points.front());
    several_depths |= all[i].points.front().depth != all[0].points.front().depth;
  }
  script +=
      "set grid lt 1 lw 1 lc rgb '#dddddd'\nset border lc rgb '#666666'\nset key outside right "
      "top\n"
      "set pointsize 0.8\nset logscale x 2\nset xlabel 'depth: requests under way on a "
      "connection'\n" +
      depth_tics(all);

  script +=
      "set ylabel 'requests per second'\nset format y '%.1s%c'\nset yrange [0:*]\n"
      "set title 'Throughput against depth'\n";
  script +=
      both_formats(folder, "throughput-depth", plot_of(all, [](std::size_t i, const Series& line) {
                     return fmt::format("$depth{} using 1:2 with linespoints pt 7 lw 2 {} title {}",
                                        i, color(i), quoted(line.name));
                   }));

  script +=
      "set ylabel 'latency, microseconds'\nset format y '%g'\nset yrange [*:*]\nset logscale y\n"
      "set title 'Latency against depth: p50, and dashed p99'\n";
  script +=
      both_formats(folder, "latency-depth", plot_of(all, [](std::size_t i, const Series& line) {
                     return fmt::format(
                         "$depth{0} using 1:3 with linespoints pt 7 lw 2 {1} title {2}, "
                         "$depth{0} using 1:4 with linespoints pt 6 lw 2 dt 2 {1} title {3}",
                         i, color(i), quoted(line.name + ", p50"), quoted(line.name + ", p99"));
                   }));

  script +=
      "set logscale x 10\nset xrange [1:*]\n"
      "set xlabel 'percent of the requests that were at least this fast'\n"
      "set xtics ('0' 1, '50' 2, '90' 10, '99' 100, '99.9' 1e3, '99.99' 1e4, '99.999' 1e5, "
      "'99.9999' 1e6, '99.99999' 1e7)\n";
  script += several_depths ? "set title 'Latency distribution, each at its least depth'\n"
                           : fmt::format("set title 'Latency distribution at depth {}'\n",
                                         all[0].points.front().depth);
  script += both_formats(
      folder, "latency-distribution", plot_of(all, [](std::size_t i, const Series& line) {
        return fmt::format("$distribution{} using 1:2 with lines lw 2 {} title {}", i, color(i),
                           quoted(line.name));
      }));
  return script;
}

void run_plot(const std::vector<std::string>& files, const std::string& folder) {
  const std::vector<Series> all = load_series(files);
  prepare_folder(folder);
  const TemporaryFolder temporary;
  const std::string script = (temporary.path / "plot.gnuplot").string();
  OutputFile file(script);
  file.write(plot_script(all, folder));
  file.finish();
  run_gnuplot(script);
}

}  // namespace perf
