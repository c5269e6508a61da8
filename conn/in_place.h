// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Types for Connection's in-place operations (peek(), reserve(), send()), which read received bytes
// and send the program's bytes without copying them.

#include <sys/uio.h>

#include <array>
#include <cstddef>
#include <span>
#include <string_view>
#include <system_error>

#include "ae/abi.h"

namespace conn { inline namespace AECONN_ABI {

class ConnectionType;

/// The maximum size in bytes of a contiguous piece that Connection::peek() shows, and of a buffer
/// that Connection::reserve() returns.
inline constexpr std::size_t kMaxContiguous = 64 * 1024;

/// The result of Connection::peek(together): the bytes that read() would return next, in one or two
/// pieces. If fewer than `together` bytes have arrived, it shows those; a read handler that is set
/// afterwards runs for these bytes. If `size` is 0, errno 0 means end of stream, EAGAIN that no
/// data is available now, EMSGSIZE that `together` exceeds kMaxContiguous; otherwise errno is as
/// for read(). A view is valid until the next consume(), read() or peek() of the connection,
/// close() or rebind(). Holding on to a view stalls the peer: the memory that the peer may write
/// (its window) is not returned to it until consume().
struct View {
  /// The addresses and sizes of the pieces; the first `count` elements are valid.
  std::array<iovec, 2> pieces{};
  int count = 0;         ///< number of valid elements of `pieces`
  std::size_t size = 0;  ///< number of bytes in all pieces together
  /// True if the bytes cannot change. False: the peer can still write to this memory (rdma with
  /// in-place=yes), so a value that was checked may be different when it is used.
  bool stable = true;
  /// True if no bytes follow those in this view: once they are consumed, read() returns end of
  /// stream or the connection's error.
  bool last = false;

  /// Returns the bytes of the first piece as text; empty if the view has no bytes.
  std::string_view first() const noexcept {
    return {static_cast<const char*>(pieces[0].iov_base), pieces[0].iov_len};
  }
};

/// Memory from which a device may read, created by ConnectionType::register_memory(). This object
/// must exist until Outgoing::release was called for every send() that names it, and the bytes must
/// outlive this object. Create, use and destroy it on the thread of one loop.
class AECONN_API Memory {
 public:
  /// Called by transports, not by programs. `of` is the transport whose devices can read the
  /// memory; null: none.
  explicit Memory(std::span<std::byte> bytes, const ConnectionType* of = nullptr) noexcept
      : bytes_(bytes), of_(of) {}
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  virtual ~Memory() = default;
  std::span<std::byte> bytes() const noexcept { return bytes_; }  ///< the registered memory
  /// The transport whose devices can read the registered memory; null: none.
  const ConnectionType* of() const noexcept { return of_; }

 private:
  std::span<std::byte> bytes_;
  const ConnectionType* of_;
};

/// Bytes that send() sends from the caller's memory. The memory belongs to the library until
/// `release` is called: exactly once, from the loop, never inside send(). It is called with an
/// error if the bytes were not passed on before the connection or the loop ended. It may be called
/// after close(), but never after the end of the loop.
struct Outgoing {
  /// Returns ownership of the bytes to the caller. The function may call any operation of any
  /// connection, but must not throw. An empty `error` means that the bytes were passed on, not that
  /// they were delivered.
  using Release = void (*)(void* context, std::error_code error) noexcept;

  std::span<const std::byte> bytes;  ///< the bytes that Connection::send() shall send
  Release release = nullptr;  ///< called when the memory is no longer in use; null: not called
  void* context = nullptr;    ///< pointer of the caller, passed to `release` unchanged
  /// The registered memory that contains `bytes`; null: not registered.
  const Memory* memory = nullptr;
};

}}  // namespace conn
