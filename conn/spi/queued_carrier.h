// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Base class for carriers whose readiness is computed instead of signalled by a descriptor: the
// transport reports its state, and this class keeps it in the loop's ReadyList while a
// handler is due. All its handlers run from the list, never where a change is
// detected, so blocking operations may record changes without running a handler.

#include "ae/abi.h"
#include "conn/kit/ready_list.h"
#include "conn/spi/carrier.h"

namespace conn { inline namespace AECONN_ABI {

/// Derive from it if readiness is computed. On the loop's thread.
class AECONN_API QueuedCarrier : public Carrier, public ReadyItem {
 protected:
  /// `list`: the transport's list for this loop; call detach_list() before
  /// it is destroyed.
  QueuedCarrier(const ConnectionType& type, ReadyList& list) : Carrier(type), list_(&list) {}

  // Called only while connected or closed; in kError the host knows what is due.
  /// Whether read() would not fail with EAGAIN: it has bytes, end of stream or an error to report.
  virtual bool readable() const = 0;
  /// Whether write() would not fail with EAGAIN: it accepts data, or has an error to report.
  virtual bool writable() const = 0;

  /// Called just before the read handler runs. Returns false if readable() was inexact and read()
  /// would still fail with EAGAIN; the handler is then due in the next iteration.
  virtual bool ready_to_read() { return true; }

  /// Call after anything that may have changed readable(), writable() or the state.
  void update_ready() noexcept;
  /// An override must also call update_ready().
  void interest_changed() override { update_ready(); }
  /// Runs the handlers that are due: connect, read and write, or write before read with a barrier.
  std::size_t run_ready() override;
  /// Call in abandon(), before the list is destroyed. (A carrier that is destroyed leaves the list.)
  void detach_list() noexcept;
  /// Call after a move to another loop.
  void attach_list(ReadyList& list) noexcept { list_ = &list; }

 private:
  bool connect_due() const noexcept;
  bool read_due() const;
  bool write_due() const;
  ReadyList* list_;
};

}}  // namespace conn
