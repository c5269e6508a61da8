// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Random bytes for keys and identifiers, from the kernel.

#include <cstddef>
#include <span>

#include "ae/abi.h"

namespace conn { inline namespace AECONN_ABI { namespace rdma {

/// Fills `bytes` with random bytes that are good enough for keys. Never blocks. Returns false and
/// fills `bytes` with zeros if the kernel provides none: soon after boot, or if a filter (seccomp)
/// forbids the system call.
[[nodiscard]] bool fill_random(std::span<std::byte> bytes) noexcept;

}}}  // namespace conn::rdma
