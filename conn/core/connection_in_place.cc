// SPDX-License-Identifier: BSD-3-Clause
// The in-place operations of Connection: performed by the transport, or by the base with chunks.

#include <algorithm>
#include <cerrno>
#include <new>
#include <utility>

#include "conn/connection.h"
#include "conn/connection_type.h"
#include "conn/core/connection_set.h"
#include "conn/core/in_place_state.h"

namespace conn { inline namespace AECONN_ABI {

InPlace* Connection::borrow() noexcept {
  if (in_place_ == nullptr && set_ != nullptr && !given_up_) {
    try {
      in_place_ = set_->in_place(*loop_).acquire(*this);
    } catch (const std::bad_alloc&) {
    }
  }
  if (in_place_ != nullptr && set_ != nullptr) return in_place_;
  errno = ENOMEM;  // or there is no loop to borrow from
  return nullptr;
}

View Connection::peek(std::size_t together) {
  if (together > kMaxContiguous) {
    errno = EMSGSIZE;
    return {};
  }
  together = std::max<std::size_t>(together, 1);
  if (in_place_ != nullptr && in_place_->reading_ended()) {
    errno = 0;
    return {};
  }
  if (in_place_ == nullptr || in_place_->unread() == 0) {
    if (state_ != State::kConnected && !keeps_unread_) {
      if (refuse(ae::kReadable) == 0) errno = 0;
      return {};
    }
    if (peeks_in_place()) {
      View view;
      const ssize_t n = do_peek(together, view);
      if (n > 0) return view;
      if (n == 0) errno = 0;
      if (n == 0 || errno != EMSGSIZE) {
        const int err = errno;
        finish_read(n);
        errno = err;
        return {};
      }
    }
    if (borrow() == nullptr) return {};
  }
  return in_place_->peek(together);
}

void Connection::consume(std::size_t size) noexcept {
  if (size == 0) return;
  if (in_place_ != nullptr && in_place_->unread() != 0)
    size = in_place_->consume(size);
  else if (state_ == State::kConnected && peeks_in_place())
    size = do_consume(size);
  else
    size = 0;
  count_read(size);
}

std::span<std::byte> Connection::reserve(std::size_t size) {
  if (size > kMaxContiguous) {
    errno = EMSGSIZE;
    return {};
  }
  if (state_ != State::kConnected) {
    (void)refuse(ae::kWritable);
    return {};
  }
  if (inherited()) {  // flush() drops pending output, which the parent sends
    errno = ECANCELED;
    return {};
  }
  if (reserved_ != 0) commit(0);
  size = std::max<std::size_t>(size, 1);
  std::span<std::byte> room;
  bool lends = !reserves_in_place();
  if (!lends && in_place_ != nullptr && in_place_->waits()) {
    lends = output_blocked_ || !in_place_->flush();
    if (state_ != State::kConnected) {
      (void)refuse(ae::kWritable);
      return {};
    }
  }
  if (!lends) {
    if (in_place_ != nullptr && !may_send()) return {};
    room = do_reserve(size);
    if (room.empty() && state_ == State::kError) write_told_ = true;
    lends = room.empty() && errno == EOPNOTSUPP;
  }
  if (lends) {
    if (borrow() == nullptr) return {};
    if (in_place_->shutdown_due()) {
      errno = EPIPE;
      return {};
    }
    room = in_place_->reserve(size);
    if (room.empty() && errno == EAGAIN) {
      (void)in_place_->flush();
      if (state_ != State::kConnected) {
        (void)refuse(ae::kWritable);
        return {};
      }
      room = in_place_->reserve(size);
    }
    if (room.empty()) in_place_->settle();
  }
  if (room.empty() && errno == EAGAIN) refused_write();
  reserved_ = room.size();
  return room;
}

void Connection::commit(std::size_t size) noexcept {
  const std::size_t room = std::exchange(reserved_, 0);
  if (room == 0) return;
  size = std::min(size, room);
  if (in_place_ != nullptr && in_place_->reserving())
    in_place_->commit(size);
  else
    do_commit(size);
  count_written(size);
}

ssize_t Connection::send(const Outgoing& bytes) {
  if (bytes.bytes.data() == nullptr && !bytes.bytes.empty()) {
    errno = EINVAL;
    return -1;
  }
  if (state_ != State::kConnected) return refuse(ae::kWritable);
  if (reserved_ != 0) {
    errno = EBUSY;
    return -1;
  }
  if (inherited()) {
    errno = ECANCELED;
    return -1;
  }
  if (borrow() == nullptr) return -1;
  if (in_place_->shutdown_due()) {
    errno = EPIPE;
    return -1;
  }
  if (!in_place_->send(bytes)) {
    (void)in_place_->flush();
    if (state_ != State::kConnected) return refuse(ae::kWritable);
    if (!in_place_->send(bytes)) {
      refused_write();
      errno = EAGAIN;
      return -1;
    }
  }
  count_written(bytes.bytes.size());
  return static_cast<ssize_t>(bytes.bytes.size());
}

ssize_t Connection::do_send(const Outgoing&) {
  errno = EOPNOTSUPP;
  return -1;
}

void Connection::references_done(std::size_t count, std::error_code error) noexcept {
  if (in_place_ != nullptr && count != 0) in_place_->references_done(count, error);
}

}}  // namespace conn
