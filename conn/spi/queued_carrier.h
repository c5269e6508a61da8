// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// QueuedCarrier: a base class for carriers whose readiness is computed instead of signalled by a
// descriptor. The transport says whether the connection is readable or writable, and this class
// keeps the carrier in the loop's ReadyList while a handler is due. The handlers run only from that
// list, never where a change is detected, so blocking operations may record changes without running
// a handler.

#include "ae/abi.h"
#include "conn/kit/ready_list.h"
#include "conn/spi/carrier.h"

namespace conn { inline namespace AECONN_ABI {

/// A carrier that computes when it is readable or writable, instead of watching a file descriptor.
/// Transports derive from it. To be used on the loop's thread.
class AECONN_API QueuedCarrier : public Carrier, public ReadyItem {
 protected:
  /// Creates a carrier whose due handlers `list` runs: the transport's ReadyList for the loop of
  /// the connection. detach_list() must be called before the list is destroyed.
  QueuedCarrier(const ConnectionType& type, ReadyList& list) : Carrier(type), list_(&list) {}

  // readable() and writable() are called only while the connection is connected or closed. In state
  // kError the host knows which handlers are due.

  /// Returns whether read() has something to return (bytes, end of stream or an error), so that it
  /// would not fail with EAGAIN.
  virtual bool readable() const = 0;
  /// Returns whether write() would not fail with EAGAIN, because the transport accepts data or has
  /// an error to report.
  virtual bool writable() const = 0;

  /// Called just before the read handler runs. Returns false if readable() was wrong and read()
  /// would still fail with EAGAIN; the handler then does not run. While readable() remains true,
  /// the carrier stays in the list, and the next iteration calls this function again.
  virtual bool ready_to_read() { return true; }

  /// Queues the carrier if a handler is due. To be called after anything that may have changed
  /// readable(), writable() or the state.
  void update_ready() noexcept {
    if (!queued()) look_if_ready();
  }
  /// Does the same as update_ready(), but must only be called if readable() is true. Faster for the
  /// usual connection, which is established and has a read handler.
  void update_readable() noexcept {
    if (queued()) return;
    if (only_reads() && list_ != nullptr && !closing()) [[likely]]
      list_->push(*this);
    else
      look_if_ready();
  }
  /// Puts the carrier into its list if a handler is due. An override must also call update_ready().
  void interest_changed() override { update_ready(); }
  /// Runs the handlers that are due, in the order connect, read, write; with Barrier::kYes the
  /// write handler runs before the read handler. Returns how many ran.
  std::size_t run_ready() override;
  /// Runs the write handler if it is due. Returns the number of handlers that ran.
  std::size_t run_write_if_due() {
    if (!host().wants_write() || !write_due()) return 0;
    (void)host().run_write_handler();
    return 1;
  }
  /// Removes this carrier from its list, which is not used afterwards. To be called in abandon(),
  /// before the list is destroyed. (The destructor of a carrier also removes it from the list.)
  void detach_list() noexcept;
  /// Sets the ReadyList of the new loop. To be called after the connection has moved to another
  /// loop.
  void attach_list(ReadyList& list) noexcept { list_ = &list; }

 private:
  void look_if_ready() noexcept;
  bool connect_due() const noexcept;
  bool read_due() const;
  bool write_due() const;
  ReadyList* list_;
};

}}  // namespace conn
