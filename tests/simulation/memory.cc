// SPDX-License-Identifier: BSD-3-Clause
#include "tests/simulation/memory.h"

#include <openssl/crypto.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <new>

namespace simulation {
namespace {

std::array<std::atomic<std::uint64_t>, 2> countdown{};  // the resolver's threads count, too
std::atomic<std::uint64_t> made = 0;
std::atomic<std::uint64_t> more = 0;  // how many fail once the countdown has reached 1
std::atomic<bool> failed = false;
thread_local int inside_simulation = 0;

bool fails(Allocator kind) noexcept {
  if (inside_simulation != 0) return false;
  if (kind == Allocator::kNew) ++made;
  std::atomic<std::uint64_t>& left = countdown[static_cast<std::size_t>(kind)];
  if (left == 0 || (left != 1 && --left != 1)) return false;  // at 1 allocations fail
  if (--more == 0) left = 0;
  failed = true;
  return true;
}

// What precedes each allocation of operator new: its size, or 0 if it is not counted. As large as
// the alignment that operator new promises.
constexpr std::size_t kHead = __STDCPP_DEFAULT_NEW_ALIGNMENT__;
static_assert(kHead >= sizeof(std::size_t));
std::atomic<std::uint64_t> live = 0;

void* allocate(std::size_t size) noexcept {
  void* const head = std::malloc(kHead + size);
  if (head == nullptr) return nullptr;
  const std::size_t counted = inside_simulation == 0 ? size : 0;
  std::memcpy(head, &counted, sizeof counted);
  live += counted;
  return static_cast<std::byte*>(head) + kHead;
}

void release(void* memory) noexcept {
  if (memory == nullptr) return;
  void* const head = static_cast<std::byte*>(memory) - kHead;
  std::size_t counted;
  std::memcpy(&counted, head, sizeof counted);
  live -= counted;
  std::free(head);
}

void* openssl_malloc(std::size_t size, const char*, int) {
  return fails(Allocator::kOpenSsl) ? nullptr : std::malloc(size);
}
void* openssl_realloc(void* old, std::size_t size, const char*, int) {
  return fails(Allocator::kOpenSsl) ? nullptr : std::realloc(old, size);
}
void openssl_free(void* memory, const char*, int) { std::free(memory); }

// Must run before OpenSSL allocates anything.
const int told = CRYPTO_set_mem_functions(openssl_malloc, openssl_realloc, openssl_free);

}  // namespace

void fail_allocation(Allocator kind, std::uint64_t number, std::uint64_t count) noexcept {
  for (auto& each : countdown) each = 0;
  failed = false;
  more = count;
  countdown[static_cast<std::size_t>(kind)] = number == 0 ? 0 : number + 1;
}

std::uint64_t allocations() noexcept { return made; }
std::uint64_t live_bytes() noexcept { return live; }

Below::Below() noexcept { ++inside_simulation; }
Below::~Below() { --inside_simulation; }

bool allocation_failed() noexcept { return failed && told == 1; }

}  // namespace simulation

void* operator new(std::size_t size) {
  if (simulation::fails(simulation::Allocator::kNew)) throw std::bad_alloc();
  if (void* memory = simulation::allocate(size)) return memory;
  throw std::bad_alloc();
}
void* operator new[](std::size_t size) { return operator new(size); }
void* operator new(std::size_t size, const std::nothrow_t&) noexcept {
  return simulation::fails(simulation::Allocator::kNew) ? nullptr : simulation::allocate(size);
}
void* operator new[](std::size_t size, const std::nothrow_t& no) noexcept {
  return operator new(size, no);
}
void operator delete(void* memory) noexcept { simulation::release(memory); }
void operator delete[](void* memory) noexcept { simulation::release(memory); }
void operator delete(void* memory, std::size_t) noexcept { simulation::release(memory); }
void operator delete[](void* memory, std::size_t) noexcept { simulation::release(memory); }
void operator delete(void* memory, const std::nothrow_t&) noexcept { simulation::release(memory); }
void operator delete[](void* memory, const std::nothrow_t&) noexcept {
  simulation::release(memory);
}
