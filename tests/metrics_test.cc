// Statistics as Prometheus reads them.

#include "conn/metrics.h"

#include <sstream>

#include "ae/libev_loop.h"
#include "ae/loop_group.h"
#include "conn/error.h"
#include "conn/transports/transports.h"
#include "tests/support/catch.h"

using conn::MetricsText;

namespace {

bool has_line(const std::string& text, const std::string& wanted) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);)
    if (line == wanted) return true;
  return false;
}

}  // namespace

TEST_CASE("metrics: the writer lets nothing out that is not the format", "[metrics]") {
  MetricsText out;
  REQUIRE_THROWS_AS(out.sample({}, 1), conn::Error);
  for (const char* name : {"", "1a", "a b", "a\n", "a{", "\xc3\xa4"})
    REQUIRE_THROWS_AS(out.begin(name, MetricsText::Type::kGauge, ""), conn::Error);
  REQUIRE(out.text().empty());
  out.begin("a:b_1", MetricsText::Type::kCounter, "one\\two\nthree \"four\"");
  REQUIRE_THROWS_AS(out.begin("a:b_1", MetricsText::Type::kGauge, ""), conn::Error);
  for (const char* label : {"", "a:b", "9", "a\"", "__name__"})
    REQUIRE_THROWS_AS(out.sample({{label, "x"}}, 1), conn::Error);
  out.sample({}, UINT64_MAX);
  out.sample({{"x", "\\\"\n} 7\n"}, {"y", ""}}, 0);
  REQUIRE(out.text() ==
          "# HELP a:b_1 one\\\\two\\nthree \"four\"\n"
          "# TYPE a:b_1 counter\n"
          "a:b_1 18446744073709551615\n"
          "a:b_1{x=\"\\\\\\\"\\n} 7\\n\",y=\"\"} 0\n");
}

TEST_CASE("metrics: schemes and devices are labels; loops are added up, the process is not",
          "[metrics]") {
  const std::vector<conn::SchemeStatistics> all = {
      {"rdma", {{"open", 2}, {"registered_bytes", 10}, {"mlx_5_0_completion_events", 3}}},
      {"rdma", {{"open", 3}, {"registered_bytes", 12}, {"mlx_5_0_completion_events", 4}}},
      {"rdma|tcp", {{"open", 1}, {"fallback_device", 6}}},
      {"mine", {{"of its-own", 8}}}};
  const std::string text = conn::metrics(all);
  REQUIRE(has_line(text, "aeconn_connections_open{scheme=\"rdma\"} 5"));
  REQUIRE(has_line(text, "aeconn_connections_open{scheme=\"rdma|tcp\"} 1"));
  REQUIRE(has_line(text, "aeconn_rdma_registered_bytes{scheme=\"rdma\"} 12"));
  REQUIRE(
      has_line(text, "aeconn_rdma_completion_events_total{scheme=\"rdma\",device=\"mlx_5_0\"} 7"));
  REQUIRE(
      has_line(text, "aeconn_schemes_not_taken_total{scheme=\"rdma|tcp\",reason=\"device\"} 6"));
  REQUIRE(has_line(text, "# TYPE aeconn_of_its_own untyped"));
  REQUIRE(has_line(text, "aeconn_of_its_own{scheme=\"mine\"} 8"));
}

TEST_CASE("metrics: each statistic of each transport has help and a type", "[metrics]") {
  const conn::Registry registry = conn::all_transports();
  ae::LibevLoop loop;
  const std::string text = conn::metrics(registry, loop);
  std::istringstream lines(text);
  std::string line, metric, before;
  std::size_t samples = 0, statistics = 0;
  while (std::getline(lines, line)) {
    CAPTURE(line);
    REQUIRE(line.find("A statistic of this transport") == std::string::npos);
    if (line.starts_with("# HELP ")) {
      metric = line.substr(7, line.find(' ', 7) - 7);
    } else if (line.starts_with("# TYPE ")) {
      REQUIRE(before.starts_with("# HELP " + metric + " "));
      const bool total = metric.ends_with("_total");
      REQUIRE(line == "# TYPE " + metric + (total ? " counter" : " gauge"));
    } else {
      REQUIRE(line.starts_with(metric + "{scheme=\""));
      ++samples;
    }
    before = line;
  }
  for (const auto& type : registry.types()) statistics += type->statistics(loop).size();
  REQUIRE(samples == statistics);
}

TEST_CASE("metrics: of several loops", "[metrics][threads]") {
  const conn::Registry registry = conn::all_transports();
  ae::LoopGroup loops({.loops = 2});
  REQUIRE(has_line(conn::metrics(registry, loops), "aeconn_connections_open{scheme=\"tcp\"} 0"));
}
