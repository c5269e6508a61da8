// SPDX-License-Identifier: BSD-3-Clause
#include "conn/rdma/config/settings.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <utility>

#include "ae/once.h"
#include "conn/error.h"
#include "conn/url/spin_option.h"

namespace conn { inline namespace AECONN_ABI { namespace rdma {
namespace {

using std::chrono::hours;
using std::chrono::milliseconds;

std::uint32_t u32(std::uint64_t value) { return static_cast<std::uint32_t>(value); }

constexpr std::uint64_t kMaxWindow = 1u << 30;

using Row = OptionRow;
constexpr OptionSide kBoth = OptionSide::kBoth, kListener = OptionSide::kListener;

constexpr std::array kIsolation{
    OptionWord{"auto", Isolation::kAuto}, OptionWord{"connection", Isolation::kConnection},
    OptionWord{"window", Isolation::kWindow}, OptionWord{"none", Isolation::kNone}};

std::vector<Row> window_rows(const Settings& d) {
  return {
      Row::bytes("window", kBoth, d.window, 16, kMaxWindow, "length of the first receive window"),
      Row::bytes("max-window", kBoth, d.max_window, 16, kMaxWindow,
                 "windows grow up to this, where they may change")
          .at_least("`window`"),
      Row::number("max-windows", kBoth, d.max_windows, 2, ReceiveWindowQueue::kSlots,
                  "receive windows at once, towards a peer that takes them ahead; others have two")
          .tuning(),
      Row::bytes("max-peer-window", kBoth, d.max_peer_window, 4096, kMaxWindow,
                 "a peer that offers a longer one is refused")
          .tuning(),
      Row::bytes("send-buffer", kBoth, d.send_buffer, 4096, kMaxWindow,
                 "bytes taken and not yet confirmed by the device"),
      Row::bytes("max-send-buffer", kBoth, d.max_send_buffer, 4096, kMaxWindow,
                 "the send buffer grows up to this where a stream gains by it")
          .by_default(size_words(d.max_send_buffer) + ", or `send-buffer` if that is given")
          .at_least("`send-buffer`"),
      Row::number("send-queue", kBoth, d.send_queue, flow::kLeastSendQueue, 16384,
                  "work requests; cut to what the device allows")
          .tuning(),
      Row::number("receive-queue", kBoth, d.receive_queue, 16, 16384,
                  "receives of a connection with a queue of its own")
          .tuning(),
      Row::number("shared-receive-queue", kBoth, d.shared_receive_queue, 64, 16384,
                  "receives that the connections of a loop share")
          .tuning(),
      Row::bytes("inline", kBoth, d.inline_data, 0, 1024,
                 "writes of this size are copied into the request, if the device can")
          .tuning(),
      Row::bytes("read-budget", kBoth, d.read_budget, 4096, kMaxWindow,
                 "bytes one connection may read in one iteration")
          .tuning(),
      Row::flag("in-place", kBoth, d.in_place,
                "peek() shows receive windows themselves, which the peer can still write"),
      Row::bytes("memory-limit", kBoth, d.memory_limit, 0, std::uint64_t{1} << 50,
                 "registered bytes of the process; 0: no limit")
          .by_default("half the memory")};
}

std::vector<Row> time_rows(const Settings& d) {
  constexpr ae::Duration kNone = ae::Duration::zero();
  std::vector<Row> rows{
      Row::duration("connect-timeout", OptionSide::kConnecting, d.connect_timeout, milliseconds(1),
                    hours(24), "for all of connect(): lookup and every address"),
      Row::duration("accept-timeout", kBoth, d.accept_timeout, milliseconds(1), hours(1),
                    "how long the peer's first window may take"),
      Row::duration("keepalive", kBoth, d.keepalive, kNone, hours(24),
                    "interval of keepalives; 0: none"),
      Row::duration("linger", kBoth, d.linger, kNone, hours(1),
                    "how long close() may deliver; 0: drops what is unsent"),
      EndLinger::row("as `linger`, where the loop ends under the connection"),
      IdleTimeout::row(),
      Row::flag(
          "resume", kBoth, d.resume,
          "a connection whose path is lost goes on over a new one; needs resume at both ends"),
      Row::duration("resume-time", kBoth, d.resume_time, milliseconds(100),
                    std::chrono::minutes(10),
                    "how long the new path may take; then the connection fails")};
  for (Row& row : spin_rows()) rows.push_back(std::move(row));
  return rows;
}

std::vector<Row> place_rows(const Settings& d) {
  return {Row::text("device", kBoth, "any", "a name",
                    "the address must belong to this device, as `rxe0`"),
          Row::text("source", OptionSide::kConnecting, "the route's", "an address",
                    "address to connect from"),
          spread_row(d.spread),
          Row::word("isolation", kBoth, kIsolation, d.isolation,
                    "who may reach whose receive windows with a guessed key"),
          Row::number("comp-vector", kBoth, 0, 0, 65535,
                      "vector of completions; auto: of N loops each its own")
              .or_word({"auto"})
              .tuning(),
          Row::number("accept-batch", kListener, d.accept_batch, 1, 10000,
                      "most handed over in one iteration")
              .tuning(),
          Row::number("backlog", kListener, d.backlog, 1, 65535,
                      "not yet handed over; more are rejected"),
          Row::number("prepared", kListener, d.prepared, 0, 10000,
                      "queue pairs made before they are needed, on each loop")
              .tuning(),
          Row::number("max-connections", kListener, d.max_connections, 1, Quota::kMost,
                      "of this listener; more are rejected")};
}

std::vector<Row> queue_pair_rows(const QpTimeouts& d) {
  return {Row::number("ack-timeout", kBoth, d.ack_timeout, 1, 31,
                      "a retry after 4.096 us * 2^n; 14 is 67 ms")
              .tuning(),
          Row::number("retry-count", kBoth, d.retry_count, 0, QpTimeouts::kMaybeForEver,
                      "retries before the peer counts as dead")
              .tuning()};
}

std::vector<FormerOption> former_options() {
  constexpr std::string_view kFixed = "leave it out, what a peer may send is a constant";
  std::vector<FormerOption> all{
      FormerOption::renamed("dscp", "traffic-class", 4), FormerOption::gone("control-rate", kFixed),
      FormerOption::gone("control-burst", kFixed),
      FormerOption::gone("min-rnr-timer", "leave it out, the pause is 0.64 ms")};
  for (const FormerOption& each : former_spin_options()) all.push_back(each);
  return all;
}

}  // namespace

std::uint64_t half_of_memory() noexcept {
  const long pages = sysconf(_SC_PHYS_PAGES), size = sysconf(_SC_PAGESIZE);
  if (pages <= 0 || size <= 0) return 0;
  return static_cast<std::uint64_t>(pages) * static_cast<std::uint64_t>(size) / 2;
}

const OptionTable& Settings::options() {
  return ae::once([] {
    const Settings d;  // the default value of every option
    return OptionTable("rdma",
                       {{"Windows and queues", window_rows(d)},
                        {"Times", time_rows(d)},
                        {"Devices, addresses, listeners", place_rows(d)},
                        {"The network under a connection", Fabric::rows()},
                        {"Time-outs of the queue pair", queue_pair_rows(d.timeouts)}},
                       former_options());
  });
}

Settings Settings::from(const Options& given) {
  options().only(given);
  OptionReader o(options(), given);
  Settings s;
  s.window = u32(o.number("window"));
  s.max_window = u32(o.number("max-window", std::max(s.max_window, s.window), s.window));
  s.max_windows = u32(o.number("max-windows"));
  s.max_peer_window = u32(o.number("max-peer-window"));
  s.send_buffer = u32(o.number("send-buffer"));
  // If send-buffer was set, the buffer does not grow, unless max-send-buffer was set as well.
  if (o.given("send-buffer")) s.max_send_buffer = s.send_buffer;
  s.max_send_buffer = u32(o.number("max-send-buffer", s.max_send_buffer, s.send_buffer));
  s.send_queue = u32(o.number("send-queue"));
  s.receive_queue = u32(o.number("receive-queue"));
  s.shared_receive_queue = u32(o.number("shared-receive-queue"));
  s.inline_data = u32(o.number("inline"));
  s.read_budget = u32(o.number("read-budget"));
  s.accept_batch = u32(o.number("accept-batch"));
  s.backlog = u32(o.number("backlog"));
  s.prepared = u32(o.number("prepared"));
  s.max_connections = o.number("max-connections");
  s.memory_limit = o.number("memory-limit");
  s.keepalive = o.duration("keepalive");
  s.connect_timeout = o.duration("connect-timeout");
  s.accept_timeout = o.duration("accept-timeout");
  s.linger = o.duration("linger");
  s.end_linger = o.duration("end-linger");
  s.idle_timeout = o.duration("idle-timeout");
  s.resume = o.flag("resume");
  s.resume_time = o.duration("resume-time");
  if (s.resume && s.keepalive == ae::Duration::zero())
    throw Error("resume=yes needs keepalive: without it the loss of an idle path is not noticed");
  s.spin = spin_from(o);
  s.isolation = o.pick("isolation", kIsolation);
  s.in_place = o.flag("in-place");
  if (!o.is_word("comp-vector")) s.completion_vector = static_cast<int>(o.number("comp-vector"));
  s.device = o.text("device");
  s.source = o.text("source");
  s.spread = spread_from(o);
  s.timeouts.ack_timeout = static_cast<std::uint8_t>(o.number("ack-timeout"));
  s.timeouts.retry_count = static_cast<std::uint8_t>(o.number("retry-count"));
  s.fabric = Fabric::from(o);
  o.finish();
  return s;
}

StreamConfig Settings::stream(Role role, std::uint64_t connection) const {
  StreamConfig config;
  config.connection = connection;
  config.role = role;
  config.window = window;
  config.max_window = max_window;
  config.max_windows = max_windows;
  config.max_peer_window = max_peer_window;
  config.keepalive = keepalive;
  return config;
}

}}}  // namespace conn::rdma
