// SPDX-License-Identifier: BSD-3-Clause
#include "conn/core/close_watch.h"

#include <utility>

namespace conn { inline namespace AECONN_ABI {

std::size_t CloseWatch::run_ready() {
  ConnectionCore& connection = connection_;
  if (connection.connect_due()) {  // the connect handler is also due and runs first
    connection.queue_close();
    return 0;
  }
  // This object is kept until the handler has returned: setting another then needs no memory.
  const Connection::Handler due = std::exchange(handler, nullptr);
  if (!due) return 0;  // the handler is running; this is a nested iteration
  {
    ConnectionCore::Running running{connection.running_};
    struct Then {  // also after an exception; the handler may have destroyed this object
      ConnectionCore& connection;
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
