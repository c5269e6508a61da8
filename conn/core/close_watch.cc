// SPDX-License-Identifier: BSD-3-Clause
#include "conn/core/close_watch.h"

#include <cstddef>
#include <utility>

#include "conn/core/connection_core.h"
#include "conn/core/connection_set.h"

namespace conn { inline namespace AECONN_ABI {

void unqueue(CloseWatch& watch) noexcept { watch.unqueue(); }

void DropCloseWatch::operator()(CloseWatch* watch) const noexcept { delete watch; }

bool ConnectionCore::wants_close() const noexcept { return close_watch_ && !close_watch_->due(); }

bool CloseWatch::due() const noexcept {
  return connection_.gone() && (when == CloseOn::kEnd || connection_.carrier().why_ended());
}

void ConnectionCore::queue_close() noexcept {
  if (!close_watch_ || set_ == nullptr || !close_watch_->due()) return;
  if (ReadyList* const due = set_->ready(); due != nullptr) due->push(*close_watch_);
}

/// Runs the connection's close handler. Returns 1; or 0 if the handler may not run now.
std::size_t CloseWatch::run_ready() {
  ConnectionCore& connection = connection_;
  if (connection.connect_due()) {  // the connect handler has not run yet, and must run first
    connection.queue_close();
    return 0;
  }
  // This object is kept until the handler has returned, so that the handler can set another close
  // handler without allocating memory.
  const Connection::Handler due = std::exchange(handler, nullptr);
  // The handler is already executing, and this is a nested iteration of the loop that it runs.
  if (!due) return 0;
  {
    ConnectionCore::Running running{connection.running_};
    // The destructor removes the CloseWatch of a handler that has run, even if the handler threw.
    // It does not use this object, which the handler may have destroyed.
    struct Then {
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
