// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// MSG_ZEROCOPY: which of the references that a connection sends are still read by the kernel. It
// numbers the calls that it took from 0 on, modulo 2^32, and tells on the socket's error queue
// which are over, in ranges, not always in order (Documentation/networking/msg_zerocopy.rst).

#include <bitset>
#include <cstddef>
#include <cstdint>

#include "ae/abi.h"

namespace conn { inline namespace AECONN_ABI { namespace tcp {

/// Knows no socket. A reference is sent by one call or several; references are done in order.
class ZeroCopyLedger {
 public:
  /// Calls under way at most; beyond it bytes are to be sent by ordinary calls.
  static constexpr std::uint32_t kMostCalls = 1024;
  /// References that were begun and are not done; who begins one more must know of a done one.
  static constexpr std::uint32_t kMostReferences = 64;

  explicit ZeroCopyLedger(std::uint32_t first_call = 0) noexcept
      : first_(first_call), next_(first_call) {}

  /// Another reference: what is sent from here on belongs to it.
  void begin() noexcept;
  /// The kernel took a call of it.
  void sent() noexcept { ++next_; }
  /// All of it is with the kernel, or the rest will never be.
  void finish() noexcept;
  bool open() const noexcept { return open_; }  ///< between begin() and finish()
  bool has_room() const noexcept { return next_ - first_ < kMostCalls; }

  /// The kernel is done with the calls from `from` to `to`, both included. What it was never given
  /// is ignored.
  void completed(std::uint32_t from, std::uint32_t to) noexcept;
  /// It is done with all of them.
  void complete_all() noexcept;
  /// How many references are done since this was last asked: the oldest of those that are not.
  std::size_t take_done() noexcept;
  /// Whether there are references that are not done, or were not asked for.
  bool waits() const noexcept { return oldest_ != newest_; }
  /// Whether the kernel still reads.
  bool under_way() const noexcept { return first_ != next_; }

 private:
  std::uint32_t first_, next_;           // calls: over before first_, made before next_
  std::bitset<kMostCalls> over_;         // of those between, modulo its size
  std::uint32_t ends_[kMostReferences];  // of each reference: the call after its last
  std::uint32_t oldest_ = 0, newest_ = 0;
  bool open_ = false;
};

/// What the error queue of a socket said.
struct ZeroCopyNews {
  bool any = false;     ///< there was something in the queue
  bool copied = false;  ///< the kernel has copied after all
};
/// Empties the error queue of `fd` into `ledger`.
ZeroCopyNews read_completions(int fd, ZeroCopyLedger& ledger) noexcept;
/// Lets `fd` take MSG_ZEROCOPY. False where it cannot, or where somebody made calls before us.
bool allow_zero_copy(int fd) noexcept;

}}}  // namespace conn::tcp
