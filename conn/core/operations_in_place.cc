// SPDX-License-Identifier: BSD-3-Clause
// The in-place operations of Connection. The Carrier performs them if it can; otherwise they copy
// through chunks of memory.

#include <algorithm>
#include <cerrno>
#include <new>
#include <utility>

#include "conn/core/connection_core.h"
#include "conn/core/connection_set.h"
#include "conn/core/counting.h"
#include "conn/core/in_place_state.h"

namespace conn { inline namespace AECONN_ABI {

InPlace* ConnectionCore::borrow() noexcept {
  if (in_place_ == nullptr && set_ != nullptr && !given_up()) {
    try {
      in_place_ = set_->in_place(*loop_).acquire(*this);
    } catch (const std::bad_alloc&) {
    }
  }
  if (in_place_ != nullptr && set_ != nullptr) return in_place_;
  errno = ENOMEM;  // there is no memory, or no loop whose pool could lend an InPlace object
  return nullptr;
}

View Connection::peek(std::size_t together) {
  ConnectionCore& c = ConnectionCore::of(*this);
  if (together > kMaxContiguous) {
    errno = EMSGSIZE;
    return {};
  }
  together = std::max<std::size_t>(together, 1);
  if (c.in_place_ != nullptr && c.in_place_->read_ahead.ended()) {
    errno = 0;
    return {};
  }
  if (c.in_place_ == nullptr || c.in_place_->read_ahead.unread() == 0) {
    if (c.state_ != State::kConnected && !c.keeps_unread()) {
      if (c.refuse(ae::kReadable) == 0) errno = 0;
      return {};
    }
    if (c.carrier_->peeks_in_place()) {
      View view;
      const ssize_t n = c.carrier_->peek(together, view);
      if (n > 0) return view;
      if (n == 0) errno = 0;
      if (n == 0 || errno != EMSGSIZE) {
        const int err = errno;
        (void)c.finish_read(n);
        errno = err;
        return {};
      }
    }
    if (c.borrow() == nullptr) return {};
  }
  return c.in_place_->read_ahead.peek(together);
}

void Connection::consume(std::size_t size) noexcept {
  ConnectionCore& c = ConnectionCore::of(*this);
  if (size == 0) return;
  if (c.in_place_ != nullptr && c.in_place_->read_ahead.unread() != 0)
    size = c.in_place_->read_ahead.consume(size);
  else if ((c.state_ == State::kConnected || c.keeps_unread()) && c.carrier_->peeks_in_place())
    size = c.carrier_->consume(size);
  else
    size = 0;
  c.count_read(size);
}

std::span<std::byte> Connection::reserve(std::size_t size) {
  ConnectionCore& c = ConnectionCore::of(*this);
  if (size > kMaxContiguous) {
    errno = EMSGSIZE;
    return {};
  }
  if (c.state_ != State::kConnected) {
    (void)c.refuse(ae::kWritable);
    return {};
  }
  // In a child of fork(), flush() would discard the output, because the parent process sends it.
  if (c.inherited()) {
    errno = ECANCELED;
    return {};
  }
  if (c.reserved_ != 0) commit(0);
  size = std::max<std::size_t>(size, 1);
  std::span<std::byte> room;
  bool lends = !c.carrier_->reserves_in_place();
  if (!lends && c.in_place_ != nullptr && c.in_place_->output().waits()) {
    lends = c.wanted_.blocked || !c.in_place_->flush();
    if (c.state_ != State::kConnected) {
      (void)c.refuse(ae::kWritable);
      return {};
    }
  }
  if (!lends) {
    if (c.in_place_ != nullptr && !c.may_send()) return {};
    room = c.carrier_->reserve(size);
    if (room.empty() && c.state_ == State::kError) c.lost_.write_reported = true;
    lends = room.empty() && errno == EOPNOTSUPP;
  }
  if (lends) {
    if (c.borrow() == nullptr) return {};
    if (c.output_ended_ || c.in_place_->shutdown_due()) {
      c.in_place_->settle();
      errno = EPIPE;
      return {};
    }
    room = c.in_place_->reserve(size);
    if (room.empty() && errno == EAGAIN) {
      (void)c.in_place_->flush();
      if (c.state_ != State::kConnected) {
        (void)c.refuse(ae::kWritable);
        return {};
      }
      room = c.in_place_->reserve(size);
    }
    if (room.empty()) c.in_place_->settle();
  }
  if (room.empty() && errno == EAGAIN) c.refused_write();
  c.reserved_ = room.size();
  return room;
}

void Connection::commit(std::size_t size) noexcept {
  ConnectionCore& c = ConnectionCore::of(*this);
  const std::size_t room = std::exchange(c.reserved_, 0);
  if (room == 0) return;
  size = std::min(size, room);
  if (c.in_place_ != nullptr && c.in_place_->output().reserving())
    c.in_place_->commit(size);
  else
    c.carrier_->commit(size);
  c.count_written(size);
}

ssize_t Connection::send(const Outgoing& bytes) {
  ConnectionCore& c = ConnectionCore::of(*this);
  if (bytes.bytes.data() == nullptr && !bytes.bytes.empty()) {
    errno = EINVAL;
    return -1;
  }
  if (c.state_ != State::kConnected) return c.refuse(ae::kWritable);
  if (c.reserved_ != 0) {
    errno = EBUSY;
    return -1;
  }
  if (c.inherited()) {
    errno = ECANCELED;
    return -1;
  }
  if (c.borrow() == nullptr) return -1;
  if (c.output_ended_ || c.in_place_->shutdown_due()) {
    c.in_place_->settle();
    errno = EPIPE;
    return -1;
  }
  if (!c.in_place_->send(bytes)) {
    (void)c.in_place_->flush();
    if (c.state_ != State::kConnected) return c.refuse(ae::kWritable);
    if (!c.in_place_->send(bytes)) {
      c.refused_write();
      errno = EAGAIN;
      return -1;
    }
  }
  c.count_written(bytes.bytes.size());
  return static_cast<ssize_t>(bytes.bytes.size());
}

void ConnectionCore::references_done(std::size_t count, std::error_code error) noexcept {
  if (in_place_ != nullptr && count != 0) in_place_->references_done(count, error);
}

}}  // namespace conn
