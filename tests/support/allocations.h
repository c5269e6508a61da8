// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Counts heap allocations: malloc and its family, and so operator new, in our code and in every
// library, for each thread on its own. It stands in for the C library's malloc in this program.

// Sanitizers bring a malloc of their own; other C libraries than glibc do not let theirs be
// reached.
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__) || !defined(__GLIBC__)
#define AECONN_COUNTS_ALLOCATIONS 0
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer) || __has_feature(address_sanitizer)
#define AECONN_COUNTS_ALLOCATIONS 0
#endif
#endif
#ifndef AECONN_COUNTS_ALLOCATIONS
#define AECONN_COUNTS_ALLOCATIONS 1
#endif

#include <cstddef>

#include "ae/event_loop.h"

namespace testing {

struct Allocations {
  std::size_t by_others = 0;   ///< us, libev, rdma-core, libstdc++
  std::size_t by_openssl = 0;  ///< which asks through functions of its own
};

/// The calling thread's allocations since it began (reallocations count, freeing does not). While
/// it is watched, those of others go through report_allocation() too, where a breakpoint shows who
/// makes them.
Allocations watch_allocations(bool on) noexcept;

/// libev's tables grow when more events or timers are due at once than ever before; here many are.
void let_libev_grow(ae::EventLoop& loop);

}  // namespace testing
