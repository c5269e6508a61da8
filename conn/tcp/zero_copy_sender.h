// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Zero-copy sending on one socket: memory of the program that the kernel reads (MSG_ZEROCOPY).
// Invariant: while is_lent(), the kernel may read memory that belongs to the library until it comes
// back with a completion, or until the socket is reset.

#include <sys/types.h>
#include <unistd.h>

#include <cstddef>
#include <memory>
#include <span>
#include <utility>

#include "ae/abi.h"
#include "conn/tcp/zero_copy_ledger.h"

namespace conn { inline namespace AECONN_ABI { namespace tcp {

/// Whether the connection was reset with bytes unsent: then the kernel also returns lent memory,
/// although the peer has not acknowledged the bytes.
bool is_cut(int fd) noexcept;

class ZeroCopySender {
 public:
  /// Prepares `fd` for it, at the first call. False: it is impossible, now and later. Throws
  /// std::bad_alloc.
  bool begin(int fd);
  bool active() const noexcept { return ledger_ != nullptr; }
  bool given_up() const noexcept { return given_up_; }  ///< bytes are copied from now on
  void give_up() noexcept { given_up_ = true; }
  /// Between the first and the last call for one reference.
  bool goes_on() const noexcept { return active() && ledger_->open(); }
  /// As send(2), for the current reference; while given_up() it copies. `all_done`: the kernel has
  /// taken all of it and reads none of it.
  ssize_t send(int fd, std::span<const std::byte> bytes, bool& all_done) noexcept;
  /// Reads completions; true if there were any.
  bool take_completions(int fd) noexcept;
  bool had_completions() noexcept {
    return std::exchange(had_completions_, false);
  }  ///< since then
  /// The rest of the current reference is never sent.
  void stop() noexcept { ledger_->finish(); }
  /// How many references are done, of the oldest, since the last call.
  std::size_t take_done() noexcept { return ledger_->take_done(); }
  /// After give_up(), once nothing waits: ends it. True if it was active until now.
  bool end_if_idle() noexcept;
  /// The peer has acknowledged everything that was sent: the kernel reads no memory any more.
  void acknowledged() noexcept;
  bool is_lent() const noexcept { return active() && ledger_->under_way(); }
  /// Not in a child of fork(): there completions are the parent's.
  bool is_ours() const noexcept { return owner_ == getpid(); }
  ZeroCopyLedger* ledger() noexcept { return ledger_.get(); }  ///< for a linger

 private:
  std::unique_ptr<ZeroCopyLedger> ledger_;
  pid_t owner_ = 0;
  bool had_completions_ = false;
  bool given_up_ = false;
};

}}}  // namespace conn::tcp
