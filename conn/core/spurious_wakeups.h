// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// SpuriousWakeups: detects handlers that run in vain. A read handler signals that there is
// something to read, a write handler that the transport accepts data. If the corresponding call
// then fails with EAGAIN, the handler ran for nothing; if that repeats, it uses a whole processor.
// Each connection counts its consecutive runs in vain, and the process keeps the longest such
// series for the tests, which fail if it is longer than one. The library uses the number for
// nothing else. For a run that is not in vain, counting costs a few instructions.

#include <atomic>
#include <cstdint>

#include "ae/abi.h"

namespace conn { inline namespace AECONN_ABI {

/// Counts how often in succession a connection's handlers ran in vain, without reading or writing
/// anything.
class SpuriousWakeups {
 public:
  /// To be called before a read or write handler of the connection runs. Forgets which calls have
  /// failed with EAGAIN.
  void begin() noexcept {
    if (bits_ > kRows) [[unlikely]]
      bits_ &= kRows;
  }
  /// Records that a read (`reading` is true) or a write (false) has failed with EAGAIN.
  void refused(bool reading) noexcept { bits_ |= reading ? kReadRefused : kWriteRefused; }
  /// Returns whether look() must be called after the handler has run.
  bool worth_a_look() const noexcept { return bits_ != 0; }
  /// To be called after a handler has run: counts whether it ran in vain. `moved`: whether the read
  /// handler (`reading` is true) has read, or the write handler (false) has written, any bytes.
  /// Returns the number of consecutive runs in vain.
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

  /// The highest number of consecutive runs in vain of any connection's handler, since the program
  /// last set it to 0.
  static inline std::atomic<unsigned> longest_row{0};

 private:
  // The highest number of consecutive runs in vain that is counted.
  static constexpr unsigned kMost = 7;
  static constexpr std::uint8_t kRows = 0x3f, kReadRefused = 0x40, kWriteRefused = 0x80;
  // Two counters of three bits, for consecutive runs in vain of the read and the write handler; and
  // two bits for the kinds of call (read, write) that failed with EAGAIN in the current run.
  std::uint8_t bits_ = 0;
};

}}  // namespace conn
