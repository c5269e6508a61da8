// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// A connection's path handler: runs from a list of the loop after the path was lost and after
// another was found. It is allocated on demand, since most connections have none.

#include <utility>

#include "ae/abi.h"
#include "ae/core/handler_slot.h"
#include "conn/connection.h"
#include "conn/kit/ready_list.h"

namespace conn { inline namespace AECONN_ABI {

class ConnectionCore;

class PathWatch final : public ReadyItem {
 public:
  explicit PathWatch(ConnectionCore& connection) noexcept : connection_(connection) {}
  ae::HandlerSlot<void(Connection&)> handler;
  /// Removes the handler, which then does not run even if it was due.
  void drop() noexcept {
    unqueue();
    waits_ = false;
    handler.clear();
  }
  /// Returns whether the handler is due but has to wait until the connect handler has run; from now
  /// on it no longer waits.
  bool take_waiting() noexcept { return std::exchange(waits_, false); }

 private:
  std::size_t run_ready() override;
  ConnectionCore& connection_;
  bool waits_ = false;
};

}}  // namespace conn
