// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Counts heap allocations (malloc and its family, and thereby operator new) of the program and all
// its libraries, per thread. It replaces the C library's malloc in this program.

// Not available with sanitizers, which have a malloc of their own, nor with C libraries other than
// glibc, whose malloc cannot be reached under another name.
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
  std::size_t by_others = 0;   ///< this library, libev, rdma-core, libstdc++
  std::size_t by_openssl = 0;  ///< OpenSSL allocates by functions of its own
};

/// The calling thread's allocations since it started (reallocations count, frees do not). While
/// watching is on, those counted in by_others also call report_allocation(): set a breakpoint there
/// to see the caller.
Allocations watch_allocations(bool on) noexcept;

/// While it exists, the calling thread's allocations fail, except those of OpenSSL.
class NoMemory {
 public:
  NoMemory() noexcept;
  NoMemory(const NoMemory&) = delete;
  NoMemory& operator=(const NoMemory&) = delete;
  ~NoMemory();
};

/// Makes the Nth allocation of OpenSSL on the calling thread fail (1: the next), as malloc(3) does;
/// 0: none. Returns whether the one that the last call named has failed.
bool fail_openssl_allocation(std::size_t number) noexcept;

/// libev's tables grow when more events or timers are due at once than ever before; this makes many
/// due, so that later counts do not include that growth.
void let_libev_grow(ae::EventLoop& loop);

}  // namespace testing
