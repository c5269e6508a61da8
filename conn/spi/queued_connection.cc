// SPDX-License-Identifier: BSD-3-Clause
#include "conn/spi/queued_connection.h"

namespace conn { inline namespace AECONN_ABI {

bool QueuedConnection::connect_due() const noexcept {
  return on_connect_ && (state() == State::kConnected || state() == State::kError);
}

bool QueuedConnection::read_due() const {
  if (!on_read_ || on_connect_) return false;
  switch (state()) {
    case State::kConnected:
      return readable();
    case State::kClosed:
      return true;  // to report the end of the stream
    case State::kError:
      return error_unread();  // only until a read has reported it, or the loop would never sleep
    default:
      return false;
  }
}

bool QueuedConnection::write_due() const {
  if (!write_wanted() || on_connect_) return false;
  switch (state()) {
    case State::kConnected:
    case State::kClosed:
      return writable();
    case State::kError:
      return error_unwritten();
    default:
      return false;
  }
}

void QueuedConnection::update_ready() noexcept {
  if (list_ == nullptr || closing()) return;
  if (connect_due() || read_due() || write_due()) list_->push(*this);
}

std::size_t QueuedConnection::run_ready() {
  struct Requeue {  // also after a handler that throws
    QueuedConnection& connection;
    ~Requeue() { connection.update_ready(); }
  } requeue{*this};
  std::size_t ran = 0;
  if (connect_due()) {
    ++ran;
    if (dispatch_connect() == Alive::kGone) return ran;
  }
  const bool write_first = barrier_ == Barrier::kYes;
  for (const bool writing : {write_first, !write_first}) {
    if (!(writing ? write_due() : read_due())) continue;
    if (!writing && state() == State::kConnected && !ready_to_read()) continue;
    ++ran;
    const Alive alive = writing ? dispatch_write() : dispatch(on_read_);
    if (alive == Alive::kGone) return ran;
  }
  return ran;
}

void QueuedConnection::detach_list() noexcept {
  unqueue();
  list_ = nullptr;
}

}}  // namespace conn
