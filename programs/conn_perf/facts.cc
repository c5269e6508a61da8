// SPDX-License-Identifier: BSD-3-Clause
#include "facts.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <linux/perf_event.h>
#include <malloc.h>
#include <netinet/in.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <cstring>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <memory>
#include <mutex>
#include <thread>

#include "conn/endpoint.h"

namespace perf {
namespace {

/// The interface that has the address "10.0.0.1:7000" or "[::1]:7000"; "" if none has it.
std::string interface_of(const std::string& address) {
  std::string host = address.substr(0, address.rfind(':'));
  if (host.starts_with('[')) host = host.substr(1, host.size() - 2);
  host = host.substr(0, host.find('%'));
  ifaddrs* first = nullptr;
  if (host.empty() || getifaddrs(&first) != 0) return {};
  const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> owner(first, freeifaddrs);
  for (const ifaddrs* at = first; at != nullptr; at = at->ifa_next) {
    if (at->ifa_addr == nullptr) continue;
    char text[INET6_ADDRSTRLEN] = "";
    if (at->ifa_addr->sa_family == AF_INET) {
      sockaddr_in in;
      std::memcpy(&in, at->ifa_addr, sizeof in);
      inet_ntop(AF_INET, &in.sin_addr, text, sizeof text);
    } else if (at->ifa_addr->sa_family == AF_INET6) {
      sockaddr_in6 in;
      std::memcpy(&in, at->ifa_addr, sizeof in);
      inet_ntop(AF_INET6, &in.sin6_addr, text, sizeof text);
    }
    if (host == text) return at->ifa_name;
  }
  return {};
}

template <class Value>
std::optional<Value> read_first(const std::string& path) {
  std::ifstream file(path);
  Value value;
  if (!(file >> value)) return std::nullopt;
  return value;
}

/// Parses the byte count from a line "VmRSS:    1234 kB".
std::optional<std::uint64_t> status_bytes(const std::string& status, std::string_view key) {
  const std::size_t at = status.find(std::string(key) + ":");
  if (at == std::string::npos) return std::nullopt;
  return std::strtoull(status.c_str() + at + key.size() + 1, nullptr, 10) * 1024;
}

/// Returns a descriptor that counts system calls of this thread; -1 on failure, with the reason in
/// `why`.
int count_system_calls(std::string& why) {
  std::optional<std::uint64_t> id;
  for (const char* mount : {"/sys/kernel/tracing", "/sys/kernel/debug/tracing"}) {
    if (!id)
      id = read_first<std::uint64_t>(std::string(mount) + "/events/raw_syscalls/sys_enter/id");
  }
  if (!id) {
    why =
        "system calls are not counted: no tracepoint raw_syscalls:sys_enter can be read (tracefs "
        "mounted? root?)";
    return -1;
  }
  perf_event_attr attributes{};
  attributes.type = PERF_TYPE_TRACEPOINT;
  attributes.size = sizeof attributes;
  attributes.config = *id;
  const auto fd =
      static_cast<int>(syscall(SYS_perf_event_open, &attributes, 0, -1, -1, PERF_FLAG_FD_CLOEXEC));
  if (fd < 0) why = "system calls are not counted: perf_event_open: " + conn::errno_text(errno);
  return fd;
}

std::optional<std::uint64_t> difference(std::optional<std::uint64_t> now,
                                        std::optional<std::uint64_t> then) {
  if (!now || !then) return std::nullopt;
  return *now > *then ? *now - *then : 0;
}

}  // namespace

Facts Facts::of_process(std::string options) {
  Facts facts;
  facts.version = AECONN_VERSION;
  utsname system{};
  if (uname(&system) == 0) facts.kernel = std::string(system.sysname) + " " + system.release;
  facts.processors = std::thread::hardware_concurrency();
  facts.options = std::move(options);
  return facts;
}

void Facts::add_way(const conn::Connection& connection) {
  const std::string interface = interface_of(connection.local_address());
  device = interface;
  for (const auto& [key, value] : connection.info()) {
    if (key == "device" && !value.empty()) device = value;
  }
  path = connection.path();
  if (!interface.empty()) mtu = read_first<std::uint64_t>("/sys/class/net/" + interface + "/mtu");
}

void Facts::store(Fields& fields) const {
  fields.set("version", version);
  fields.set("kernel", kernel);
  fields.set("processors", std::uint64_t{processors});
  fields.set("device", device);
  fields.set("mtu", mtu);
  fields.set("path", path);
  fields.set("options", options.substr(0, 1024));
}

Facts Facts::load(const Fields& fields) {
  Facts facts;
  facts.version = fields.text("version");
  facts.kernel = fields.text("kernel");
  facts.processors = static_cast<unsigned>(fields.number("processors").value_or(0));
  facts.device = fields.text("device");
  facts.mtu = fields.number("mtu");
  facts.path = fields.text("path");
  facts.options = fields.text("options");
  return facts;
}

void Usage::store(Fields& fields) const {
  fields.set("cpu-ns", cpu_ns);
  fields.set("system-calls", system_calls);
  fields.set("resident", resident);
  fields.set("pinned", pinned);
  fields.set("descriptors", descriptors);
  fields.set("busy-ns", busy_ns);
  fields.set("spun-ns", spun_ns);
  fields.set("slept-ns", slept_ns);
  fields.set("spin-hits", spin_hits);
  fields.set("spin-misses", spin_misses);
  fields.set("spin-probes", spin_probes);
  fields.set("spin-budget-ns", spin_budget_ns);
}

void Usage::add_loop(const ae::LoopTimes& times) {
  if (times.busy + times.spun + times.slept == ae::Duration::zero()) return;
  const auto ns = [](ae::Duration time) { return static_cast<std::uint64_t>(time.count()); };
  busy_ns = ns(times.busy);
  spun_ns = ns(times.spun);
  slept_ns = ns(times.slept);
  spin_hits = times.spin_hits;
  spin_misses = times.spin_misses;
  spin_probes = times.spin_probes;
  spin_budget_ns = ns(times.spin_budget);
}

Usage Usage::load(const Fields& fields) {
  return {
      fields.number("cpu-ns"),      fields.number("system-calls"), fields.number("resident"),
      fields.number("pinned"),      fields.number("descriptors"),  fields.number("busy-ns"),
      fields.number("spun-ns"),     fields.number("slept-ns"),     fields.number("spin-hits"),
      fields.number("spin-misses"), fields.number("spin-probes"),  fields.number("spin-budget-ns")};
}

Usage Usage::since(const Usage& before) const {
  return {
      difference(cpu_ns, before.cpu_ns),           difference(system_calls, before.system_calls),
      difference(resident, before.resident),       difference(pinned, before.pinned),
      difference(descriptors, before.descriptors), difference(busy_ns, before.busy_ns),
      difference(spun_ns, before.spun_ns),         difference(slept_ns, before.slept_ns),
      difference(spin_hits, before.spin_hits),     difference(spin_misses, before.spin_misses),
      difference(spin_probes, before.spin_probes), spin_budget_ns};
}

Meter::Meter() { count_this_thread(); }
Meter::Meter(ae::Loops& loops) {
  std::mutex one_at_a_time;
  loops.on_each([&](ae::EventLoop&, std::size_t) {
    const std::lock_guard lock(one_at_a_time);
    count_this_thread();
  });
}
Meter::~Meter() {
  for (const int counter : calls_) close(counter);
}

void Meter::count_this_thread() {
  const int counter = count_system_calls(why_no_calls_);
  if (counter >= 0) calls_.push_back(counter);
}

Usage Meter::work() const {
  Usage usage;
  timespec time{};
  if (clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time) == 0) {
    usage.cpu_ns = static_cast<std::uint64_t>(time.tv_sec) * 1'000'000'000 +
                   static_cast<std::uint64_t>(time.tv_nsec);
  }
  if (!why_no_calls_.empty()) return usage;
  std::uint64_t all = 0;
  for (const int counter : calls_) {
    std::uint64_t calls = 0;
    if (read(counter, &calls, sizeof calls) != sizeof calls) return usage;
    all += calls;
  }
  usage.system_calls = all;
  return usage;
}

Usage Meter::everything() const {
  Usage usage = work();
#ifdef __GLIBC__
  malloc_trim(0);  // memory kept only for reuse does not belong to any connection
#endif
  std::ifstream file("/proc/self/status");
  const std::string status(std::istreambuf_iterator<char>(file), {});
  usage.resident = status_bytes(status, "VmRSS");
  usage.pinned = status_bytes(status, "VmPin");
  std::error_code error;
  std::uint64_t count = 0;
  for (std::filesystem::directory_iterator at("/proc/self/fd", error), end; !error && at != end;
       at.increment(error)) {
    ++count;
  }
  if (!error && count > 0) usage.descriptors = count - 1;  // one is the open directory itself
  return usage;
}

}  // namespace perf
