// SPDX-License-Identifier: BSD-3-Clause
#include "conn/detail/close_watch.h"

#include <memory>

namespace conn::inline AECONN_ABI {

std::size_t CloseWatch::run_ready() {
  Connection& connection = connection_;
  if (connection.on_connect_) {  // which runs first, and is due as well
    connection.queue_close();
    return 0;
  }
  const std::unique_ptr<CloseWatch> self = std::move(connection.close_watch_);
  Connection::Running running{connection.running_};
  handler(connection);
  return 1;
}

}  // namespace conn::inline AECONN_ABI
