// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Memory that runs out: operator new of this program and OpenSSL's allocations can be made to fail.

#include <cstdint>

namespace simulation {

enum class Allocator { kNew, kOpenSsl };

/// From now on the Nth allocation of this kind fails, with as many as make `count` (1: the next);
/// 0: none.
void fail_allocation(Allocator kind, std::uint64_t number, std::uint64_t count = 1) noexcept;
/// Whether it has failed.
bool allocation_failed() noexcept;

/// Of operator new so far, by who can be made to fail.
std::uint64_t allocations() noexcept;

/// While one stands on the stack, the simulated libraries and kernel are at work. The real ones
/// take nothing from operator new, so it does not fail there.
struct Below {
  Below() noexcept;
  ~Below();
  Below(const Below&) = delete;
  Below& operator=(const Below&) = delete;
};

}  // namespace simulation
