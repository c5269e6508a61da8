// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Bookkeeping for MSG_ZEROCOPY: which references sent by a connection the kernel still reads. The
// kernel numbers the send calls it accepts from 0 on, modulo 2^32, and reports completed calls on
// the socket's error queue, in ranges, not always in order
// (Documentation/networking/msg_zerocopy.rst).

#include <bitset>
#include <cstddef>
#include <cstdint>

#include "ae/abi.h"

namespace conn { inline namespace AECONN_ABI { namespace tcp {

/// Independent of any socket. A reference is sent by one or several calls; references complete in
/// order.
class ZeroCopyLedger {
 public:
  /// Maximum number of calls in flight; beyond it bytes must be sent by ordinary calls.
  static constexpr std::uint32_t kMostCalls = 1024;
  /// Maximum number of references begun and not yet returned by take_done(); the caller of begin()
  /// must not exceed it.
  static constexpr std::uint32_t kMostReferences = 64;

  explicit ZeroCopyLedger(std::uint32_t first_call = 0) noexcept
      : first_(first_call), next_(first_call) {}

  /// Begins the next reference: calls from here on belong to it.
  void begin() noexcept;
  /// The kernel accepted a call of the current reference.
  void sent() noexcept { ++next_; }
  /// The kernel has all of the current reference, or the rest will never be sent.
  void finish() noexcept;
  bool open() const noexcept { return open_; }  ///< between begin() and finish()
  bool has_room() const noexcept { return next_ - first_ < kMostCalls; }

  /// The kernel is done with the calls from `from` to `to`, both included. A range that contains
  /// calls it was never given is ignored.
  void completed(std::uint32_t from, std::uint32_t to) noexcept;
  /// The kernel is done with all calls.
  void complete_all() noexcept;
  /// The number of references that completed since the last call of take_done(); they are the
  /// oldest ones.
  std::size_t take_done() noexcept;
  /// Whether there are references that are not done, or not yet returned by take_done().
  bool waits() const noexcept { return oldest_ != newest_; }
  /// Whether the kernel still reads memory of a reference.
  bool under_way() const noexcept { return first_ != next_; }

 private:
  std::uint32_t first_, next_;    // calls before first_ are completed, calls before next_ made
  std::bitset<kMostCalls> over_;  // completed calls between them, indexed modulo its size
  std::uint32_t ends_[kMostReferences];  // for each reference, the call after its last
  std::uint32_t oldest_ = 0, newest_ = 0;
  bool open_ = false;
};

/// What was read from the error queue of a socket.
struct ZeroCopyNews {
  bool any = false;     ///< the queue was not empty
  bool copied = false;  ///< the kernel copied the bytes after all
};
/// Empties the error queue of `fd` and records the completions in `ledger`.
ZeroCopyNews read_completions(int fd, ZeroCopyLedger& ledger) noexcept;
/// Enables MSG_ZEROCOPY on `fd`. False if that is impossible, or if it was enabled before: other
/// code may then have made calls, which are not numbered here.
bool allow_zero_copy(int fd) noexcept;

}}}  // namespace conn::tcp
