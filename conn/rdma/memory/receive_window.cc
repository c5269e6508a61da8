// SPDX-License-Identifier: BSD-3-Clause
#include "conn/rdma/memory/receive_window.h"

#include <cassert>
#include <utility>

#include "conn/rdma/memory/domain.h"

namespace conn { inline namespace AECONN_ABI { namespace rdma {

WindowBuffer ReceiveWindow::buffer() noexcept {
  WindowBuffer buffer;
  buffer.data = block_->data;
  buffer.length = length_;
  buffer.address = reinterpret_cast<std::uintptr_t>(block_->data);
  // If the key must be bound, this is its value after the bind, whose request is not posted yet.
  // The peer learns the key only after the bind request was posted.
  buffer.key = key_.window ? ibv_inc_rkey(key_.rkey) : RegisteredPool::rkey(*block_);
  buffer.owner = this;
  return buffer;
}

void ReceiveWindow::open(Domain& domain, std::uint32_t length, const MemoryLimit& limit) {
  assert(state_ == State::kFree);
  Failure why;
  pool_ = &domain.windows(length);
  block_ = pool_->acquire_zeros(length, limit, &why);
  if (block_ == nullptr) throw VerbsError(std::move(why));
  length_ = length;
  if (!domain.bind_keys()) {
    key_ = {};
  } else if (!key_.window) {
    try {
      key_ = domain.take_key();
    } catch (...) {
      pool_->release(std::exchange(block_, nullptr));
      throw;
    }
  }
  state_ = key_.window ? State::kToBind : State::kUsable;
}

bool ReceiveWindow::retire() noexcept {
  if (key_.window && (state_ == State::kUsable || state_ == State::kBinding)) {
    state_ = State::kToInvalidate;
    return false;
  }
  drop_memory();
  return true;
}

void ReceiveWindow::fill(ibv_send_wr& request) noexcept {
  key_.window->rkey = key_.rkey;
  if (state_ == State::kToInvalidate) {
    request.opcode = IBV_WR_LOCAL_INV;
    request.invalidate_rkey = key_.rkey;
    return;
  }
  request.opcode = IBV_WR_BIND_MW;
  request.bind_mw.mw = key_.window.get();
  request.bind_mw.rkey = ibv_inc_rkey(key_.rkey);
  request.bind_mw.bind_info.mr = block_->slab->mr;
  request.bind_mw.bind_info.addr = reinterpret_cast<std::uintptr_t>(block_->data);
  request.bind_mw.bind_info.length = length_;
  request.bind_mw.bind_info.mw_access_flags = IBV_ACCESS_REMOTE_WRITE;
}

void ReceiveWindow::posted(std::uint32_t sequence) noexcept {
  sequence_ = sequence;
  if (state_ == State::kToInvalidate) {
    state_ = State::kInvalidating;
    return;
  }
  state_ = State::kBinding;
  key_.rkey = key_.window->rkey = ibv_inc_rkey(key_.rkey);
}

bool ReceiveWindow::completed(std::uint32_t sequence, Domain& domain) noexcept {
  if (static_cast<std::int32_t>(sequence - sequence_) < 0) return false;
  if (state_ == State::kBinding) {
    state_ = State::kUsable;
    return true;
  }
  if (state_ != State::kInvalidating) return false;
  if (domain.hands_keys_on()) domain.keep_key(std::move(key_));
  drop_memory();
  return true;
}

void ReceiveWindow::drop() noexcept {
  key_ = {};
  drop_memory();
}

void ReceiveWindow::drop_memory() noexcept {
  if (block_ != nullptr) pool_->release(std::exchange(block_, nullptr));
  state_ = State::kFree;
}

}}}  // namespace conn::rdma
