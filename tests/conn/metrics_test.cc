// SPDX-License-Identifier: BSD-3-Clause
// Statistics in Prometheus's format.

#include "conn/metrics.h"

#include <sstream>

#include "ae/libev_loop.h"
#include "ae/loop_group.h"
#include "conn/error.h"
#include "conn/histogram.h"
#include "conn/transports/transports.h"
#include "tests/support/any_loop.h"
#include "tests/support/catch.h"
#include "tests/support/testing.h"

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
      {"rdma", {{"stalls_send_queue", 2}, {"registrations_user_memory", 9}}},
      {"rdma", {{"stalls_send_queue", 3}, {"stalls_window", 1}, {"inline_sends", 7}}},
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
  REQUIRE(has_line(text, "# TYPE aeconn_rdma_stalls_total counter"));
  REQUIRE(has_line(text, "aeconn_rdma_stalls_total{scheme=\"rdma\",cause=\"send_queue\"} 5"));
  REQUIRE(has_line(text, "aeconn_rdma_stalls_total{scheme=\"rdma\",cause=\"window\"} 1"));
  REQUIRE(
      has_line(text, "aeconn_rdma_registrations_total{scheme=\"rdma\",cause=\"user_memory\"} 9"));
  REQUIRE(has_line(text, "aeconn_rdma_inline_sends_total{scheme=\"rdma\"} 7"));
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
      // A metric that is named after a transport counts nothing of others.
      for (const std::string_view owner : {"tls", "shm", "rdma"})
        if (metric.starts_with("aeconn_" + std::string(owner) + "_"))
          REQUIRE(line.find(owner, metric.size() + 1) != std::string::npos);
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

TEST_CASE("metrics: a list of schemes that somebody asked for is one of a registry", "[metrics]") {
  const conn::Registry registry = conn::all_transports();
  ae::LibevLoop loop;
  const std::string line = "aeconn_fallbacks_total{scheme=\"unix|tcp\"} 0";
  REQUIRE(registry.lists().empty());
  REQUIRE_FALSE(has_line(conn::metrics(registry, loop), line));
  const conn::ConnectionType& list = registry.require("unix|tcp");
  REQUIRE(registry.lists() == std::vector{&list});
  REQUIRE(registry.types_and_lists().size() == registry.types().size() + 1);
  REQUIRE(registry.types_and_lists().back() == &list);
  REQUIRE(has_line(conn::metrics(registry, loop), line));
  ae::LoopGroup loops({.loops = 2});
  REQUIRE(has_line(conn::metrics(registry, loops), line));
}

TEST_CASE("metrics: times are histograms, added up over loops", "[metrics]") {
  conn::Statistics one;
  std::uint64_t up_to = 0;
  for (const std::uint64_t bound : conn::Histogram::kBounds)
    one.emplace_back("accept_time_le_" + std::to_string(bound), ++up_to);
  one.emplace_back("accept_time_sum_ns", 1'250'000'000);
  one.emplace_back("accept_time_count", 20);
  one.emplace_back("connect_failed_refused", 3);
  const std::string text =
      conn::metrics(std::vector<conn::SchemeStatistics>{{"tls", one}, {"tls", one}});
  REQUIRE(text.find("# TYPE aeconn_accept_seconds histogram\n"
                    "aeconn_accept_seconds_bucket{scheme=\"tls\",le=\"0.000025\"} 2\n"
                    "aeconn_accept_seconds_bucket{scheme=\"tls\",le=\"0.00005\"} 4\n") !=
          std::string::npos);
  REQUIRE(text.find("{scheme=\"tls\",le=\"1\"} 30\n"
                    "aeconn_accept_seconds_bucket{scheme=\"tls\",le=\"10\"} 32\n"
                    "aeconn_accept_seconds_bucket{scheme=\"tls\",le=\"+Inf\"} 40\n"
                    "aeconn_accept_seconds_sum{scheme=\"tls\"} 2.5\n"
                    "aeconn_accept_seconds_count{scheme=\"tls\"} 40\n") != std::string::npos);
  REQUIRE(has_line(text, "aeconn_connects_failed_total{scheme=\"tls\",reason=\"refused\"} 6"));
}

TEST_CASE("metrics: connects are timed, and their failures have reasons", "[metrics][tcp]") {
  const conn::Registry registry = conn::all_transports();
  ae::LibevLoop loop;
  conn::ListenerPtr listener = registry.listen(loop, "tcp://127.0.0.1:0", [](auto) {});
  const std::string url = listener->endpoints().front().to_string();
  bool done = false;
  const auto end = [&done](conn::Connection&) { done = true; };
  conn::ConnectionPtr client = registry.connect(loop, url, end);
  RUN_UNTIL(loop, done);
  const std::string stood = conn::metrics(registry, loop);
  REQUIRE(has_line(stood, "aeconn_connect_seconds_count{scheme=\"tcp\"} 1"));
  REQUIRE(stood.find("aeconn_connects_failed_total") == std::string::npos);
  // A connection accepted by tcp is established at once.
  REQUIRE(stood.find("aeconn_accept_seconds") == std::string::npos);
  listener.reset();
  done = false;
  conn::ConnectionPtr refused = registry.connect(loop, url, end);
  RUN_UNTIL(loop, done);
  const std::string text = conn::metrics(registry, loop);
  REQUIRE(has_line(text, "aeconn_connect_seconds_count{scheme=\"tcp\"} 1"));
  REQUIRE(has_line(text, "aeconn_connects_failed_total{scheme=\"tcp\",reason=\"refused\"} 1"));
}

TEST_CASE("metrics: counters of a port belong to the process", "[metrics]") {
  const conn::Statistics one = {{"mlx5_0_port1_hw_sent_pkts", 4}, {"a_port12_port_rcv_data", 9}};
  const std::string text =
      conn::metrics(std::vector<conn::SchemeStatistics>{{"rdma", one}, {"rdma", one}});
  REQUIRE(has_line(text,
                   "aeconn_rdma_port_hw_counter_total{scheme=\"rdma\",device=\"mlx5_0\","
                   "port=\"1\",counter=\"sent_pkts\"} 4"));
  REQUIRE(has_line(text,
                   "aeconn_rdma_port_counter_total{scheme=\"rdma\",device=\"a\",port=\"12\","
                   "counter=\"port_rcv_data\"} 9"));
}

TEST_CASE("metrics: the writer lets out no sample that its type does not have", "[metrics]") {
  MetricsText out;
  const std::vector<std::uint64_t> up_to(conn::Histogram::kBounds.size(), 1);
  out.begin("a", MetricsText::Type::kCounter, "");
  REQUIRE_THROWS_AS(out.histogram({}, up_to, 1, 1), conn::Error);
  REQUIRE_THROWS_AS(out.sample({{"x", "1"}, {"y", ""}, {"x", "2"}}, 1), conn::Error);
  out.sample({{"x", "1"}, {"y", "2"}}, 1);
  REQUIRE_THROWS_AS(out.sample({{"x", "1"}, {"y", "2"}}, 2), conn::Error);
  REQUIRE_THROWS_AS(out.sample({{"y", "2"}, {"x", "1"}}, 2), conn::Error);
  out.sample({{"x", "\1"}}, 1);
  REQUIRE_THROWS_AS(out.sample({{"x", "\2"}}, 1), conn::Error);  // is written as the same text
  out.begin("b", MetricsText::Type::kHistogram, "");
  REQUIRE_THROWS_AS(out.sample({}, 1), conn::Error);
  REQUIRE_THROWS_AS(out.histogram({{"le", "1"}}, up_to, 1, 1), conn::Error);
  out.histogram({{"x", "1"}}, up_to, 1, 1);
  REQUIRE_THROWS_AS(out.histogram({{"x", "1"}}, up_to, 1, 1), conn::Error);
  const std::string before = out.text();
  for (const char* name : {"b_bucket", "b_sum", "b_count"})
    REQUIRE_THROWS_AS(out.begin(name, MetricsText::Type::kCounter, ""), conn::Error);
  REQUIRE(out.text() == before);
}

TEST_CASE("metrics: a transport's own statistics do not mix with histograms", "[metrics]") {
  const conn::Statistics own = {
      {"connect_time_count", 1}, {"connect_seconds", 2}, {"connect_seconds_sum", 3}};
  const std::string text = conn::metrics(std::vector<conn::SchemeStatistics>{{"mine", own}});
  REQUIRE(has_line(text, "# TYPE aeconn_connect_seconds_ untyped"));
  REQUIRE(has_line(text, "aeconn_connect_seconds_{scheme=\"mine\"} 2"));
  REQUIRE(has_line(text, "aeconn_connect_seconds_sum_{scheme=\"mine\"} 3"));
  REQUIRE(has_line(text, "aeconn_connect_seconds_count{scheme=\"mine\"} 1"));
}
