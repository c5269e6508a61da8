// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Reads from the system whether it has CPU to spare for a thread that spins.

#include "ae/abi.h"
#include "ae/spin/spin_governor.h"

namespace ae { inline namespace AECONN_ABI {

/// Reads the number of processors that the calling thread may use, or the process's first thread if
/// that is more, and the CPU quota of the process (the cgroup's cpu.max, not read in every call).
/// Information that the system does not provide counts as no restriction. The members of Seen about
/// spins are not set.
class SpinEnvironment {
 public:
  SpinRoom::Seen look() noexcept;

 private:
  unsigned looks_ = 0;
  bool quota_ = false;
};

/// Whether the text of cpu.max, "MAX PERIOD", allows less than one processor.
bool is_below_one_processor(const char* cpu_max) noexcept;

}}  // namespace ae
