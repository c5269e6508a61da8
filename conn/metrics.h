#pragma once
// Statistics in the text format that Prometheus reads (version 0.0.4), for a program that serves
// them where it likes.

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ae/loops.h"
#include "conn/connection_type.h"
#include "conn/registry.h"

namespace conn {

/// What ConnectionType::statistics() said of one transport on one loop.
struct SchemeStatistics {
  std::string scheme;
  Statistics statistics;
};

/// Content-Type of an HTTP answer with this text.
inline constexpr std::string_view kMetricsContentType = "text/plain; version=0.0.4; charset=utf-8";

/// Each statistic once with HELP and TYPE, then a line for each scheme (label `scheme`), and for
/// each device where it is one of a device (label `device`). Of one scheme that is there several
/// times, as with several loops, values are added up; those that belong to the process are not.
/// Counters end in _total and never fall as long as the loops live.
std::string metrics(std::span<const SchemeStatistics> all);
/// Of all transports of `registry` on `loop`, on its thread. Lists of schemes are not in it: add
/// theirs, if there are some, and call the one above.
std::string metrics(const Registry& registry, ae::EventLoop& loop);
/// The same summed over `loops`, asked on their threads; waits, so not on one of them.
std::string metrics(const Registry& registry, ae::Loops& loops);

/// Writes the format, and lets nothing else out: what is no name of a metric or a label throws
/// Error, values of labels and help texts are escaped.
class MetricsText {
 public:
  enum class Type { kCounter, kGauge, kUntyped };
  using Labels = std::vector<std::pair<std::string, std::string>>;

  /// Begins the metric that the next samples are of. Throws Error if it was begun before.
  void begin(std::string_view name, Type type, std::string_view help);
  /// Throws Error if no metric was begun.
  void sample(const Labels& labels, std::uint64_t value);
  const std::string& text() const noexcept { return text_; }

 private:
  std::string text_, name_;
  std::vector<std::string> begun_;
};

}  // namespace conn
