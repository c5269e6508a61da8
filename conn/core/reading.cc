// SPDX-License-Identifier: BSD-3-Clause
// Implements ReadAhead: input that was read for peek() before the program consumed it.

#include "conn/core/read_ahead.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "conn/core/connection_core.h"
#include "conn/core/counting.h"
#include "conn/core/in_place_state.h"

namespace conn { inline namespace AECONN_ABI {

/// Makes sure that the chunk can hold `together` contiguous bytes, which begin with the unread
/// bytes. Returns false if memory ran out.
bool ReadAhead::make_room(std::size_t together) noexcept {
  // There is no pool while the connection moves between loops.
  if (its_.pool() == nullptr) return false;
  if (unread_ == nullptr) {
    unread_ =
        its_.pool()->chunks().acquire(its_.connection().reads_fill_ ? ChunkPool::kLarge : together);
    return unread_ != nullptr;
  }
  if (unread_->size - unread_->begin >= together && unread_->room() != 0) return true;
  Chunk* to = unread_;
  if (to->size < together) {
    to = its_.pool()->chunks().acquire(together);
    if (to == nullptr) return false;
  }
  const std::uint32_t held = unread_->held();
  std::memmove(to->data(), unread_->data() + unread_->begin, held);
  if (to != unread_) its_.put(std::exchange(unread_, to));
  to->begin = 0;
  to->end = held;
  return true;
}

View ReadAhead::peek(std::size_t together) {
  View view;
  const auto ended = [this] {
    return its_.connection().state_ != State::kConnected &&
           its_.connection().state_ != State::kNone && !its_.connection().keeps_unread();
  };
  view.last = ended();
  if (unread() < together && !view.last) {
    if (!make_room(together) && unread() == 0) {
      its_.settle();
      errno = ENOMEM;
      return view;
    }
    while (unread() < together && unread_->room() != 0) {
      // If the Carrier can show bytes in its own memory, only as many bytes as needed are copied,
      // in growing steps.
      std::size_t room = unread_->room();
      if (its_.connection().carrier_->peeks_in_place())
        room = std::min(room, std::max(together - unread(), unread()));
      const ssize_t n = its_.connection().carrier_->read(unread_->data() + unread_->end, room);
      if (n > 0) {
        // If a read fills the chunk, more data probably follows, so the next chunk is a large one.
        // If the bytes just read and those unread before are together less than a quarter of a
        // small chunk, the next chunk is a small one. The bytes unread before count, because a
        // small read may be the end of a long message.
        if (static_cast<std::size_t>(n) == unread_->room())
          its_.connection().reads_fill_ = true;
        else if (unread() + static_cast<std::size_t>(n) < ChunkPool::kSmall / 4)
          its_.connection().reads_fill_ = false;
        unread_->end += static_cast<std::uint32_t>(n);
        continue;
      }
      const int err = n == 0 ? 0 : errno;
      if (n == 0) its_.connection().peer_gone();
      if (err == EINTR) continue;
      if (unread() == 0) {
        if (err != 0) (void)its_.connection().finish_read(-1);
        drop();
        its_.settle();
        errno = err;
        return view;
      }
      view.last = err != EAGAIN && err != EWOULDBLOCK;
      break;
    }
  }
  wanted_ = unread() < together && !view.last ? together : 1;
  view.size = unread();
  view.pieces[0] = {unread_->data() + unread_->begin, view.size};
  view.count = 1;
  queue();
  return view;
}

std::size_t ReadAhead::consume(std::size_t size) noexcept {
  size = std::min(size, unread());
  if (size == 0) return 0;
  unread_->begin += static_cast<std::uint32_t>(size);
  wanted_ = 1;
  if (unread() == 0) {
    drop();
    its_.settle();
  } else {
    queue();
  }
  return size;
}

std::size_t ReadAhead::read(void* into, std::size_t size) noexcept {
  size = std::min(size, unread());
  std::memcpy(into, unread_->data() + unread_->begin, size);
  return consume(size);
}

void ReadAhead::drop() noexcept {
  unqueue();
  wanted_ = 1;
  if (unread_ != nullptr) its_.put(std::exchange(unread_, nullptr));
}

void ReadAhead::end() noexcept {
  ended_ = true;
  drop();
  queue();
}

void ReadAhead::queue() noexcept {
  if (its_.pool() == nullptr) return;
  if (its_.connection().wanted_.read && (ended_ || (unread_ != nullptr && unread() >= wanted_)))
    its_.pool()->ready().push(*this);
  else
    unqueue();
}

std::size_t ReadAhead::run_ready() {
  ConnectionCore& connection = its_.connection();
  if (!connection.wanted_.read || (unread() < wanted_ && !ended_) || connection.given_up())
    return 0;
  struct Requeue {  // the destructor queues the handler again, even if the handler throws
    ConnectionCore& connection;
    ~Requeue() {
      if (!connection.given_up() && connection.in_place_ != nullptr)
        connection.in_place_->read_ahead.queue();
    }
  } requeue{connection};
  (void)connection.run_read_handler();
  return 1;
}

void ReadAhead::reset() noexcept {
  unqueue();
  ended_ = false;  // from now on, the connection's state says whether reading has ended
}

}}  // namespace conn
