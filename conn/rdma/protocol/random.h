// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Random bytes for keys and identifiers, from the kernel.

#include <cstddef>
#include <span>

#include "ae/abi.h"

namespace conn { inline namespace AECONN_ABI { namespace rdma {

/// Fills `bytes` with random bytes of the quality that keys need, without waiting. Returns false if
/// the kernel has none: soon after it started, or where a filter forbids the system call. `bytes`
/// is then all zeros.
[[nodiscard]] bool fill_random(std::span<std::byte> bytes) noexcept;

}}}  // namespace conn::rdma
