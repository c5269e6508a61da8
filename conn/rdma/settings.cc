#include "conn/rdma/settings.h"

#include <unistd.h>

#include "conn/error.h"
#include "conn/spin_option.h"

namespace conn::rdma {
namespace {

using std::chrono::hours;
using std::chrono::milliseconds;

Isolation parse_isolation(const std::string& text) {
  if (text == "auto") return Isolation::kAuto;
  if (text == "connection") return Isolation::kConnection;
  if (text == "window") return Isolation::kWindow;
  if (text == "none") return Isolation::kNone;
  throw Error("isolation=" + text + ": use auto, connection, window or none");
}

// What is registered cannot be swapped out: more than half of the memory would starve the rest.
std::uint64_t half_of_memory() {
  static const long pages = sysconf(_SC_PHYS_PAGES), size = sysconf(_SC_PAGESIZE);
  if (pages <= 0 || size <= 0) return 0;
  return static_cast<std::uint64_t>(pages) * static_cast<std::uint64_t>(size) / 2;
}

std::uint32_t u32(std::uint64_t value) { return static_cast<std::uint32_t>(value); }

}  // namespace

Settings Settings::from(const Options& o) {
  o.only("rdma", {"window",
                  "max-window",
                  "max-windows",
                  "max-peer-window",
                  "send-buffer",
                  "max-send-buffer",
                  "send-queue",
                  "receive-queue",
                  "shared-receive-queue",
                  "inline",
                  "read-budget",
                  "accept-batch",
                  "backlog",
                  "max-connections",
                  "memory-limit",
                  "control-rate",
                  "control-burst",
                  "keepalive",
                  "connect-timeout",
                  "accept-timeout",
                  "linger",
                  "end-linger",
                  "spin",
                  "spin-max",
                  "sleep-cost",
                  "sleep-latency",
                  "isolation",
                  "in-place",
                  "comp-vector",
                  "device",
                  "source",
                  "min-rnr-timer",
                  "ack-timeout",
                  "retry-count"});
  constexpr std::uint64_t kMaxWindow = 1u << 30;
  Settings s;
  s.window = u32(o.bytes("window", s.window, 16, kMaxWindow));
  s.max_window = std::max(s.max_window, s.window);
  s.max_window = u32(o.bytes("max-window", s.max_window, s.window, kMaxWindow));
  s.max_windows = u32(o.number("max-windows", s.max_windows, 2, WindowLine::kSlots));
  s.max_peer_window = u32(o.bytes("max-peer-window", s.max_peer_window, 4096, kMaxWindow));
  s.send_buffer = u32(o.bytes("send-buffer", s.send_buffer, 4096, kMaxWindow));
  // Who says how much means it.
  if (o.has("send-buffer")) s.max_send_buffer = s.send_buffer;
  s.max_send_buffer = u32(o.bytes("max-send-buffer", s.max_send_buffer, s.send_buffer, kMaxWindow));
  s.send_queue = u32(o.number("send-queue", s.send_queue, 8, 16384));
  s.receive_queue = u32(o.number("receive-queue", s.receive_queue, 16, 16384));
  s.shared_receive_queue = u32(o.number("shared-receive-queue", s.shared_receive_queue, 64, 16384));
  s.inline_data = u32(o.bytes("inline", s.inline_data, 0, 1024));
  s.read_budget = u32(o.bytes("read-budget", s.read_budget, 4096, kMaxWindow));
  s.accept_batch = u32(o.number("accept-batch", s.accept_batch, 1, 10000));
  s.backlog = u32(o.number("backlog", s.backlog, 1, 65535));
  s.max_connections = Quota::parse(o);
  s.memory_limit = o.bytes("memory-limit", half_of_memory(), 0, std::uint64_t{1} << 50);
  s.control_rate = u32(o.number("control-rate", s.control_rate, 1, 1000000000));
  s.control_burst = u32(o.number("control-burst", s.control_burst, 64, 1000000000));
  s.keepalive = o.duration("keepalive", s.keepalive, ae::Duration::zero(), hours(24));
  s.connect_timeout = o.duration("connect-timeout", s.connect_timeout, milliseconds(1), hours(1));
  s.accept_timeout = o.duration("accept-timeout", s.accept_timeout, milliseconds(1), hours(1));
  s.linger = o.duration("linger", s.linger, ae::Duration::zero(), hours(1));
  s.end_linger = EndLinger::parse(o);
  s.spin = spin_from(o);
  s.isolation = parse_isolation(o.text("isolation", "auto"));
  s.in_place = o.flag("in-place", s.in_place);
  if (o.text("comp-vector", "auto") != "auto")
    s.completion_vector = static_cast<int>(o.number("comp-vector", 0, 0, 65535));
  s.device = o.text("device", "");
  s.source = o.text("source", "");
  s.timeouts.min_rnr_timer =
      static_cast<std::uint8_t>(o.number("min-rnr-timer", s.timeouts.min_rnr_timer, 1, 31));
  s.timeouts.ack_timeout =
      static_cast<std::uint8_t>(o.number("ack-timeout", s.timeouts.ack_timeout, 1, 31));
  s.timeouts.retry_count =
      static_cast<std::uint8_t>(o.number("retry-count", s.timeouts.retry_count, 0, 7));
  return s;
}

StreamConfig Settings::stream(Role role) const {
  StreamConfig config;
  config.role = role;
  config.window = window;
  config.max_window = max_window;
  config.max_windows = max_windows;
  config.max_peer_window = max_peer_window;
  config.control_rate = control_rate;
  config.control_burst = control_burst;
  config.keepalive = keepalive;
  return config;
}

}  // namespace conn::rdma
