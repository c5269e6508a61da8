// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Memory that devices may use: page mappings, the count of pinned bytes, and registrations.

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

#include "ae/abi.h"
#include "conn/rdma/device/verbs.h"

namespace conn { inline namespace AECONN_ABI { namespace rdma {

/// Anonymous memory on pages of its own, so that what a device writes shares no page with anything
/// else; with a guard page on either side, and excluded from core dumps. Memory of 2 MiB and more
/// is aligned to a huge page and asks for huge pages: one entry in the device's tables instead of
/// 512.
class PageMemory {
 public:
  PageMemory() = default;
  /// Throws VerbsError (ENOMEM). The size is rounded up to whole pages.
  explicit PageMemory(std::size_t size);
  PageMemory(PageMemory&& other) noexcept
      : base_(std::exchange(other.base_, nullptr)), size_(std::exchange(other.size_, 0)) {}
  PageMemory& operator=(PageMemory&& other) noexcept {
    std::swap(base_, other.base_);
    std::swap(size_, other.size_);
    return *this;
  }
  ~PageMemory();

  std::byte* data() const noexcept { return base_; }
  std::size_t size() const noexcept { return size_; }

 private:
  std::byte* base_ = nullptr;
  std::size_t size_ = 0;
};

std::size_t page_size() noexcept;
std::size_t round_to_pages(std::size_t size) noexcept;

/// Counts bytes as pinned while it exists: registered memory, and an estimate for the rings of
/// queues. Any thread.
class Pinned {
 public:
  Pinned() = default;
  explicit Pinned(std::size_t bytes) noexcept;
  Pinned(Pinned&& other) noexcept : bytes_(std::exchange(other.bytes_, 0)) {}
  Pinned& operator=(Pinned&& other) noexcept {
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~Pinned();

 private:
  std::size_t bytes_ = 0;
};

/// Bytes that this process has pinned through this library. Any thread.
std::uint64_t registered_bytes() noexcept;

/// Limit of pinned memory. It is checked before anything is allocated.
struct MemoryLimit {
  std::uint64_t most = 0;     ///< bytes of the process; 0: no limit
  std::uint64_t reserve = 0;  ///< of these, left to others
  /// `idle`: pinned bytes that are not in use.
  bool allows(std::uint64_t more, std::uint64_t idle = 0) const noexcept {
    const std::uint64_t all = registered_bytes(), end = most - reserve;
    const std::uint64_t now = all - (idle < all ? idle : all);
    return most == 0 || (now <= end && more <= end - now);
  }
  /// Leaves a quarter to new connections: for what a connection could do without.
  MemoryLimit but_a_quarter() const noexcept { return {most, most / 4}; }
};

/// The failure of a pool whose MemoryLimit does not allow more.
Failure memory_limit_reached();
bool is_memory_limit(const Failure& failure) noexcept;

/// A registration of memory that is owned elsewhere; it must be destroyed before the memory.
class Registration {
 public:
  Registration() = default;
  /// Throws VerbsError; for ENOMEM its text names the limit that was reached, where it is known.
  Registration(ibv_pd* pd, std::byte* begin, std::size_t size, unsigned access);
  ibv_mr* mr() const noexcept { return mr_.get(); }

 private:
  Pinned pinned_;
  Mr mr_;  // destroyed first
};

/// Names the limit of the process or the system behind an ENOMEM or EPERM of a call that wanted
/// about `wanted` bytes: text in parentheses to append to the error, or nothing.
std::string limit_hint(int err, std::uint64_t wanted);

}}}  // namespace conn::rdma
