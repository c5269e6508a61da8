// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// A wire with unused bytes in front of it, for an engine whose wire was read too early. When a
// handshake step runs on another thread, what the connection below has is read in advance, since
// that connection belongs to the loop's thread, and the step reads only that.
//
//   in state    receive() returns                              transmit() may be called
//   lent        what was read in advance, then EAGAIN          no: the engine collects its output
//   not lent    what is left of that, then the wire's bytes    yes: passes on to the wire

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

  /// Reads the wire once in advance, up to 16 KiB in all. Returns whether there is anything to
  /// read; if not, the wire is empty, has ended or has failed. Throws std::bad_alloc.
  bool fill();
  /// Puts bytes in front of those that are unread. Throws std::bad_alloc.
  void put_back(std::span<const char> bytes);
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
  std::size_t from_ = 0;  // where the unread bytes begin
};

}}}  // namespace conn::tls
