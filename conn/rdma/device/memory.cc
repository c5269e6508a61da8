// SPDX-License-Identifier: BSD-3-Clause
#include "conn/rdma/device/memory.h"

#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <memory>
#include <mutex>
#include <new>

#include "ae/once.h"
#include "conn/rdma/device/remembered_text.h"

namespace conn { inline namespace AECONN_ABI { namespace rdma {
namespace {

std::atomic<std::uint64_t> pinned{0};
constexpr std::size_t kHugePage = std::size_t{2} << 20;

struct CloseFile {
  void operator()(std::FILE* file) const noexcept { std::fclose(file); }
};
using File = std::unique_ptr<std::FILE, CloseFile>;

// Returns the number after `key` in the first line of the file that begins with `key`; if `key` is
// empty, the number at the beginning of the first line that begins with a number. Returns -1 if
// there is no such line.
long long number_in(const char* path, const char* key) noexcept {
  const File file(std::fopen(path, "re"));
  if (!file) return -1;
  char line[256];
  while (std::fgets(line, sizeof line, file.get()) != nullptr) {
    if (std::strncmp(line, key, std::strlen(key)) != 0) continue;
    long long value = -1;
    if (std::sscanf(line + std::strlen(key), "%lld", &value) == 1) return value;
  }
  return -1;
}

long long count_mappings() noexcept {
  const File file(std::fopen("/proc/self/maps", "re"));
  if (!file) return -1;
  long long lines = 0;
  char piece[4096];
  for (std::size_t n = 0; (n = std::fread(piece, 1, sizeof piece, file.get())) != 0;)
    lines += std::count(piece, piece + n, '\n');
  return lines;
}

std::string look_for_limit(std::uint64_t wanted) {
  // The limit counts as reached if fewer than this many mappings are left, because the kernel needs
  // a few for its own work.
  constexpr long long kNearly = 16;
  const long long mappings = count_mappings();
  const long long most = number_in("/proc/sys/vm/max_map_count", "");
  if (mappings >= 0 && most > 0 && mappings + kNearly >= most)
    return fmt::format(
        " (this process has {} memory mappings, vm.max_map_count allows {}; raise it with sysctl)",
        mappings, most);
  rlimit limit{};
  if (getrlimit(RLIMIT_MEMLOCK, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY) {
    const auto locked =
        static_cast<std::uint64_t>(std::max(number_in("/proc/self/status", "VmPin:"), 0LL)) * 1024;
    if (locked + wanted > limit.rlim_cur)
      return fmt::format(
          " ({} KiB are locked, the locked-memory limit is {} KiB; raise it with ulimit -l)",
          locked / 1024, limit.rlim_cur / 1024);
  }
  if (getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY)
    return fmt::format(" (the address space is limited to {} KiB; raise it with ulimit -v)",
                       limit.rlim_cur / 1024);
  return {};
}

}  // namespace

std::string limit_hint(int err, std::uint64_t wanted) {
  if (err != ENOMEM && err != EPERM) return {};
  // The text is cached, because counting the mappings takes milliseconds if there are many, and
  // failures come in bursts.
  return ae::once([] { return RememberedText(); }).get([&] { return look_for_limit(wanted); });
}

// --- counting pinned bytes -----------------------------------------------------------------------

Pinned::Pinned(std::size_t bytes) noexcept : bytes_(bytes) { pinned += bytes_; }
Pinned::~Pinned() { pinned -= bytes_; }
std::uint64_t registered_bytes() noexcept { return pinned.load(); }

Failure memory_limit_reached() {
  return {std::make_error_code(std::errc::no_buffer_space), "memory-limit reached"};
}
bool is_memory_limit(const Failure& failure) noexcept {
  return failure.code == std::errc::no_buffer_space;
}

// --- mapping pages -------------------------------------------------------------------------------

std::size_t page_size() noexcept { return static_cast<std::size_t>(sysconf(_SC_PAGESIZE)); }

std::size_t round_to_pages(std::size_t size) noexcept {
  return (size + page_size() - 1) / page_size() * page_size();
}

PageMemory::PageMemory(std::size_t size) : size_(round_to_pages(size)) {
  const std::size_t page = page_size();
  const bool huge = size_ >= kHugePage;
  // Reserves enough address space for the guard pages and for alignment to a huge page, and then
  // unmaps the excess.
  const std::size_t reserved = size_ + 2 * page + (huge ? kHugePage : 0);
  void* all = mmap(nullptr, reserved, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (all == MAP_FAILED) throw VerbsError(fmt::format("mapping {} bytes", size_), errno);
  auto* const begin = static_cast<std::byte*>(all);
  const auto first = reinterpret_cast<std::uintptr_t>(begin) + page;
  base_ = begin + page + (huge ? (kHugePage - first % kHugePage) % kHugePage : 0);
  const auto before = static_cast<std::size_t>(base_ - page - begin);
  const std::size_t after = reserved - before - size_ - 2 * page;
  if (before != 0) munmap(begin, before);
  if (after != 0) munmap(base_ + size_ + page, after);
  if (mprotect(base_, size_, PROT_READ | PROT_WRITE) != 0) {
    const int err = errno;
    munmap(base_ - page, size_ + 2 * page);
    base_ = nullptr;
    throw VerbsError(fmt::format("mapping {} bytes", size_), err);
  }
  // Errors of madvise() are ignored: a kernel that does not support the advice writes larger core
  // dumps, or uses small pages.
  (void)madvise(base_, size_, MADV_DONTDUMP);
  if (huge) (void)madvise(base_, size_, MADV_HUGEPAGE);
}

PageMemory::~PageMemory() {
  if (base_ == nullptr) return;
  const std::size_t page = page_size();
  munmap(base_ - page, size_ + 2 * page);
}

// --- registering memory with a device ------------------------------------------------------------

Registration::Registration(ibv_pd* pd, std::byte* begin, std::size_t size, unsigned access)
    : mr_(ibv_reg_mr(pd, begin, size, static_cast<int>(access))) {
  if (!mr_)
    throw VerbsError(fmt::format("registering {} bytes with the device", size), errno, size);
  pinned_ = Pinned(size);
}

}}}  // namespace conn::rdma
