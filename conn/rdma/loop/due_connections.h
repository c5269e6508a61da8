// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Lists of those connections of a loop for which something is due: to post requests, to be "reaped"
// (disconnected or torn down), to try again to get memory, or to post at a set time in a blocking
// operation. A connection is at most once in each list, and its LoopConnection::In says in which
// lists it is. Call make_room() for all connections first, so that adding one to a list allocates
// no memory. After forget() a connection is in no list.

#include <cstddef>
#include <vector>

#include "ae/abi.h"
#include "ae/hot_assert.h"
#include "ae/time.h"
#include "conn/rdma/loop/loop_connection.h"

namespace conn { inline namespace AECONN_ABI { namespace rdma {

class DueConnections {
 public:
  /// Reserves capacity for `connections` connections in every list. Throws std::bad_alloc.
  void make_room(std::size_t connections);
  /// Counts `user` as a connection with resources of a device, from now until forget().
  void attach(LoopConnection& user) noexcept;
  std::size_t attached() const noexcept { return attached_; }
  /// Removes `user` from all lists except that of connections to disconnect or tear down.
  void remove(LoopConnection& user) noexcept;
  /// Removes `user` from all lists, and no longer counts it in attached().
  void forget(LoopConnection& user) noexcept;

  // --- list of connections that have requests to post ---
  /// Adds `user` to the list of connections that have requests to post. Returns false if it is in
  /// that list already.
  bool add_to_flush(LoopConnection& user) noexcept {
    if (user.in_.flush) return false;
    user.in_.flush = true;
    dirty_.add(user);
    return true;
  }
  bool has_to_flush() const noexcept { return !dirty_.empty(); }
  /// Removes all connections from the list of those that have requests to post, and calls
  /// post_due() of each. Connections that are added during this call wait for the next one. Returns
  /// false if the list was empty.
  bool post_due() noexcept;

  // --- list of connections to reap (disconnect or tear down) -------------------------------------
  /// Adds `user` to the list of connections to reap. Returns false if it is in that list already.
  bool add_to_reap(LoopConnection& user) noexcept;
  bool has_to_reap() const noexcept { return !reap_.empty(); }
  /// Removes and returns the connection that has waited for the longest time to be reaped
  /// (disconnected or torn down). There must be one.
  LoopConnection& take_to_reap() noexcept;

  // --- list of connections that wait for memory ---
  void wait_for_memory(LoopConnection& user);
  /// Records that memory was released: wake_some() then lets the waiting connections try again.
  /// Returns false if no connection waits.
  bool memory_came_back() noexcept {
    memory_came_back_ = true;
    return !waiting_for_memory_.empty();
  }
  bool has_to_wake() const noexcept {
    return (memory_came_back_ || to_wake_ != 0) && !waiting_for_memory_.empty();
  }
  /// Removes up to 16 connections from the list of those that wait for memory, and calls their
  /// on_memory(). Each tries to get memory; one that gets none is appended to the list again.
  void wake_some();

  // --- list of connections that post at set times in blocking operations -------------------------
  void keep_pace_of(LoopConnection& user);
  /// Returns the earliest time at which a connection in the list must post (pace_at());
  /// TimePoint::max() if there is none.
  ae::TimePoint next_pace() const noexcept;
  /// Calls add_to_flush() for the connections in the list that must post at `now` or earlier
  /// (pace_at()). Returns false if that added none.
  bool flush_paced(ae::TimePoint now) noexcept;

 private:
  // A list of connections, for which capacity is reserved in advance.
  struct Dirty {
    void add(LoopConnection& user) noexcept {
      AECONN_HOT_ASSERT(count < users.size());
      users[count++] = &user;
    }
    bool empty() const noexcept { return count == 0; }
    // The first `count` elements are the list; the others are unused capacity.
    std::vector<LoopConnection*> users;
    std::size_t count = 0;
  };
  Dirty dirty_, flushing_;
  std::vector<LoopConnection*> reap_, waiting_for_memory_, paced_;
  std::size_t attached_ = 0;
  bool memory_came_back_ = false;
  // Number of connections in waiting_for_memory_ for which wake_some() must still call on_memory().
  std::size_t to_wake_ = 0;
};

}}}  // namespace conn::rdma
