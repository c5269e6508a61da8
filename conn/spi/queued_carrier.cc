// SPDX-License-Identifier: BSD-3-Clause
#include "conn/spi/queued_carrier.h"

namespace conn { inline namespace AECONN_ABI {

bool QueuedCarrier::connect_due() const noexcept {
  return host().connect_due() && (state() == State::kConnected || state() == State::kError);
}

bool QueuedCarrier::read_due() const {
  if (!host().wants_read() || host().connect_due()) return false;
  switch (state()) {
    case State::kConnected:
      return readable();
    case State::kClosed:
      // The read handler is due, so that the program learns of the end of the stream.
      return true;
    case State::kError:
      return host()
          // The handler is due only until a read has reported the failure. If it stayed due, the
          // loop could not sleep.
          .error_unread();
    default:
      return false;
  }
}

bool QueuedCarrier::write_due() const {
  if (!host().wants_write() || host().connect_due()) return false;
  switch (state()) {
    case State::kConnected:
    case State::kClosed:
      return writable();
    case State::kError:
      return host().error_unwritten();
    default:
      return false;
  }
}

void QueuedCarrier::look_if_ready() noexcept {
  if (list_ == nullptr || closing()) return;
  if (only_reads()) {
    if (readable()) list_->push(*this);
    return;
  }
  if (connect_due() || read_due() || write_due()) list_->push(*this);
}

std::size_t QueuedCarrier::run_ready() {
  struct Requeue {  // the destructor queues the carrier again, even if a handler throws
    QueuedCarrier& carrier;
    ~Requeue() { carrier.update_ready(); }
  } requeue{*this};
  std::size_t ran = 0;
  if (connect_due()) {
    ++ran;
    if (host().run_connect_handler() == Alive::kGone) return ran;
  }
  const bool write_first = host().barrier() == Barrier::kYes;
  for (const bool writing : {write_first, !write_first}) {
    if (!(writing ? write_due() : read_due())) continue;
    if (!writing && state() == State::kConnected && !ready_to_read()) continue;
    ++ran;
    const Alive alive = writing ? host().run_write_handler() : host().run_read_handler();
    if (alive == Alive::kGone) return ran;
  }
  return ran;
}

void QueuedCarrier::detach_list() noexcept {
  unqueue();
  list_ = nullptr;
}

}}  // namespace conn
