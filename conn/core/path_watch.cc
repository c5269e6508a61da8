// SPDX-License-Identifier: BSD-3-Clause
#include "conn/core/path_watch.h"

#include <cstddef>
#include <utility>

#include "conn/core/connection_core.h"
#include "conn/core/connection_set.h"

namespace conn { inline namespace AECONN_ABI {

void unqueue(PathWatch& watch) noexcept { watch.leave_list(); }

void drop(PathWatch& watch) noexcept { watch.drop(); }

bool take_waiting(PathWatch& watch) noexcept { return watch.take_waiting(); }

void DropPathWatch::operator()(PathWatch* watch) const noexcept { delete watch; }

void Connection::set_path_handler(Handler handler) {
  ConnectionCore& c = ConnectionCore::of(*this);
  if (c.given_up()) return;
  if (!handler) {
    if (c.rare_ && c.rare_->path) c.rare_->path->handler.clear();
    return;
  }
  ConnectionCore::Rare& rare = c.rare();
  if (!rare.path) {
    if (c.set_ != nullptr) (void)c.set_->ready(*c.loop_);
    rare.path.reset(new PathWatch(c));
  }
  rare.path->handler.set(std::move(handler));
}

void ConnectionCore::path_changed() noexcept {
  if (!rare_ || !rare_->path || set_ == nullptr || given_up()) return;
  if (ReadyList* const due = set_->ready(); due != nullptr) due->push(*rare_->path);
}

/// Runs the program's handler for a changed network path. Returns 1; or 0 if it may not run now.
std::size_t PathWatch::run_ready() {
  ConnectionCore& connection = connection_;
  // The connect handler must run first. That may take long (during a TLS handshake), so the path
  // handler does not wait in the list, where it would keep the loop from sleeping.
  waits_ = connection.connect_due();
  if (waits_) return 0;
  if (!handler || handler.running()) return 0;
  const ConnectionCore::Running running{connection.running_};
  handler.run(connection);
  return 1;
}

}}  // namespace conn
