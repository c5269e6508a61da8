// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Memory that an RDMA device may read and write: mapping it, counting pinned bytes, and registering
// it with the device.

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

#include "ae/abi.h"
#include "conn/rdma/device/verbs.h"

namespace conn { inline namespace AECONN_ABI { namespace rdma {

/// Anonymous memory on separate pages, so that no other data is on a page that a device writes to.
/// A guard page precedes and follows it, and core dumps leave it out. Memory of 2 MiB and more is
/// aligned to 2 MiB and requests huge pages, so that each 2 MiB take one entry in the device's
/// translation tables instead of 512.
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

/// Adds `bytes` to registered_bytes() for as long as the object exists: the size of registered
/// memory, or the estimated size of the rings of a queue. Thread-safe.
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

/// Returns the number of bytes that this process has pinned through this library at present.
/// Thread-safe.
std::uint64_t registered_bytes() noexcept;

/// Limit on the bytes that this process pins for RDMA, checked before memory is allocated.
struct MemoryLimit {
  std::uint64_t most = 0;     ///< bytes that the whole process may pin; 0: no limit
  std::uint64_t reserve = 0;  ///< bytes of the limit kept free for more important requests
  /// Returns true if `more` further bytes may be pinned. `idle`: number of bytes that are pinned
  /// but not in use, which do not count against the limit because they can be freed.
  bool allows(std::uint64_t more, std::uint64_t idle = 0) const noexcept {
    const std::uint64_t all = registered_bytes(), end = most - reserve;
    const std::uint64_t now = all - (idle < all ? idle : all);
    return most == 0 || (now <= end && more <= end - now);
  }
  /// Returns this limit with a quarter of it reserved. To be used for memory that an existing
  /// connection can do without, so that new connections still get memory.
  MemoryLimit but_a_quarter() const noexcept { return {most, most / 4}; }
};

/// Returns the failure that reports that a MemoryLimit does not allow more memory.
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
  // The memory region; declared last, so that it is deregistered before pinned_ stops counting it.
  Mr mr_;
};

/// Numbers of registrations of memory so far, by purpose.
struct RegistrationCounts {
  std::uint64_t windows = 0;  ///< registrations for receive windows
  /// Registrations for sent data, receives and control messages, which share large pieces of
  /// memory.
  std::uint64_t buffers = 0;
  std::uint64_t user_memory = 0;  ///< registrations of user memory, sent without a copy
};

/// Explains the error ENOMEM or EPERM of a call that would have pinned about `wanted` bytes.
/// Returns a text in parentheses, to append to the error message, that names the limit of the
/// process or system that was reached; empty if no such limit was found, and for other values of
/// `err`.
std::string limit_hint(int err, std::uint64_t wanted);

}}}  // namespace conn::rdma
