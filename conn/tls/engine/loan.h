// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The wire of an engine whose handshake step runs on another thread. The connection below belongs
// to the loop's thread, so what it has is read in advance, and the step reads only that.
//
//   in state    receive() returns                              transmit() may be called
//   lent        what was read in advance, then EAGAIN          no: the engine collects its output
//   not lent    what is left of that, then the wire's bytes    yes: passes on to the wire

#include <array>
#include <cassert>
#include <cstddef>

#include "ae/abi.h"
#include "conn/tls/engine/wire.h"

namespace conn { inline namespace AECONN_ABI { namespace tls {

class Loan final : public Wire {
 public:
  explicit Loan(Wire& wire) noexcept : wire_(wire) {}

  /// Reads the wire once in advance, as far as there is room. Returns whether there is anything to
  /// read; if not, the wire is empty, has ended or has failed.
  bool fill();
  void lend(bool lent) noexcept { lent_ = lent; }
  Wire& wire() const noexcept { return wire_; }
  bool empty() const noexcept { return from_ == to_; }

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
  std::ptrdiff_t from_ = 0, to_ = 0;  // where the unread bytes begin and end
  std::array<char, 16384> bytes_;
};

}}}  // namespace conn::tls
