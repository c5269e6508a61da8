// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Zero-copy sending on one socket (MSG_ZEROCOPY): memory of the program is lent to the kernel,
// which reads it while it sends. Invariant: while is_lent(), the kernel may read lent memory. That
// memory belongs to the library until a completion of the kernel returns it, or until the socket is
// reset.

#include <sys/types.h>
#include <unistd.h>

#include <cstddef>
#include <memory>
#include <span>
#include <utility>

#include "ae/abi.h"
#include "conn/tcp/zero_copy_ledger.h"

namespace conn { inline namespace AECONN_ABI { namespace tcp {

/// Returns whether the connection was reset while bytes were unsent. The kernel then returns lent
/// memory although the peer has not acknowledged these bytes.
bool is_cut(int fd) noexcept;

class ZeroCopySender {
 public:
  /// `given_up` is set to true when zero-copy sending is given up: it is impossible on this socket,
  /// a limit of the kernel is reached, the kernel has copied bytes after all, or give_up() was
  /// called. The variable must outlive this object.
  explicit ZeroCopySender(bool& given_up) noexcept : given_up_(given_up) {}
  /// Enables zero-copy sending on `fd`, at the first call. Returns false if zero-copy sending is
  /// impossible; it is then impossible at later calls as well. Throws std::bad_alloc.
  bool begin(int fd);
  bool active() const noexcept { return ledger_ != nullptr; }
  /// Whether zero-copy sending was given up: the kernel copies the bytes of send() from then on.
  bool given_up() const noexcept { return given_up_; }
  void give_up() noexcept { given_up_ = true; }
  /// Whether a reference (a piece of memory passed to send()) has been sent only in part, so that
  /// the next send() must continue it.
  bool goes_on() const noexcept { return active() && ledger_->open(); }
  /// Sends bytes of the current reference and returns what send(2) returns. If zero-copy sending
  /// was given up (given_up()), the kernel copies the bytes. Sets `all_done` if the kernel has
  /// accepted the whole reference and reads no lent memory any more.
  ssize_t send(int fd, std::span<const std::byte> bytes, bool& all_done) noexcept;
  /// Reads zero-copy completions from the error queue of the socket `fd`. Returns true if there
  /// were any.
  bool take_completions(int fd) noexcept;
  /// Returns whether take_completions() has found any completion since the last call of
  /// had_completions().
  bool had_completions() noexcept { return std::exchange(had_completions_, false); }
  /// Ends the current reference (piece of memory); the rest of it will never be sent.
  void stop() noexcept { ledger_->finish(); }
  /// Returns how many references were completed since the last call of take_done(). They are always
  /// the oldest ones.
  std::size_t take_done() noexcept { return ledger_->take_done(); }
  /// Ends zero-copy sending if it was given up (given_up()) and all references are completed.
  /// Returns true if this call has ended it.
  bool end_if_idle() noexcept;
  /// Records that the peer has acknowledged all bytes, so that the kernel reads no more lent
  /// memory.
  void acknowledged() noexcept;
  bool is_lent() const noexcept { return active() && ledger_->under_way(); }
  /// False in a child of fork(): completions on an inherited socket belong to the parent process.
  bool is_ours() const noexcept { return owner_ == getpid(); }
  /// Returns the record of the memory that the kernel still reads; a Linger needs it after close().
  ZeroCopyLedger* ledger() noexcept { return ledger_.get(); }

 private:
  std::unique_ptr<ZeroCopyLedger> ledger_;
  pid_t owner_ = 0;
  bool had_completions_ = false;
  bool& given_up_;
};

}}}  // namespace conn::tcp
