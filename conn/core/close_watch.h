// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The close handler of a connection. It is allocated on demand, because most connections have none,
// and runs from a list of the loop, independent of the transport. Included only by
// connection_core.cc, connection_set.cc and operations.cc.

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

 private:
  std::size_t run_ready() override;
  ConnectionCore& connection_;
};

/// The close handlers of one loop that are due to run, and the connect handlers of attempts that
/// failed inside connect(). A member of the loop's ConnectionSet.
class DueToClose final : public ReadyList {
 public:
  explicit DueToClose(ae::EventLoop& loop) : ReadyList(loop) { loop.add_source(*this); }
  ~DueToClose() override { loop().remove_source(*this); }
};

}}  // namespace conn
