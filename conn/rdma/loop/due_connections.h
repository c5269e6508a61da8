// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The lists of a loop's connections that something is due for: to post, to reap (disconnect or tear
// down), to wake when there is memory again, to keep the pace of in blocking operations. A
// connection is at most once in each, and its LoopConnection::In says in which. make_room() was
// called for all connections, so that being listed needs no memory; after forget() a connection is
// in no list.

#include <cstddef>
#include <vector>

#include "ae/abi.h"
#include "ae/time.h"
#include "conn/rdma/loop/loop_connection.h"

namespace conn { inline namespace AECONN_ABI { namespace rdma {

class DueConnections {
 public:
  /// Reserves capacity for that many connections in every list.
  void make_room(std::size_t connections);
  /// `user` holds resources of a device, until forget().
  void attach(LoopConnection& user) noexcept;
  std::size_t attached() const noexcept { return attached_; }
  /// Removes it from the lists, except that of connections to reap.
  void remove(LoopConnection& user) noexcept;
  /// Removes it from all lists.
  void forget(LoopConnection& user) noexcept;

  // --- to post ---
  /// False: it is in the list already.
  bool add_to_flush(LoopConnection& user) noexcept;
  bool has_to_flush() const noexcept { return !dirty_.empty(); }
  /// Calls post_due() of those in the list. Users that are added meanwhile wait for the next call.
  /// False: there were none.
  bool post_due() noexcept;

  // --- to reap ---
  /// False: it is in the list already.
  bool add_to_reap(LoopConnection& user) noexcept;
  bool has_to_reap() const noexcept { return !reap_.empty(); }
  /// Removes and returns the one that has waited longest; the list must not be empty.
  LoopConnection& take_to_reap() noexcept;

  // --- to wake when there is memory ---
  void wait_for_memory(LoopConnection& user);
  /// Memory was given back. False: nobody waits for it.
  bool memory_came_back() noexcept {
    memory_came_back_ = true;
    return !waiting_for_memory_.empty();
  }
  bool has_to_wake() const noexcept {
    return (memory_came_back_ || to_wake_ != 0) && !waiting_for_memory_.empty();
  }
  /// Calls on_memory() of a few. Each retries once; those without success go to the end of the
  /// list.
  void wake_some();

  // --- to keep the pace of ---
  void keep_pace_of(LoopConnection& user);
  /// The earliest pace_at(); TimePoint::max() if there is none.
  ae::TimePoint next_pace() const noexcept;
  /// add_to_flush() for those whose time has come. False: there were none.
  bool flush_paced(ae::TimePoint now) noexcept;

 private:
  std::vector<LoopConnection*> dirty_, flushing_, reap_, waiting_for_memory_, paced_;
  std::size_t attached_ = 0;
  bool memory_came_back_ = false;
  std::size_t to_wake_ = 0;  // of waiting_for_memory_, since memory was given back
};

}}}  // namespace conn::rdma
