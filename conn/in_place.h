// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Types for Connection's in-place operations, which read received bytes and send the program's
// bytes without copying them.

#include <sys/uio.h>

#include <array>
#include <cstddef>
#include <span>
#include <string_view>
#include <system_error>

#include "ae/abi.h"

namespace conn { inline namespace AECONN_ABI {

class ConnectionType;

/// The maximum size of a contiguous piece shown by peek() and of a buffer returned by reserve().
inline constexpr std::size_t kMaxContiguous = 64 * 1024;

/// The result of Connection::peek(together): the bytes read() would return next, in one or two
/// pieces. size 0 with errno 0 means end of stream, EAGAIN nothing available now, EMSGSIZE that
/// `together` exceeds kMaxContiguous; otherwise errno is as for read(). With fewer than `together`
/// bytes it shows those that have arrived; a read handler set after that runs for them. A view is
/// valid until the next consume(), read() or peek() of the connection, close() or rebind(). Holding
/// on to it stalls the peer: its window is not returned until consume().
struct View {
  std::array<iovec, 2> pieces{};  ///< the bytes
  int count = 0;                  ///< number of pieces
  std::size_t size = 0;           ///< total size
  /// Whether the bytes cannot change. False: they are in memory that the peer can write (rdma with
  /// in-place=yes), so a value that was checked may be different when it is used.
  bool stable = true;
  /// These are the last bytes: once they are consumed, read() returns the end of stream or the
  /// error.
  bool last = false;

  /// The first piece as text.
  std::string_view first() const noexcept {
    return {static_cast<const char*>(pieces[0].iov_base), pieces[0].iov_len};
  }
};

/// Memory that a device may read, created by ConnectionType::register_memory(). It must outlive the
/// release of every send() that names it, and the bytes must outlive it. Create, use and destroy it
/// on the thread of one loop.
class AECONN_API Memory {
 public:
  /// For transports: `of` is the one whose devices may read the bytes, null for none.
  explicit Memory(std::span<std::byte> bytes, const ConnectionType* of = nullptr) noexcept
      : bytes_(bytes), of_(of) {}
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  virtual ~Memory() = default;
  std::span<std::byte> bytes() const noexcept { return bytes_; }  ///< the registered memory
  const ConnectionType* of() const noexcept { return of_; }       ///< see the constructor

 private:
  std::span<std::byte> bytes_;
  const ConnectionType* of_;
};

/// Bytes to be sent from the caller's memory, which belongs to the library until `release` runs:
/// exactly once, from the loop, never inside send(), with an error if the bytes were not handed on
/// before the connection or the loop ended. It may run after close(), but never after the end of
/// the loop.
struct Outgoing {
  /// Returns ownership of the bytes to the caller. It may call any operation of any connection, but
  /// must not throw. No error means that the bytes were passed on, not that they were delivered.
  using Release = void (*)(void* context, std::error_code error) noexcept;

  std::span<const std::byte> bytes;  ///< what is sent
  Release release = nullptr;         ///< may be null
  void* context = nullptr;           ///< argument for `release`
  const Memory* memory = nullptr;    ///< registered memory that contains `bytes`, or null
};

}}  // namespace conn
