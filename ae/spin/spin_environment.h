// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Finds out from the system whether there is CPU time to spare for a thread that spins.

#include "ae/abi.h"
#include "ae/spin/spin_governor.h"

namespace ae { inline namespace AECONN_ABI {

/// Reads from the system how many processors the calling thread may use, or the process's first
/// thread if that may use more; and whether the process has a CPU quota of less than one processor
/// (file cpu.max of its cgroup, which only some of the calls read). If the system does not provide
/// a value, no restriction is assumed. look() does not set the members `spun` and `lost` of Seen.
class SpinEnvironment {
 public:
  SpinRoom::Seen look() noexcept;

 private:
  unsigned looks_ = 0;
  bool quota_ = false;
};

/// Whether `cpu_max`, the content of a cgroup's file cpu.max ("MAX PERIOD"), allows less CPU time
/// than one processor has.
bool is_below_one_processor(const char* cpu_max) noexcept;

}}  // namespace ae
