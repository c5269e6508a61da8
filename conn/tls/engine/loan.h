// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// A Wire (interface to the connection below TLS) that returns bytes which were read from another
// Wire earlier, before it reads that one again. It keeps ciphertext that was read but could not be
// used at once. It also serves a lent step, a step of the handshake that another thread runs: only
// the loop's thread may use the connection below, so it reads the available input into the Loan
// first, and the other thread reads only the Loan.
//
//   in state    receive() returns                              transmit() may be called
//   lent        the bytes read earlier, then EAGAIN            no: the engine collects its output
//   not lent    the bytes read earlier, then the wire's        yes: passes bytes to the wire

#include <cassert>
#include <cstddef>
#include <span>
#include <vector>

#include "ae/abi.h"
#include "conn/tls/engine/wire.h"

namespace conn { inline namespace AECONN_ABI { namespace tls {

class Loan final : public Wire {
 public:
  explicit Loan(Wire& wire) noexcept : wire_(wire) {}

  /// Reads the wire (connection below TLS) once, unless 16 KiB are unread in this object already.
  /// Returns whether this object then has unread bytes; if not, the wire is empty, has ended or has
  /// failed. Throws std::bad_alloc.
  bool fill();
  /// Puts bytes in front of those that are unread. Throws std::bad_alloc.
  void put_back(std::span<const char> bytes);
  /// Sets whether this object is lent to another thread, which gets only the bytes read earlier.
  void lend(bool lent) noexcept { lent_ = lent; }
  Wire& wire() const noexcept { return wire_; }
  bool empty() const noexcept { return from_ == bytes_.size(); }

  ssize_t receive(void* buffer, std::size_t size) override;
  ssize_t transmit(const void* buffer, std::size_t size) override {
    assert(!lent_);
    return wire_.transmit(buffer, size);
  }
  ssize_t transmit_record(std::uint8_t type, const void* buffer, std::size_t size) override {
    assert(!lent_);
    return wire_.transmit_record(type, buffer, size);
  }

 private:
  Wire& wire_;
  bool lent_ = false;
  std::vector<char> bytes_;
  std::size_t from_ = 0;  // index in bytes_ of the first unread byte
};

}}}  // namespace conn::tls
