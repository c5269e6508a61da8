// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Memory that devices may use: pages of its own, counted where they are pinned, and registrations.

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

#include "ae/abi.h"
#include "conn/rdma/device/verbs.h"

namespace conn { inline namespace AECONN_ABI { namespace rdma {

/// Anonymous memory on pages of its own, with a page that traps on either side, kept out of core
/// dumps: what a device writes shares no page with anything else. Memory of 2 MiB and more begins
/// on a huge page's border and asks for huge pages: one entry in the device's tables instead of
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

/// Counts bytes as pinned while it lives: memory that is registered, and the rings of queues by an
/// estimate. Any thread.
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

/// What this process has pinned through us, in bytes. Any thread.
std::uint64_t registered_bytes() noexcept;

/// Where what is pinned has to stop. Asked before anything is allocated.
struct MemoryLimit {
  std::uint64_t most = 0;     ///< bytes of the process; 0: no limit
  std::uint64_t reserve = 0;  ///< of them left to others
  /// `idle`: bytes of what is pinned that nobody uses.
  bool allows(std::uint64_t more, std::uint64_t idle = 0) const noexcept {
    const std::uint64_t all = registered_bytes(), end = most - reserve;
    const std::uint64_t now = all - (idle < all ? idle : all);
    return most == 0 || (now <= end && more <= end - now);
  }
  /// A quarter is left to those who come: for what a connection could do without.
  MemoryLimit but_a_quarter() const noexcept { return {most, most / 4}; }
};

/// What a pool says where a MemoryLimit does not allow it more.
Failure memory_limit_reached();
bool is_memory_limit(const Failure& failure) noexcept;

/// A registration of memory that somebody else keeps; the registration has to go first.
class Registration {
 public:
  Registration() = default;
  /// Throws VerbsError; ENOMEM names the limit that was met, where one can be told.
  Registration(ibv_pd* pd, std::byte* begin, std::size_t size, unsigned access);
  ibv_mr* mr() const noexcept { return mr_.get(); }

 private:
  Pinned pinned_;
  Mr mr_;  // goes first
};

/// Which limit of the process or the system is behind an ENOMEM or EPERM of a call that wanted
/// about so many bytes: words in brackets to put after the error, or nothing.
std::string limit_hint(int err, std::uint64_t wanted);

}}}  // namespace conn::rdma
