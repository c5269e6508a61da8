// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Statistics in the text format that Prometheus reads (version 0.0.4), for a program that serves
// them where it likes.

#include <cstdint>
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

/// What ConnectionType::statistics() said of one transport on one loop.
struct SchemeStatistics {
  std::string scheme;     ///< "tcp", or a list: "rdma|tcp"
  Statistics statistics;  ///< as they were asked for
};

/// Content-Type of an HTTP answer with this text.
inline constexpr std::string_view kMetricsContentType = "text/plain; version=0.0.4; charset=utf-8";

/// Each statistic once with HELP and TYPE, then a line for each scheme (label `scheme`), and for
/// each device where it is one of a device (label `device`). Of one scheme that is there several
/// times, as with several loops, values are added up; those that belong to the process are not.
/// Counters end in _total and never fall as long as the loops live. Times are histograms, in
/// seconds: aeconn_connect_seconds_bucket{le="0.001"}, _sum and _count.
AECONN_API std::string metrics(std::span<const SchemeStatistics> all);
/// What the one above is given, for all transports of `registry` on `loop`, on its thread; lists of
/// schemes that somebody asked for are among them.
AECONN_API std::vector<SchemeStatistics> scheme_statistics(const Registry& registry,
                                                           ae::EventLoop& loop);
/// Of all transports of `registry` and its lists of schemes, on `loop` and on its thread.
AECONN_API std::string metrics(const Registry& registry, ae::EventLoop& loop);
/// The same summed over `loops`, asked on their threads; waits, so not on one of them.
AECONN_API std::string metrics(const Registry& registry, ae::Loops& loops);

/// Writes the format, and lets nothing else out: what is no name of a metric or a label throws
/// Error, values of labels and help texts are escaped.
class AECONN_API MetricsText {
 public:
  /// What kind of number it is (# TYPE).
  enum class Type {
    kCounter,    ///< never falls while the process lives
    kGauge,      ///< what it is now
    kHistogram,  ///< counts by size, with their sum
    kUntyped,    ///< nobody knows
  };
  using Labels = std::vector<std::pair<std::string, std::string>>;  ///< name and value of each

  /// Begins the metric that the next samples are of. Throws Error if it was begun before.
  void begin(std::string_view name, Type type, std::string_view help);
  /// Of a histogram, that has counted how many took each of Histogram::kBounds or less, how many
  /// there were, and what they took together. Throws as sample().
  void histogram(const Labels& labels, std::span<const std::uint64_t> up_to, std::uint64_t count,
                 std::uint64_t sum_ns);
  /// Throws Error if no metric was begun.
  void sample(const Labels& labels, std::uint64_t value);
  const std::string& text() const noexcept { return text_; }  ///< all that was written

 private:
  void sample(std::string_view suffix, const Labels& labels, std::string_view value);
  std::string text_, name_;
  std::vector<std::string> begun_;
};

}}  // namespace conn
