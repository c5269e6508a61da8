// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The interface through which an engine exchanges ciphertext, and a record of how the exchange has
// ended.

#include <sys/types.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>

#include "ae/abi.h"

namespace conn { inline namespace AECONN_ABI { namespace tls {

/// Carries ciphertext between an engine and the connection below TLS. receive() and transmit() have
/// the semantics of read(2) and write(2) on a non-blocking socket.
class Wire {
 public:
  virtual ssize_t receive(void* buffer, std::size_t size) = 0;
  virtual ssize_t transmit(const void* buffer, std::size_t size) = 0;
  /// Sends a record of another type than data, which the kernel encrypts. Called only with kernel
  /// TLS.
  virtual ssize_t transmit_record(std::uint8_t type, const void* buffer, std::size_t size) = 0;

 protected:
  ~Wire() = default;
};

/// A Wire (the connection below TLS) with a record of how it has ended. The two directions end
/// separately: a wire that has ended may fail later, when a write meets a reset. A wire that has
/// failed may still have input.
class CheckedWire {
 public:
  static constexpr ssize_t kNothingNow = -1, kFailed = -2;

  explicit CheckedWire(Wire& wire) noexcept : wire_(&wire) {}

  Wire& wire() const noexcept { return *wire_; }
  /// Reads and writes through `wire` from now on.
  void use(Wire& wire) noexcept { wire_ = &wire; }

  /// Reads ciphertext. Returns the number of bytes read, 0 at end of stream, kNothingNow or
  /// kFailed.
  ssize_t receive(void* buffer, std::size_t size) {
    const ssize_t n = wire_->receive(buffer, size);
    if (n > 0) return n;
    if (n == 0) {
      ended_ = true;
      return 0;
    }
    if (is_temporary(errno)) return kNothingNow;
    fail(errno);
    return kFailed;
  }
  /// Returns whether the connection below TLS refuses reads (it has failed, for example);
  /// if so records the failure. To be called before kernel TLS reads input past receive().
  bool refuses_reads() {
    if (wire_->receive(nullptr, 0) >= 0) return false;
    fail(errno);
    return true;
  }
  /// Sends bytes, or with a `type` other than 0 a record for the kernel to encrypt. Returns how
  /// many bytes the wire (connection below TLS) took, which may be 0, or kFailed.
  ssize_t send(std::uint8_t type, const char* bytes, std::size_t size) {
    const ssize_t n =
        type != 0 ? wire_->transmit_record(type, bytes, size) : wire_->transmit(bytes, size);
    if (n >= 0) return n;
    if (is_temporary(errno)) return 0;
    fail(errno);
    return kFailed;
  }

  bool ended() const noexcept { return ended_; }  ///< whether the peer's end of stream was found
  bool failed() const noexcept { return error_ != 0; }
  /// The errno value of the last failure of the wire (connection below TLS); 0: none.
  int error() const noexcept { return error_; }
  /// Records an end of stream that was found without receive().
  void end() noexcept { ended_ = true; }
  void fail(int error) noexcept { error_ = error != 0 ? error : EIO; }

 private:
  static bool is_temporary(int error) noexcept {
    return error == EAGAIN || error == EWOULDBLOCK || error == EINTR;
  }

  Wire* wire_;
  int error_ = 0;
  bool ended_ = false;
};

}}}  // namespace conn::tls
