// SPDX-License-Identifier: BSD-3-Clause
#include "conn/metrics.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <iterator>
#include <map>
#include <optional>

#include "conn/error.h"
#include "conn/histogram.h"

namespace conn { inline namespace AECONN_ABI {

namespace {

using Type = MetricsText::Type;

enum class Of { kLoop, kProcess, kDevice };

struct Row {
  // Name of the statistic. For a statistic of a device, the name without the device's name before
  // it.
  std::string_view statistic;
  std::string_view metric;  // name of the metric without the prefix aeconn_
  Type type;
  Of of;
  std::string_view help;
};

constexpr auto kCounter = Type::kCounter;
constexpr auto kGauge = Type::kGauge;

constexpr std::array kRows = {
    Row{"open", "connections_open", kGauge, Of::kLoop,
        "Connections that exist now, lingering ones included."},
    Row{"accepted", "connections_accepted_total", kCounter, Of::kLoop, "Connections accepted."},
    Row{"connected", "connections_connected_total", kCounter, Of::kLoop,
        "Outgoing connections established."},
    Row{"failed", "connections_failed_total", kCounter, Of::kLoop,
        "Connections that ended with an error."},
    Row{"closed", "connections_closed_total", kCounter, Of::kLoop,
        "Connections closed, whichever side ended them."},
    Row{"accept_errors", "accept_errors_total", kCounter, Of::kLoop,
        "Pending connections lost, or delayed because descriptors ran out."},
    Row{"refused", "connections_refused_total", kCounter, Of::kLoop,
        "Incoming connections refused because of max-connections."},
    Row{"bytes_read", "read_bytes_total", kCounter, Of::kLoop, "Bytes that programs read."},
    Row{"bytes_written", "written_bytes_total", kCounter, Of::kLoop, "Bytes that programs wrote."},
    Row{"short_writes", "short_writes_total", kCounter, Of::kLoop,
        "Partial writes over this transport, including those of no bytes."},
    // Rows for statistics of lists of schemes (transports that are tried in order).
    Row{"fallbacks", "fallbacks_total", kCounter, Of::kLoop,
        "Connections established with another scheme of a list than the first."},
    // Rows for statistics of the transport tls.
    Row{"handshakes", "tls_handshakes_total", kCounter, Of::kLoop, "TLS handshakes completed."},
    Row{"resumed", "tls_resumed_total", kCounter, Of::kLoop,
        "TLS handshakes that resumed a session."},
    Row{"handshaking", "tls_handshaking", kGauge, Of::kLoop, "TLS handshakes in progress."},
    Row{"handshake_failures", "tls_handshake_failures_total", kCounter, Of::kLoop,
        "TLS handshakes that failed."},
    Row{"handshake_timeouts", "tls_handshake_timeouts_total", kCounter, Of::kLoop,
        "TLS handshakes that timed out."},
    Row{"handshakes_evicted", "tls_handshakes_evicted_total", kCounter, Of::kLoop,
        "TLS handshakes dropped in favour of newer ones."},
    Row{"handshake_thread_steps", "tls_handshake_thread_steps_total", kCounter, Of::kLoop,
        "Steps of TLS handshakes that threads have run (handshake-threads)."},
    Row{"reloads", "tls_reloads_total", kCounter, Of::kLoop,
        "Times that changed TLS files were read again (reload=auto)."},
    Row{"reload_failures", "tls_reload_failures_total", kCounter, Of::kLoop,
        "Times that changed TLS files could not be used (reload=auto)."},
    Row{"message_floods", "tls_message_floods_total", kCounter, Of::kLoop,
        "TLS connections ended because of too many messages without data."},
    Row{"bytes_gathered", "tls_gathered_bytes_total", kCounter, Of::kLoop,
        "Bytes copied to make one TLS record of several pieces."},
    Row{"sessions", "tls_sessions", kGauge, Of::kProcess, "TLS sessions in the cache."},
    Row{"sessions_dropped", "tls_sessions_dropped_total", kCounter, Of::kProcess,
        "TLS sessions dropped from the cache."},
    Row{"certificates_end", "tls_certificates_end_timestamp_seconds", kGauge, Of::kProcess,
        "Unix time at which the first of this end's certificates ends; 0: it has none."},
    // Rows for statistics of the transport shm.
    Row{"hellos", "shm_hellos_total", kCounter, Of::kLoop, "Clients whose hello was accepted."},
    Row{"hello_failures", "shm_hello_failures_total", kCounter, Of::kLoop,
        "Clients refused because of their hello, or without one."},
    Row{"peer_errors", "shm_peer_errors_total", kCounter, Of::kLoop,
        "Connections ended because the peer violated the protocol."},
    Row{"bells_sent", "shm_bells_sent_total", kCounter, Of::kLoop, "Times that a peer was woken."},
    Row{"bells_had", "shm_bells_received_total", kCounter, Of::kLoop,
        "Times that a peer woke this end."},
    Row{"wakes_in_vain", "shm_wakes_in_vain_total", kCounter, Of::kLoop,
        "Times that there was nothing new after that."},
    Row{"ring_bytes", "shm_ring_bytes_total", kCounter, Of::kLoop,
        "Bytes of the rings of all connections so far."},
    // Rows for statistics of the transport rdma.
    Row{"registered_bytes", "rdma_registered_bytes", kGauge, Of::kProcess,
        "Bytes of memory registered with RDMA devices."},
    Row{"teardown_failures", "rdma_teardown_failures_total", kCounter, Of::kProcess,
        "RDMA objects that could not be destroyed."},
    Row{"cm_events", "rdma_cm_events_total", kCounter, Of::kLoop, "Events of rdma_cm."},
    Row{"doorbells", "rdma_doorbells_total", kCounter, Of::kLoop,
        "Calls that posted work requests."},
    Row{"work_requests", "rdma_work_requests_total", kCounter, Of::kLoop, "Work requests posted."},
    Row{"inline_sends", "rdma_inline_sends_total", kCounter, Of::kLoop,
        "Work requests into which their bytes were copied."},
    Row{"control_sent", "rdma_control_sent_total", kCounter, Of::kLoop, "Control messages sent."},
    Row{"control_received", "rdma_control_received_total", kCounter, Of::kLoop,
        "Control messages received."},
    Row{"windows", "rdma_windows_total", kCounter, Of::kLoop, "Receive windows created."},
    Row{"protocol_errors", "rdma_protocol_errors_total", kCounter, Of::kLoop,
        "Connections ended because the peer violated the protocol."},
    Row{"peers_dead", "rdma_peers_dead_total", kCounter, Of::kLoop,
        "Connections ended because the peer was silent or did not acknowledge."},
    Row{"rejected", "rdma_rejected_total", kCounter, Of::kLoop, "Incoming connections rejected."},
    Row{"control_floods", "rdma_control_floods_total", kCounter, Of::kLoop,
        "Connections ended because of too many control messages."},
    Row{"peer_windows_refused", "rdma_peer_windows_refused_total", kCounter, Of::kLoop,
        "Connections ended because the peer offered an invalid window."},
    Row{"memory_refusals", "rdma_memory_refusals_total", kCounter, Of::kLoop,
        "Allocations refused because of memory-limit."},
    Row{"bytes_copied_in", "rdma_copied_in_bytes_total", kCounter, Of::kLoop,
        "Bytes copied out of receive windows."},
    Row{"bytes_copied_out", "rdma_copied_out_bytes_total", kCounter, Of::kLoop,
        "Bytes copied into send buffers."},
    Row{"resumes", "rdma_resumes_total", kCounter, Of::kLoop,
        "Connections that went on over a new path."},
    Row{"paths_lost", "rdma_paths_lost", kGauge, Of::kLoop, "Connections without a path now."},
    Row{"resumes_refused", "rdma_resumes_refused_total", kCounter, Of::kLoop,
        "Requests for a new path that were refused."},
    Row{"bytes_resent", "rdma_resent_bytes_total", kCounter, Of::kLoop,
        "Bytes sent again after the loss of a path."},
    Row{"sessions_forgotten", "rdma_sessions_forgotten_total", kCounter, Of::kLoop,
        "Connections without a path that ended because their peers had closed."},
    Row{"room_for_connections", "rdma_room_for_connections", kGauge, Of::kProcess,
        "Connections that the tightest limit allowed when the last listener started; 0: "
        "unknown."},
    Row{"limits_too_low", "rdma_limits_too_low", kGauge, Of::kProcess,
        "Limits that were too low for the connections that the last listener may accept."},
    Row{"prepared", "rdma_prepared", kGauge, Of::kLoop,
        "Queue pairs prepared for incoming connections (option prepared)."},
    Row{"prepared_used", "rdma_prepared_used_total", kCounter, Of::kLoop,
        "Connections that used a prepared queue pair."},
    // Rows for statistics of a device, which are recognized by the end of the statistic's name. A
    // row whose name is the end of another row's name must come after that row.
    Row{"_queue_pairs", "rdma_queue_pairs", kGauge, Of::kDevice, "Queue pairs that exist now."},
    Row{"_completion_events", "rdma_completion_events_total", kCounter, Of::kDevice,
        "Completion events handled."},
    Row{"_completion_queues", "rdma_completion_queues", kGauge, Of::kDevice,
        "Completion queues that exist now."},
    Row{"_completions", "rdma_completions_total", kCounter, Of::kDevice, "Completions handled."},
    Row{"_arms", "rdma_arms_total", kCounter, Of::kDevice, "Times a completion queue was armed."},
    Row{"_async_events", "rdma_async_events_total", kCounter, Of::kDevice,
        "Asynchronous events of the device."},
    Row{"_receive_shortages", "rdma_receive_shortages_total", kCounter, Of::kDevice,
        "Shortages of receives in the shared receive queue."},
    Row{"_receives_lost", "rdma_receives_lost_total", kCounter, Of::kDevice,
        "Receives of the shared receive queue that never completed."},
};

// Counters whose metric has one more label: the label's value is the rest of the statistic's name.
constexpr struct {
  std::string_view statistic, metric, label, help;
} kLabelled[] = {
    {"fallback_", "aeconn_schemes_not_taken_total", "reason",
     "Schemes of a list that were skipped, by reason."},
    {"connect_failed_", "aeconn_connects_failed_total", "reason",
     "Calls of connect() that failed, by reason."},
    {"stalls_", "aeconn_rdma_stalls_total", "cause",
     "Times that a connection with bytes to send had to stop, by what it waited for."},
    {"registrations_", "aeconn_rdma_registrations_total", "cause",
     "Registrations of memory with RDMA devices, by what it is for."},
};

constexpr struct {
  std::string_view statistic, metric, help;
} kTimes[] = {
    {"connect_time_", "aeconn_connect_seconds",
     "Time from connect() until the connection was established."},
    {"accept_time_", "aeconn_accept_seconds",
     "Time from accepting a connection until it was established, if a handshake follows."},
};

/// Formats a duration of `ns` nanoseconds as Prometheus does, in seconds.
std::string seconds(std::uint64_t ns) {
  std::string digits = std::to_string(ns % 1'000'000'000);
  digits.insert(0, 9 - digits.size(), '0');
  while (!digits.empty() && digits.back() == '0') digits.pop_back();
  return std::to_string(ns / 1'000'000'000) + (digits.empty() ? "" : ".") + digits;
}

bool is_name(std::string_view name, bool colon) {
  const auto first = [&](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || (colon && c == ':');
  };
  return !name.empty() && first(name[0]) && std::all_of(name.begin(), name.end(), [&](char c) {
    return first(c) || (c >= '0' && c <= '9');
  });
}

void append_escaped(std::string& out, std::string_view text, bool quotes) {
  std::string escaped;
  for (const char c : text) {
    if (c == '\\')
      escaped += "\\\\";
    else if (c == '\n')
      escaped += "\\n";
    else if (c == '"' && quotes)
      escaped += "\\\"";
    else
      escaped += c;
  }
  // Makes the text printable, because Prometheus rejects the whole text if any of it is invalid
  // UTF-8.
  out += printable(std::move(escaped));
}

struct Times {
  std::array<std::uint64_t, Histogram::kBounds.size()> up_to{};
  std::uint64_t count = 0, sum_ns = 0;
};

struct Metric {
  Type type;
  std::string help;
  std::map<MetricsText::Labels, std::uint64_t> samples;
  std::map<MetricsText::Labels, Times> times;  // samples of a histogram; empty for other types
};

std::uint64_t* part_of(Times& times, std::string_view name) {
  if (name == "count") return &times.count;
  if (name == "sum_ns") return &times.sum_ns;
  for (std::size_t i = 0; i < Histogram::kBounds.size(); ++i)
    if (name == "le_" + std::to_string(Histogram::kBounds[i])) return &times.up_to[i];
  return nullptr;
}

/// If the statistic is a part of a histogram, adds `value` to that histogram in `sorted` and
/// returns true. Otherwise returns false.
bool add_time(std::map<std::string, Metric>& sorted, const std::string& scheme,
              std::string_view statistic, std::uint64_t value) {
  for (const auto& [prefix, metric, help] : kTimes) {
    if (!statistic.starts_with(prefix)) continue;
    Metric& all =
        sorted.try_emplace(std::string(metric), Metric{Type::kHistogram, std::string(help), {}, {}})
            .first->second;
    std::uint64_t* const part =
        part_of(all.times[{{"scheme", scheme}}], statistic.substr(prefix.size()));
    if (part != nullptr) *part += value;
    return part != nullptr;
  }
  return false;
}

// The metric that a statistic belongs to, and its labels. A statistic without a row in kRows gets a
// metric of its own.
struct Place {
  std::string metric;
  Type type;
  Of of;
  std::string_view help;
  MetricsText::Labels labels;
};

/// Parses a statistic such as "mlx5_0_port1_hw_sent_pkts": the device, its port, and a counter of
/// that port. The prefix hw_ marks a counter from the device's hw_counters. Returns no value for
/// another kind of statistic.
std::optional<Place> port_place(const MetricsText::Labels& labels, std::string_view statistic) {
  constexpr std::string_view kPort = "_port", kHardware = "hw_";
  const std::size_t at = statistic.find(kPort);
  if (at == std::string_view::npos || at == 0) return std::nullopt;
  const std::string_view rest = statistic.substr(at + kPort.size());
  const std::size_t digits = std::min(rest.find_first_not_of("0123456789"), rest.size());
  if (digits == 0 || digits + 1 >= rest.size() || rest[digits] != '_') return std::nullopt;
  std::string_view counter = rest.substr(digits + 1);
  const bool hardware = counter.starts_with(kHardware);
  if (hardware) counter.remove_prefix(kHardware.size());
  Place place{hardware ? "aeconn_rdma_port_hw_counter_total" : "aeconn_rdma_port_counter_total",
              kCounter, Of::kProcess,
              hardware
                  ? "Increase of the kernel's hw_counters of a port since first use of the device."
                  : "Increase of the kernel's counters of a port since first use of the device.",
              labels};
  place.labels.emplace_back("device", statistic.substr(0, at));
  place.labels.emplace_back("port", rest.substr(0, digits));
  place.labels.emplace_back("counter", counter);
  return place;
}

Place place_of(const std::string& scheme, std::string_view statistic) {
  MetricsText::Labels labels = {{"scheme", scheme}};
  if (std::optional<Place> port = port_place(labels, statistic)) return std::move(*port);
  for (const Row& row : kRows) {
    const bool device = row.of == Of::kDevice;
    if (device ? !statistic.ends_with(row.statistic) || statistic.size() == row.statistic.size()
               : statistic != row.statistic)
      continue;
    if (device)
      labels.emplace_back("device", statistic.substr(0, statistic.size() - row.statistic.size()));
    return {"aeconn_" + std::string(row.metric), row.type, row.of, row.help, std::move(labels)};
  }
  for (const auto& [prefix, metric, label, help] : kLabelled) {
    if (!statistic.starts_with(prefix)) continue;
    labels.emplace_back(label, statistic.substr(prefix.size()));
    return {std::string(metric), kCounter, Of::kLoop, help, std::move(labels)};
  }
  std::string name = "aeconn_" + std::string(statistic);
  for (char& c : name)
    if (!is_name(std::string_view(&c, 1), false) && (c < '0' || c > '9')) c = '_';
  // The name must differ from those of the histograms and of their samples.
  for (const auto& times : kTimes)
    if (name.starts_with(times.metric)) name += '_';
  return {std::move(name), Type::kUntyped, Of::kLoop, "A statistic of this transport.",
          std::move(labels)};
}

std::string_view to_string(Type type) {
  switch (type) {
    case Type::kCounter:
      return "counter";
    case Type::kGauge:
      return "gauge";
    case Type::kHistogram:
      return "histogram";
    case Type::kUntyped:
      break;
  }
  return "untyped";
}

}  // namespace

void MetricsText::begin(std::string_view name, Type type, std::string_view help) {
  if (!is_name(name, true))
    throw Error("\"" + std::string(name) + "\" is not a valid name of a metric");
  std::vector<std::string> names = {std::string(name)};
  if (type == Type::kHistogram)
    for (const char* suffix : {"_bucket", "_sum", "_count"}) names.push_back(names[0] + suffix);
  for (const std::string& each : names)
    if (names_.contains(each)) throw Error("the metric " + each + " was already written");
  names_.insert(names.begin(), names.end());
  name_ = name;
  histogram_ = type == Type::kHistogram;
  written_.clear();
  text_ += "# HELP " + name_ + ' ';
  append_escaped(text_, help, false);
  text_ += "\n# TYPE " + name_ + ' ';
  text_ += to_string(type);
  text_ += '\n';
}

void MetricsText::sample(const Labels& labels, std::uint64_t value) {
  check(labels, false);
  sample({}, labels, std::to_string(value));
}

void MetricsText::histogram(const Labels& labels, std::span<const std::uint64_t> up_to,
                            std::uint64_t count, std::uint64_t sum_ns) {
  check(labels, true);
  Labels bucket = labels;
  std::string& bound = bucket.emplace_back("le", "").second;
  for (std::size_t i = 0; i < Histogram::kBounds.size() && i < up_to.size(); ++i) {
    bound = seconds(Histogram::kBounds[i]);
    sample("_bucket", bucket, std::to_string(up_to[i]));
  }
  bound = "+Inf";
  sample("_bucket", bucket, std::to_string(count));
  sample("_sum", labels, seconds(sum_ns));
  sample("_count", labels, std::to_string(count));
}

/// Throws Error unless a sample with these labels (if `histogram` is true: a histogram) may be
/// added to the current metric. Records the labels as used.
void MetricsText::check(Labels labels, bool histogram) {
  if (name_.empty()) throw Error("a sample requires a metric");
  if (histogram != histogram_)
    throw Error("the metric " + name_ + (histogram_ ? " is a histogram" : " is no histogram"));
  std::sort(labels.begin(), labels.end());
  for (std::size_t i = 0; i < labels.size(); ++i) {
    const std::string& label = labels[i].first;
    if (!is_name(label, false) || label.starts_with("__") || (histogram && label == "le"))
      throw Error("\"" + label + "\" is not a valid name of a label");
    if (i != 0 && label == labels[i - 1].first) throw Error("the label " + label + " occurs twice");
  }
  // The labels are compared in the form in which sample() writes them.
  for (auto& [label, value] : labels) value = printable(std::move(value));
  if (!written_.insert(std::move(labels)).second)
    throw Error("the metric " + name_ + " already has a sample with these labels");
}

void MetricsText::sample(std::string_view suffix, const Labels& labels, std::string_view value) {
  text_ += name_;
  text_ += suffix;
  char before = '{';
  for (const auto& [label, text] : labels) {
    text_ += before;
    before = ',';
    text_ += label + "=\"";
    append_escaped(text_, text, true);
    text_ += '"';
  }
  if (!labels.empty()) text_ += '}';
  text_ += ' ';
  text_ += value;
  text_ += '\n';
}

std::string metrics(std::span<const SchemeStatistics> all) {
  std::map<std::string, Metric> sorted;
  for (const auto& [scheme, statistics] : all) {
    for (const auto& [statistic, value] : statistics) {
      if (add_time(sorted, scheme, statistic, value)) continue;
      Place place = place_of(scheme, statistic);
      Metric& metric =
          sorted.try_emplace(place.metric, Metric{place.type, std::string(place.help), {}, {}})
              .first->second;
      std::uint64_t& sum = metric.samples[std::move(place.labels)];
      sum = place.of == Of::kProcess ? std::max(sum, value) : sum + value;
    }
  }
  MetricsText out;
  for (const auto& [name, metric] : sorted) {
    out.begin(name, metric.type, metric.help);
    for (const auto& [labels, value] : metric.samples) out.sample(labels, value);
    for (const auto& [labels, times] : metric.times)
      out.histogram(labels, times.up_to, times.count, times.sum_ns);
  }
  return out.text();
}

std::vector<SchemeStatistics> scheme_statistics(const Registry& registry, ae::EventLoop& loop) {
  std::vector<SchemeStatistics> all;
  for (const ConnectionType* type : registry.types_and_lists())
    all.push_back({std::string(type->name()), type->statistics(loop)});
  return all;
}

std::string metrics(const Registry& registry, ae::EventLoop& loop) {
  return metrics(scheme_statistics(registry, loop));
}

std::string metrics(const Registry& registry, ae::Loops& loops) {
  std::vector<std::vector<SchemeStatistics>> of_loops(loops.size());
  loops.ask_each([&](ae::EventLoop& loop, std::size_t index) {
    of_loops[index] = scheme_statistics(registry, loop);
  });
  std::vector<SchemeStatistics> all;
  for (std::vector<SchemeStatistics>& each : of_loops)
    std::move(each.begin(), each.end(), std::back_inserter(all));
  return metrics(all);
}

}}  // namespace conn
