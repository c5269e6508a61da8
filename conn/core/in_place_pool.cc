// SPDX-License-Identifier: BSD-3-Clause
// The pool of in-place states, and how a connection borrows a state from it and returns it.

#include "conn/core/in_place_state.h"

#include <new>
#include <utility>

#include "conn/core/connection_core.h"

namespace conn { inline namespace AECONN_ABI {

// --- InPlacePool: the unused InPlace objects of one loop -----------------------------------------

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

// --- InPlace: returning to the pool, and moving to another loop ----------------------------------

InPlace::InPlace(InPlacePool& pool) : pool_(&pool) { output_.set_pool(&pool.chunks()); }

void InPlace::settle() noexcept {
  if (busy_ || !read_ahead.idle() || !output_.idle() || shutdown_due_ || timer_ != 0 ||
      pool_ == nullptr)
    return;
  // A closed connection still needs this object: once its output is sent or discarded,
  // run_telling() closes the Carrier.
  if (connection_->given_up() && !connection_->closing()) return;
  read_ahead.reset();
  sending_.unqueue();
  telling_.unqueue();
  refusing_.unqueue();
  connection_->in_place_ = nullptr;
  pool_->release(this);
}

void InPlace::leave_loop() noexcept {
  read_ahead.unqueue();
  sending_.unqueue();
  telling_.unqueue();
  refusing_.unqueue();
  pool_ = nullptr;
  output_.set_pool(nullptr);
}

void InPlace::arrive(InPlacePool& pool) noexcept {
  pool_ = &pool;
  output_.set_pool(&pool.chunks());
  handler_changed();
}

void InPlace::put(Chunk* chunk) noexcept {
  if (pool_ != nullptr)
    pool_->chunks().release(chunk);
  else
    ChunkPool::destroy(chunk);
}

}}  // namespace conn
