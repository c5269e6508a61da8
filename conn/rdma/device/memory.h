// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Memory that an RDMA device may read and write: page mappings, the count of pinned bytes, and
// registrations with the device.

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

#include "ae/abi.h"
#include "conn/rdma/device/verbs.h"

namespace conn { inline namespace AECONN_ABI { namespace rdma {

/// Anonymous memory on pages of its own, so that a device that writes into it shares no page with
/// other data. A guard page precedes and follows it, and core dumps leave it out. Memory of 2 MiB
/// and more is aligned to a huge page and requests huge pages, so that each 2 MiB take one entry in
/// the device's translation tables instead of 512.
class PageMemory {
 public:
  PageMemory() = default;
  /// Maps `size` bytes, rounded up to whole pages. Throws VerbsError (ENOMEM).
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

/// While an object of this class exists, registered_bytes() includes its bytes: those of registered
/// memory, or an estimate of the size of a queue's rings. Thread-safe.
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

/// Number of bytes that this process has pinned through this library at present. Thread-safe.
std::uint64_t registered_bytes() noexcept;

/// Limit on the bytes that this process pins for RDMA, checked before memory is allocated.
struct MemoryLimit {
  std::uint64_t most = 0;     ///< bytes that the whole process may pin; 0: no limit
  std::uint64_t reserve = 0;  ///< bytes of `most` that must stay unused, for other users of memory
  /// True if `more` further bytes may be pinned. `idle`: bytes that are pinned but not in use; they
  /// do not count against the limit.
  bool allows(std::uint64_t more, std::uint64_t idle = 0) const noexcept {
    const std::uint64_t all = registered_bytes(), end = most - reserve;
    const std::uint64_t now = all - (idle < all ? idle : all);
    return most == 0 || (now <= end && more <= end - now);
  }
  /// Returns this limit with a quarter of it reserved, so that new connections still get memory.
  /// For requests of memory that an existing connection can do without.
  MemoryLimit but_a_quarter() const noexcept { return {most, most / 4}; }
};

/// Returns the failure to report when a MemoryLimit does not allow a pool to get more memory.
Failure memory_limit_reached();
bool is_memory_limit(const Failure& failure) noexcept;

/// Registers memory with a device. The memory is owned elsewhere and must outlive this object.
class Registration {
 public:
  Registration() = default;
  /// Registers `size` bytes at `begin` for the kinds of access in `access` (ibv_access_flags).
  /// Throws VerbsError; for ENOMEM and EPERM its text also names the limit of the process or system
  /// that was reached, if it can be determined.
  Registration(ibv_pd* pd, std::byte* begin, std::size_t size, unsigned access);
  ibv_mr* mr() const noexcept { return mr_.get(); }

 private:
  Pinned pinned_;
  Mr mr_;  // memory region; it is deregistered before pinned_ stops counting its bytes
};

/// How often memory was registered, by what it is for.
struct RegistrationCounts {
  std::uint64_t windows = 0;  ///< receive windows
  std::uint64_t buffers = 0;  ///< bytes to send, receives and control messages, which share slabs
  std::uint64_t user_memory = 0;  ///< memory of the program, from which it sends without a copy
};

/// Explains an ENOMEM or EPERM of a call that wanted to pin about `wanted` bytes. Returns the limit
/// of the process or system that was reached, as text in parentheses to append to the error; empty
/// if no limit was found or for another `err`.
std::string limit_hint(int err, std::uint64_t wanted);

}}}  // namespace conn::rdma
