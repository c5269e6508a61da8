// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Handlers that run in vain: a read handler says that there is something to read, a write handler
// that there is room. If the call they invite then says EAGAIN the handler ran for nothing, and if
// it goes on like that it takes a whole processor. Each connection counts its runs in vain that
// follow each other, and the process keeps the longest such row for the tests, which fail if it is
// more than one. Nothing reads it otherwise; a run that is not in vain costs a few instructions.

#include <atomic>
#include <cstdint>

#include "ae/abi.h"

namespace conn { inline namespace AECONN_ABI {

/// Of one connection.
class Vain {
 public:
  /// A handler begins to run.
  void begin() noexcept { bits_ &= kRows; }
  /// A call of the kind that this direction's handler invites has said EAGAIN.
  void refused(bool reading) noexcept { bits_ |= reading ? kReadRefused : kWriteRefused; }
  /// After the run: whether look() can make a difference.
  bool worth_a_look() const noexcept { return bits_ != 0; }
  /// `moved`: bytes were read (written) in this run. How many runs in a row have been in vain.
  unsigned look(bool reading, bool moved) noexcept {
    const unsigned shift = reading ? 0 : 3;
    const bool refused = (bits_ & (reading ? kReadRefused : kWriteRefused)) != 0;
    unsigned row = (bits_ >> shift) & kMost;
    if (moved)
      row = 0;
    else if (refused && row != kMost)
      ++row;
    bits_ = static_cast<std::uint8_t>((bits_ & ~(kMost << shift)) | row << shift);
    return !moved && refused ? row : 0;
  }

  /// Of any connection since this was last set to 0.
  static inline std::atomic<unsigned> longest_row{0};

 private:
  static constexpr unsigned kMost = 7;  // it counts no further
  static constexpr std::uint8_t kRows = 0x3f, kReadRefused = 0x40, kWriteRefused = 0x80;
  std::uint8_t bits_ = 0;  // two rows of three bits, and what was refused in this run
};

}}  // namespace conn
