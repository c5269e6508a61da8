// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// What the system says about room for a thread that spins.

#include "ae/abi.h"
#include "ae/spin/spin_governor.h"

namespace ae { inline namespace AECONN_ABI {

/// The processors that the calling thread may use, or the process's first thread if those are more;
/// and the CPU quota of the process (cgroup's cpu.max, not looked at with every call).
/// What the system does not tell is no hindrance; of spins it says nothing.
class SpinEnvironment {
 public:
  SpinRoom::Seen look() noexcept;

 private:
  unsigned looks_ = 0;
  bool quota_ = false;
};

/// Whether "MAX PERIOD", the text of cpu.max, allows less than one processor.
bool is_below_one_processor(const char* cpu_max) noexcept;

}}  // namespace ae
