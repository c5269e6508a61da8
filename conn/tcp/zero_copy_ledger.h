// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Bookkeeping for MSG_ZEROCOPY: which references (pieces of memory passed to send()) of a
// connection the kernel still reads. The kernel numbers the send calls it accepts from 0 on, modulo
// 2^32, and reports completed calls on the socket's error queue, in ranges, not always in order
// (Documentation/networking/msg_zerocopy.rst).

#include <bitset>
#include <cstddef>
#include <cstdint>

#include "ae/abi.h"

namespace conn { inline namespace AECONN_ABI { namespace tcp {

/// Keeps account of send calls and their completions, without using a socket itself. A reference is
/// sent by one or several calls. References complete in the order in which they began.
class ZeroCopyLedger {
 public:
  /// Maximum number of zero-copy send calls that the kernel has not completed. Once it is reached,
  /// bytes must be sent by ordinary calls.
  static constexpr std::uint32_t kMostCalls = 1024;
  /// Maximum number of references (pieces of memory) begun and not yet returned by take_done(); the
  /// caller of begin() must not exceed it.
  static constexpr std::uint32_t kMostReferences = 64;

  explicit ZeroCopyLedger(std::uint32_t first_call = 0) noexcept
      : first_(first_call), next_(first_call) {}

  /// Begins the next reference, that is, piece of memory: subsequent send calls belong to it.
  void begin() noexcept;
  /// Records that the kernel accepted a zero-copy send call for the current reference.
  void sent() noexcept { ++next_; }
  /// Ends the current reference: either the kernel has accepted all of its bytes, or the rest will
  /// never be sent.
  void finish() noexcept;
  /// Whether a reference (piece of memory) is being sent: true between begin() and finish().
  bool open() const noexcept { return open_; }
  bool has_room() const noexcept { return next_ - first_ < kMostCalls; }

  /// Records that the kernel has completed the zero-copy send calls number `from` to `to`, both
  /// included. Ignores a range that contains calls that were never made.
  void completed(std::uint32_t from, std::uint32_t to) noexcept;
  /// Records that the kernel has completed all zero-copy calls and reads no more lent memory.
  void complete_all() noexcept;
  /// Returns how many references were completed since the last call of take_done(). They are always
  /// the oldest ones.
  std::size_t take_done() noexcept;
  /// Whether any reference (piece of memory) is not completed, or not yet returned by take_done().
  bool waits() const noexcept { return oldest_ != newest_; }
  /// Whether the kernel still reads lent memory: it has not completed all zero-copy send calls.
  bool under_way() const noexcept { return first_ != next_; }

 private:
  // numbers of the oldest zero-copy send call that is not completed, and of the next call
  std::uint32_t first_, next_;
  // which send calls from number first_ on are completed; index: call number modulo kMostCalls
  std::bitset<kMostCalls> over_;
  // For each reference (piece of memory), the number of its last send call plus 1.
  std::uint32_t ends_[kMostReferences];
  std::uint32_t oldest_ = 0, newest_ = 0;
  bool open_ = false;
};

/// What read_completions() found in the error queue of a socket.
struct ZeroCopyNews {
  bool any = false;     ///< true if the error queue held any message
  bool copied = false;  ///< true if the kernel copied the bytes, although zero-copy was requested
};
/// Reads the error queue of the socket `fd` until it is empty, and records the zero-copy
/// completions in `ledger`.
ZeroCopyNews read_completions(int fd, ZeroCopyLedger& ledger) noexcept;
/// Enables MSG_ZEROCOPY on `fd`. Returns false if that is impossible, or if it was enabled before:
/// other code may then have made zero-copy calls, which are not counted in the call numbers here.
bool allow_zero_copy(int fd) noexcept;

}}}  // namespace conn::tcp
