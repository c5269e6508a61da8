// SPDX-License-Identifier: BSD-3-Clause
// In-place reading for any carrier: input is read into a chunk and shown there.

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>
#include <utility>

#include "conn/core/connection_core.h"
#include "conn/core/in_place_state.h"

namespace conn { inline namespace AECONN_ABI {

// --- the pool ------------------------------------------------------------------------------------

InPlacePool::InPlacePool(ae::EventLoop& loop) : loop_(loop) {
  idle_.reserve(kKept);
  loop_.add_source(*this);
}

InPlacePool::~InPlacePool() { loop_.remove_source(*this); }

InPlace* InPlacePool::acquire(ConnectionCore& connection) noexcept {
  InPlace* state = nullptr;
  if (idle_.empty()) {
    state = new (std::nothrow) InPlace(*this);
  } else {
    state = idle_.back().release();
    idle_.pop_back();
  }
  if (state != nullptr) state->begin(connection);
  return state;
}

void InPlacePool::release(InPlace* state) noexcept {
  std::unique_ptr<InPlace> owned(state);
  if (idle_.size() < kKept) idle_.push_back(std::move(owned));
}

// --- reading -------------------------------------------------------------------------------------

/// Makes room behind the unread bytes, so that `together` bytes fit in one piece.
bool InPlace::make_room(std::size_t together) noexcept {
  if (pool_ == nullptr) return false;  // between two loops
  if (unread_ == nullptr) {
    unread_ = pool_->chunks().acquire(connection_->reads_fill_ ? ChunkPool::kLarge : together);
    return unread_ != nullptr;
  }
  if (unread_->size - unread_->begin >= together && unread_->room() != 0) return true;
  Chunk* to = unread_;
  if (to->size < together) {
    to = pool_->chunks().acquire(together);
    if (to == nullptr) return false;
  }
  const std::uint32_t held = unread_->held();
  std::memmove(to->data(), unread_->data() + unread_->begin, held);
  if (to != unread_) put(std::exchange(unread_, to));
  to->begin = 0;
  to->end = held;
  return true;
}

View InPlace::peek(std::size_t together) {
  View view;
  const auto ended = [this] {
    return connection_->state_ != State::kConnected && connection_->state_ != State::kNone &&
           !connection_->keeps_unread();
  };
  view.last = ended();
  if (unread() < together && !view.last) {
    if (!make_room(together) && unread() == 0) {
      settle();
      errno = ENOMEM;
      return view;
    }
    while (unread() < together && unread_->room() != 0) {
      // If the carrier can show bytes itself, copy only as many as needed, in growing steps.
      std::size_t room = unread_->room();
      if (connection_->carrier_->peeks_in_place())
        room = std::min(room, std::max(together - unread(), unread()));
      const ssize_t n = connection_->carrier_->read(unread_->data() + unread_->end, room);
      if (n > 0) {
        // A read that fills the chunk suggests that more follows, so that the next chunk is large;
        // a read of less than a quarter of a small chunk suggests the opposite.
        if (static_cast<std::size_t>(n) == unread_->room())
          connection_->reads_fill_ = true;
        else if (static_cast<std::size_t>(n) < ChunkPool::kSmall / 4)
          connection_->reads_fill_ = false;
        unread_->end += static_cast<std::uint32_t>(n);
        continue;
      }
      const int err = n == 0 ? 0 : errno;
      if (n == 0) connection_->peer_gone();
      if (err == EINTR) continue;
      if (unread() == 0) {
        if (err != 0) connection_->finish_read(-1);
        drop_unread();
        settle();
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
  queue_reading();
  return view;
}

std::size_t InPlace::consume(std::size_t size) noexcept {
  size = std::min(size, unread());
  if (size == 0) return 0;
  unread_->begin += static_cast<std::uint32_t>(size);
  wanted_ = 1;
  if (unread() == 0) {
    drop_unread();
    settle();
  } else {
    queue_reading();
  }
  return size;
}

std::size_t InPlace::read(void* into, std::size_t size) noexcept {
  size = std::min(size, unread());
  std::memcpy(into, unread_->data() + unread_->begin, size);
  return consume(size);
}

void InPlace::put(Chunk* chunk) noexcept {
  if (pool_ != nullptr)
    pool_->chunks().release(chunk);
  else
    ChunkPool::destroy(chunk);
}

void InPlace::drop_unread() noexcept {
  reading_.unqueue();
  wanted_ = 1;
  if (unread_ != nullptr) put(std::exchange(unread_, nullptr));
}

void InPlace::end_reading() noexcept {
  reading_ended_ = true;
  drop_unread();
  queue_reading();
}

/// Queues the read handler: no descriptor signals the unread bytes in the chunk.
void InPlace::queue_reading() noexcept {
  if (pool_ == nullptr) return;
  if (connection_->on_read_ && (reading_ended_ || (unread_ != nullptr && unread() >= wanted_)))
    pool_->ready().push(reading_);
  else
    reading_.unqueue();
}

std::size_t InPlace::run_reading() {
  ConnectionCore& connection = *connection_;
  if (!connection.on_read_ || (unread() < wanted_ && !reading_ended_) || connection.given_up())
    return 0;
  struct Requeue {  // also after a handler that throws
    ConnectionCore& connection;
    ~Requeue() {
      if (!connection.given_up() && connection.in_place_ != nullptr)
        connection.in_place_->queue_reading();
    }
  } requeue{connection};
  (void)connection.run_read_handler();
  return 1;
}

// --- both ----------------------------------------------------------------------------------------

void InPlace::settle() noexcept {
  if (busy_ || unread_ != nullptr || filling_ != nullptr || first_ != last_ || shutdown_due_ ||
      timer_ != 0 || pool_ == nullptr)
    return;
  reading_.unqueue();
  sending_.unqueue();
  telling_.unqueue();
  refusing_.unqueue();
  reading_ended_ = false;  // if it was set, the state reports it now
  connection_->in_place_ = nullptr;
  pool_->release(this);
}

void InPlace::leave_loop() noexcept {
  reading_.unqueue();
  sending_.unqueue();
  telling_.unqueue();
  refusing_.unqueue();
  pool_ = nullptr;
}

void InPlace::arrive(InPlacePool& pool) noexcept {
  pool_ = &pool;
  handler_changed();
}

}}  // namespace conn
