// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// What makes a figure repeatable and what it cost: this program, its machine, its use of both.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "ae/loops.h"
#include "ae/spin.h"
#include "conn/connection.h"
#include "fields.h"

namespace perf {

/// Where a figure comes from. Texts are empty where unknown.
struct Facts {
  std::string version, kernel;
  unsigned processors = 0;
  std::string device;  ///< the RDMA device, else the network interface
  std::optional<std::uint64_t> mtu;
  std::string path;     ///< Connection::path() of one connection
  std::string options;  ///< of the command line

  /// Of this process, without what only a connection tells.
  static Facts of_process(std::string options);
  /// Adds what `connection` tells of its way.
  void add_way(const conn::Connection& connection);
  void store(Fields& fields) const;
  static Facts load(const Fields& fields);
};

/// What this process has used so far. No value where the kernel does not tell.
struct Usage {
  std::optional<std::uint64_t> cpu_ns, system_calls;
  std::optional<std::uint64_t> resident, pinned, descriptors;  ///< bytes, bytes, count
  /// Of a loop that was asked to spin.
  std::optional<std::uint64_t> busy_ns = {}, spun_ns = {}, slept_ns = {};
  std::optional<std::uint64_t> spin_hits = {}, spin_misses = {}, spin_probes = {};
  std::optional<std::uint64_t> spin_budget_ns = {};  ///< now

  /// Nothing, of a loop that was never asked to spin.
  void add_loop(const ae::LoopTimes& times);

  void store(Fields& fields) const;
  static Usage load(const Fields& fields);
  /// What was used since `before`; memory and descriptors may have shrunk, which counts as 0.
  Usage since(const Usage& before) const;
};

/// Measures this process. Any thread may ask it.
class Meter {
 public:
  /// The system calls of the calling thread count.
  Meter();
  /// Those of the loops' threads count.
  explicit Meter(ae::Loops& loops);
  Meter(const Meter&) = delete;
  Meter& operator=(const Meter&) = delete;
  ~Meter();

  /// CPU time and system calls.
  Usage work() const;
  /// And memory and descriptors, which take reading in /proc.
  Usage everything() const;
  /// Why there is no count of system calls; empty if there is one.
  const std::string& why_no_calls() const noexcept { return why_no_calls_; }

 private:
  void count_this_thread();
  std::string why_no_calls_;
  std::vector<int> calls_;  // for each thread a perf event that counts raw_syscalls:sys_enter
};

}  // namespace perf
