// SPDX-License-Identifier: BSD-3-Clause
#include "conn/core/close_watch.h"

#include <utility>

namespace conn { inline namespace AECONN_ABI {

std::size_t CloseWatch::run_ready() {
  Connection& connection = connection_;
  if (connection.on_connect_) {  // which runs first, and is due as well
    connection.queue_close();
    return 0;
  }
  // Its place stays until the handler has returned: one that sets another needs no memory.
  const Connection::Handler due = std::exchange(handler, nullptr);
  if (!due) return 0;  // it is running, and this is an iteration nested in it
  {
    Connection::Running running{connection.running_};
    struct Then {  // also if it throws. What it did may have destroyed this object
      Connection& connection;
      ~Then() {
        if (connection.close_watch_ && !connection.close_watch_->handler)
          connection.close_watch_.reset();
      }
    } then{connection};
    due(connection);
  }
  return 1;
}

}}  // namespace conn
