// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The rows of the doctor: each a pure function from facts to a verdict, in the order in which one
// thing needs the next. docs/doctor.md has the complaint behind each.

#include <cstdint>
#include <span>

#include "conn/capacity.h"
#include "programs/doctor/facts.h"
#include "programs/doctor/verdict.h"

namespace doctor {

// rows_kernel.cc
Verdict build(const Facts& facts);      ///< this program has rdma
Verdict libraries(const Facts& facts);  ///< libibverbs and librdmacm
Verdict modules(const Facts& facts);    ///< ib_core, ib_uverbs, rdma_ucm
Verdict device_files(const Facts& facts);
Verdict devices(const Facts& facts);  ///< there are, with their drivers; of a kind that can serve
Verdict ports(const Facts& facts);    ///< links
// rows_network.cc
Verdict packets(const Facts& facts);    ///< the MTU of each port
Verdict gids(const Facts& facts);       ///< there are, and they can be used here
Verdict addresses(const Facts& facts);  ///< which belongs to which device
Verdict marking(const Facts& facts);    ///< what rdma_cm takes: version of RoCE, type of service
// rows_machine.cc
Verdict processors(const Facts& facts);  ///< near the device, and how many
/// A limit and `asked_for` connections. Where they have no room but some do, it is a failure only
/// if `all` are to have room.
Verdict limit(const conn::Capacity& capacity, std::uint64_t asked_for, bool all);

/// All that need nothing but facts.
using Row = Verdict (*)(const Facts&);
std::span<const Row> rows() noexcept;

}  // namespace doctor
