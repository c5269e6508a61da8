// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// A Connection whose readiness is a rule instead of a descriptor's: the transport says what it has,
// this class keeps the connection in the loop's ReadyList while a handler is due. All handlers of
// such a connection run from the list, never from the place where a fact is learnt, so facts may
// be recorded inside blocking operations without a handler running there.

#include "ae/abi.h"
#include "conn/connection.h"
#include "conn/kit/ready_list.h"

namespace conn { inline namespace AECONN_ABI {

/// Derive from it where readiness is a rule. On the loop's thread, as any Connection.
class AECONN_API QueuedConnection : public Connection, public ReadyItem {
 protected:
  /// In state kNone. `list`: the transport's of this loop; before it goes, detach_list().
  QueuedConnection(const ConnectionType& type, ae::EventLoop& loop, ReadyList& list)
      : Connection(type, loop), list_(&list) {}

  // Asked only while connected or closed: in kError the base knows what is due.
  /// read() would not say EAGAIN: bytes, end of stream or an error to collect.
  virtual bool readable() const = 0;
  /// write() would not say EAGAIN: room, or an error to collect.
  virtual bool writable() const = 0;

  /// Just before the read handler runs: false where readable() cannot tell and read() would say
  /// EAGAIN after all, for now. The handler is due in the next iteration then.
  virtual bool ready_to_read() { return true; }

  /// Call after anything that may have changed readable(), writable() or the state.
  void update_ready() noexcept;
  /// One that overrides it has to call update_ready(), too.
  void handlers_changed() override { update_ready(); }
  /// Runs what is due: connect, read and write handler, the latter first with a barrier.
  std::size_t run_ready() override;
  void detach_list() noexcept;  ///< The list is going (the loop dies), or the connection is.
  void attach_list(ReadyList& list) noexcept { list_ = &list; }  ///< It came to another loop.

 private:
  bool connect_due() const noexcept;
  bool read_due() const;
  bool write_due() const;
  ReadyList* list_;
};

}}  // namespace conn
