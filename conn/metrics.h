// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Writes statistics in Prometheus's text format (version 0.0.4), for a program that serves them.

#include <cstdint>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ae/abi.h"
#include "ae/loops.h"
#include "conn/connection_type.h"
#include "conn/registry.h"

namespace conn { inline namespace AECONN_ABI {

/// The statistics of one transport on one loop.
struct SchemeStatistics {
  std::string scheme;     ///< the transport's scheme, "tcp", or a list of schemes, "rdma|tcp"
  Statistics statistics;  ///< counters that ConnectionType::statistics() returned
};

/// The value of the HTTP header Content-Type for a response that contains the metrics text.
inline constexpr std::string_view kMetricsContentType = "text/plain; version=0.0.4; charset=utf-8";

/// Returns the metrics text of `all`: each statistic with HELP and TYPE, then one line for each
/// scheme (label `scheme`) and, for statistics of devices, for each device (label `device`). If a
/// scheme occurs several times, as with several loops, its values are added; of a statistic of the
/// whole process, which each loop reports, the largest value is used instead. Counters end in
/// _total and never fall while the loops live. Times are histograms in seconds:
/// aeconn_connect_seconds_bucket{le="0.001"}, _sum and _count.
AECONN_API std::string metrics(std::span<const SchemeStatistics> all);
/// Collects the input of metrics() on `loop`: the statistics of all transports of `registry`, and
/// of the lists of schemes already in use. To be called on the loop's thread.
AECONN_API std::vector<SchemeStatistics> scheme_statistics(const Registry& registry,
                                                           ae::EventLoop& loop);
/// Returns the metrics text of all transports of `registry`, and of its lists of schemes, on
/// `loop`. To be called on the loop's thread.
AECONN_API std::string metrics(const Registry& registry, ae::EventLoop& loop);
/// Returns the metrics text of all transports, summed over `loops`. The statistics of each loop are
/// read on its own thread, between two handlers; this function waits for them, like
/// ae::Loops::ask_each(). May be called on any thread, also on those of the loops. Throws
/// ae::LoopError if a loop has ended.
AECONN_API std::string metrics(const Registry& registry, ae::Loops& loops);

/// Writes Prometheus's text format and produces only valid output: an invalid name of a metric or
/// label throws Error, and so does a metric or a sample that occurs twice; label values and help
/// texts are escaped.
class AECONN_API MetricsText {
 public:
  /// The type of a metric, as the text format's line "# TYPE" names it.
  enum class Type {
    kCounter,    ///< a number of events, which never falls while the process lives
    kGauge,      ///< a current value, which may rise and fall
    kHistogram,  ///< the number and the sum of measured values, grouped by size
    kUntyped,    ///< a value of which it is unknown whether it is a counter or a gauge
  };
  /// Names and values of a sample's labels.
  using Labels = std::vector<std::pair<std::string, std::string>>;

  /// Starts a new metric, to which the samples added next belong. Throws Error if a metric of this
  /// name was already written. A histogram also occupies its name with the endings _bucket, _sum
  /// and _count.
  void begin(std::string_view name, Type type, std::string_view help);
  /// Adds a histogram to the metric that begin() started. `up_to` has, for each of
  /// Histogram::kBounds, the number of values up to that bound; `count` is the number of all values
  /// and `sum_ns` their sum in nanoseconds. Throws like sample(), and also throws Error for a label
  /// named `le`, which is the label of the bounds.
  void histogram(const Labels& labels, std::span<const std::uint64_t> up_to, std::uint64_t count,
                 std::uint64_t sum_ns);
  /// Adds one value, with its labels, to the metric that begin() started. Throws Error if begin()
  /// was not called or started a histogram, if a label occurs twice, or if the metric already has a
  /// value with the same labels.
  void sample(const Labels& labels, std::uint64_t value);
  /// Returns the metrics text that has been written so far.
  const std::string& text() const noexcept { return text_; }

 private:
  void check(Labels labels, bool histogram);
  void sample(std::string_view suffix, const Labels& labels, std::string_view value);
  std::string text_, name_;
  bool histogram_ = false;       // true if the current metric is a histogram
  std::set<std::string> names_;  // names of the metrics begun, with those of histograms' samples
  std::set<Labels> written_;     // labels of the current metric's samples, sorted
};

}}  // namespace conn
