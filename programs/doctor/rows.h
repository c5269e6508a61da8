// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The doctor's rows: pure functions from facts to a verdict, in order of dependency. docs/doctor.md
// describes the reason for each.

#include <cstdint>
#include <span>

#include "conn/capacity.h"
#include "programs/doctor/facts.h"
#include "programs/doctor/verdict.h"

namespace doctor {

// Rows about the kernel and its modules, in rows_kernel.cc
Verdict build(const Facts& facts);      ///< whether this program includes rdma
Verdict libraries(const Facts& facts);  ///< libibverbs and librdmacm
Verdict modules(const Facts& facts);    ///< ib_core, ib_uverbs, rdma_ucm
Verdict device_files(const Facts& facts);
Verdict devices(const Facts& facts);  ///< presence, drivers, support for connections
Verdict ports(const Facts& facts);    ///< link states
// Rows about the network, in rows_network.cc
Verdict packets(const Facts& facts);    ///< the MTU of each port
Verdict gids(const Facts& facts);       ///< presence, and whether they are usable here
Verdict addresses(const Facts& facts);  ///< which address belongs to which device
Verdict marking(const Facts& facts);    ///< settings of rdma_cm: RoCE version, type of service
// Rows about the machine, in rows_machine.cc
Verdict processors(const Facts& facts);   ///< locality to the device, and number
Verdict descriptors(const Facts& facts);  ///< how many connections the limit of descriptors allows
/// Compares a limit with `asked_for` connections. A limit that allows some but not all of them is a
/// failure only if `all` is set.
Verdict limit(const conn::Capacity& capacity, std::uint64_t asked_for, bool all);

/// Returns all rows that need only facts.
using Row = Verdict (*)(const Facts&);
std::span<const Row> rows() noexcept;

}  // namespace doctor
