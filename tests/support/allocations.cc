// SPDX-License-Identifier: BSD-3-Clause
#include <cstdlib>  // defines __GLIBC__

#include "tests/support/allocations.h"

#if AECONN_COUNTS_ALLOCATIONS
#include <cerrno>
#include <utility>
#include <vector>

#if AECONN_TLS
#include <openssl/crypto.h>
#endif

#include "tests/support/loop_kit.h"

// glibc's own functions, which remain reachable under these names.
extern "C" {
void* __libc_malloc(std::size_t size) noexcept;
void* __libc_calloc(std::size_t count, std::size_t size) noexcept;
void* __libc_realloc(void* memory, std::size_t size) noexcept;
void* __libc_memalign(std::size_t alignment, std::size_t size) noexcept;
void __libc_free(void* memory) noexcept;
}

namespace testing {
namespace {

constinit thread_local Allocations g_count;
constinit thread_local bool g_watched = false;
constinit thread_local bool g_fails = false;
constinit thread_local std::size_t g_until_openssl_fails = 0;  // 0: it does not

}  // namespace

[[gnu::noinline]] void report_allocation() noexcept { asm volatile(""); }

/// Counts an allocation and returns whether it may succeed.
static bool count() noexcept {
  ++g_count.by_others;
  if (g_watched) report_allocation();
  if (g_fails) errno = ENOMEM;
  return !g_fails;
}

NoMemory::NoMemory() noexcept { g_fails = true; }
NoMemory::~NoMemory() { g_fails = false; }

bool fail_openssl_allocation(std::size_t number) noexcept {
  return std::exchange(g_until_openssl_fails, number) == 0;
}

#if AECONN_TLS
/// Counts an allocation of OpenSSL and returns whether it may succeed.
static bool count_openssl() noexcept {
  ++g_count.by_openssl;
  if (g_until_openssl_fails == 0 || --g_until_openssl_fails != 0) return true;
  errno = ENOMEM;
  return false;
}

// OpenSSL accepts these functions only before its first allocation.
[[maybe_unused]] static const int g_openssl_takes_them =
    CRYPTO_set_mem_functions([](std::size_t size, const char*,
                                int) { return count_openssl() ? __libc_malloc(size) : nullptr; },
                             [](void* memory, std::size_t size, const char*, int) {
                               return count_openssl() ? __libc_realloc(memory, size) : nullptr;
                             },
                             [](void* memory, const char*, int) { __libc_free(memory); });
#endif

Allocations watch_allocations(bool on) noexcept {
  g_watched = on;
  return g_count;
}

void let_libev_grow(ae::EventLoop& loop) {
  const std::vector<loop_kit::Sockets> many(16);
  for (const loop_kit::Sockets& one : many) {
    one.send();
    loop.add_file_event(one.near, ae::kReadable, [](int, ae::Mask) {});
    loop.add_time_event(ae::Duration::zero(), [] { return ae::kNoMore; });
  }
  loop_kit::turns(loop, 2);
  for (const loop_kit::Sockets& one : many) loop.remove_file_event(one.near, ae::kReadable);
}

}  // namespace testing

extern "C" {
void* malloc(std::size_t size) noexcept { return testing::count() ? __libc_malloc(size) : nullptr; }
void* calloc(std::size_t count, std::size_t size) noexcept {
  return testing::count() ? __libc_calloc(count, size) : nullptr;
}
void* realloc(void* memory, std::size_t size) noexcept {
  return testing::count() ? __libc_realloc(memory, size) : nullptr;
}
void* memalign(std::size_t alignment, std::size_t size) noexcept {
  return testing::count() ? __libc_memalign(alignment, size) : nullptr;
}
void* aligned_alloc(std::size_t alignment, std::size_t size) noexcept {
  return memalign(alignment, size);
}
int posix_memalign(void** memory, std::size_t alignment, std::size_t size) noexcept {
  const int before = errno;
  void* const result = memalign(alignment, size);
  errno = before;
  if (result == nullptr) return ENOMEM;
  *memory = result;
  return 0;
}
}
#endif
