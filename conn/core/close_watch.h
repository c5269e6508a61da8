// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// CloseWatch: a connection's close handler. It is allocated on demand, since most connections have
// none, and runs from a list of the loop, independent of the transport.

#include "ae/abi.h"
#include "conn/connection.h"
#include "conn/kit/ready_list.h"

namespace conn { inline namespace AECONN_ABI {

class ConnectionCore;

class CloseWatch final : public ReadyItem {
 public:
  explicit CloseWatch(ConnectionCore& connection) noexcept : connection_(connection) {}
  Connection::Handler handler;
  CloseOn when = CloseOn::kEnd;
  /// Returns whether the handler's event (the peer's end of stream, or a failure) has happened.
  bool due() const noexcept;

 private:
  std::size_t run_ready() override;
  ConnectionCore& connection_;
};

}}  // namespace conn
