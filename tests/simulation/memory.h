// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Simulates memory shortage: this program's operator new and OpenSSL's allocations can be made to
// fail. Also counts the bytes that are in use.

#include <cstdint>

namespace simulation {

enum class Allocator { kNew, kOpenSsl };

/// From now on the Nth allocation of this kind fails (1: the next), and those after it until
/// `count` have failed. 0: none fails.
void fail_allocation(Allocator kind, std::uint64_t number, std::uint64_t count = 1) noexcept;
/// Whether an allocation has failed since then.
bool allocation_failed() noexcept;

/// Number of calls of operator new so far that could have been made to fail.
std::uint64_t allocations() noexcept;

/// Number of bytes that operator new has handed out and that are not freed yet, without those of
/// simulated libraries and of the simulation itself (see Below).
std::uint64_t live_bytes() noexcept;

/// While an instance is on the stack, simulated libraries or the kernel are running. The real ones
/// take nothing from operator new, so it does not fail there.
struct Below {
  Below() noexcept;
  ~Below();
  Below(const Below&) = delete;
  Below& operator=(const Below&) = delete;
};

}  // namespace simulation
