// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// PathWatch: a connection's path handler. It runs from a list of the loop after the connection has
// lost its path (network route and devices), and after another path was found. It is allocated on
// demand, since most connections have none.

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
  /// Removes this object from the list of the loop that the connection leaves. The handler stays
  /// due if it was.
  void leave_list() noexcept {
    waits_ = waits_ || queued();
    unqueue();
  }
  /// Returns whether the path handler is due, but was postponed: because the connect handler had
  /// not run yet, or because the connection moved to another loop. Resets that state.
  bool take_waiting() noexcept { return std::exchange(waits_, false); }

 private:
  std::size_t run_ready() override;
  ConnectionCore& connection_;
  bool waits_ = false;
};

}}  // namespace conn
