// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// What Connection's operations in place are about: bytes that are read where they lie, and bytes
// that are sent from where they lie.

#include <sys/uio.h>

#include <array>
#include <cstddef>
#include <span>
#include <string_view>
#include <system_error>

#include "ae/abi.h"

namespace conn { inline namespace AECONN_ABI {

/// The most bytes that peek() shows in one piece, and that reserve() has room for.
inline constexpr std::size_t kMaxContiguous = 64 * 1024;

/// What Connection::peek() shows: the bytes that read() would give next, in one piece or two.
struct View {
  std::array<iovec, 2> pieces{};  ///< where they lie
  int count = 0;                  ///< of pieces
  std::size_t size = 0;           ///< of all pieces
  /// Nobody changes these bytes. False: they lie in memory that the peer can write (rdma with
  /// in-place=yes), so that what was checked a moment ago need not be true any more.
  bool stable = true;
  /// Nothing comes after them: read() tells the end, or the error, once they are consumed.
  bool last = false;

  /// The first piece as text.
  std::string_view first() const noexcept {
    return {static_cast<const char*>(pieces[0].iov_base), pieces[0].iov_len};
  }
};

/// Memory that a device may read: ConnectionType::register_memory() makes it. It must outlive the
/// release of every send() that names it, and the bytes must outlive it. For one loop, whose thread
/// makes, uses and destroys it.
class AECONN_API Memory {
 public:
  explicit Memory(std::span<std::byte> bytes) noexcept : bytes_(bytes) {}  ///< For transports.
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  virtual ~Memory() = default;
  std::span<std::byte> bytes() const noexcept { return bytes_; }  ///< what was registered

 private:
  std::span<std::byte> bytes_;
};

/// Bytes that are sent from where they lie.
struct Outgoing {
  /// Says that the bytes are the caller's again. It may call any operation of any connection, but
  /// must not throw. No error: whatever carries the bytes has them, which is not delivery.
  using Release = void (*)(void* context, std::error_code error) noexcept;

  std::span<const std::byte> bytes;  ///< what is sent
  Release release = nullptr;         ///< null: nobody wants to know
  void* context = nullptr;           ///< what `release` gets
  const Memory* memory = nullptr;    ///< that holds them, if they were registered
};

}}  // namespace conn
