// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Describes how a figure was measured, so that it can be repeated, and what it cost: program
// version, machine, and resource usage.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "ae/loops.h"
#include "ae/spin.h"
#include "conn/connection.h"
#include "fields.h"

namespace perf {

/// Where a figure was measured. Unknown texts are empty.
struct Facts {
  std::string version, kernel;
  unsigned processors = 0;
  std::string device;  ///< the RDMA device, else the network interface
  std::optional<std::uint64_t> mtu;
  std::string path;     ///< Connection::path() of one connection
  std::string options;  ///< the options of the command line

  /// Returns the facts of this process, without those that only a connection provides.
  static Facts of_process(std::string options);
  /// Adds the facts that `connection` provides: device, MTU and path.
  void add_way(const conn::Connection& connection);
  void store(Fields& fields) const;
  static Facts load(const Fields& fields);
};

/// Resources this process has used so far. Values that the kernel does not provide are absent.
struct Usage {
  std::optional<std::uint64_t> cpu_ns, system_calls;
  /// Bytes of resident and of pinned memory, and the number of open descriptors.
  std::optional<std::uint64_t> resident, pinned, descriptors;
  /// Spinning, in nanoseconds and counts; absent for a loop without spinning.
  std::optional<std::uint64_t> busy_ns = {}, spun_ns = {}, slept_ns = {};
  std::optional<std::uint64_t> spin_hits = {}, spin_misses = {}, spin_probes = {};
  std::optional<std::uint64_t> spin_budget_ns = {};  ///< current spin budget

  /// Adds the times of a loop; nothing if spinning was never enabled on it.
  void add_loop(const ae::LoopTimes& times);

  void store(Fields& fields) const;
  static Usage load(const Fields& fields);
  /// Returns the usage since `before`. Memory and descriptors may have shrunk, which counts as 0.
  Usage since(const Usage& before) const;
};

/// Measures this process. Thread-safe.
class Meter {
 public:
  /// Counts the system calls of the calling thread.
  Meter();
  /// Counts the system calls of the loops' threads.
  explicit Meter(ae::Loops& loops);
  Meter(const Meter&) = delete;
  Meter& operator=(const Meter&) = delete;
  ~Meter();

  /// Returns CPU time and system calls.
  Usage work() const;
  /// Returns CPU time, system calls, memory and descriptors. Reading the last two requires /proc.
  Usage everything() const;
  /// Returns why system calls are not counted; empty if they are.
  const std::string& why_no_calls() const noexcept { return why_no_calls_; }

 private:
  void count_this_thread();
  std::string why_no_calls_;
  std::vector<int> calls_;  // one perf event for raw_syscalls:sys_enter per thread
};

}  // namespace perf
