// SPDX-License-Identifier: BSD-3-Clause
#include "conn/core/pending_output.h"

#include <algorithm>
#include <cerrno>
#include <utility>

namespace conn { inline namespace AECONN_ABI {

// --- queueing output of the program --------------------------------------------------------------

std::span<std::byte> PendingOutput::reserve(std::size_t size) noexcept {
  if (full() || held_ >= kMostHeld) {
    errno = EAGAIN;
    return {};
  }
  if (filling_ != nullptr && filling_->room() < size) stop_filling();
  if (filling_ == nullptr) {
    filling_ = pool_->acquire(size);
    if (filling_ == nullptr) {
      errno = ENOMEM;
      return {};
    }
    filling_->users = 1;
  }
  reserved_ = true;
  return {filling_->data() + filling_->end, filling_->room()};
}

bool PendingOutput::commit(std::size_t size) noexcept {
  reserved_ = false;
  size = std::min<std::size_t>(size, filling_->room());
  if (size == 0) {
    if (filling_->users == 1) stop_filling();
    return false;
  }
  std::byte* const from = filling_->data() + filling_->end;
  filling_->end += static_cast<std::uint32_t>(size);
  held_ += size;
  Segment* const before = waits() ? &at(last_ - 1) : nullptr;
  if (before != nullptr && before->chunk == filling_ && before->data + before->size == from) {
    before->size += size;
  } else {
    ++filling_->users;
    at(last_++) = {from, size, filling_, nullptr, nullptr, nullptr, {}, Stage::kRefused};
  }
  return true;
}

void PendingOutput::stop_filling() noexcept {
  reserved_ = false;
  unuse(std::exchange(filling_, nullptr));
}

bool PendingOutput::push(const Outgoing& bytes, bool by_reference) noexcept {
  if (full()) return false;
  at(last_++) = {bytes.bytes.data(),
                 bytes.bytes.size(),
                 nullptr,
                 bytes.release,
                 bytes.context,
                 bytes.memory,
                 {},
                 by_reference ? Stage::kWaiting : Stage::kRefused};
  return true;
}

// --- passing output to the Carrier ---------------------------------------------------------------

Outgoing PendingOutput::offer() const noexcept {
  const Segment& segment = at(next_);
  return {{segment.data, segment.size}, segment.release, segment.context, segment.memory};
}

void PendingOutput::lent(std::size_t size) noexcept {
  Segment& segment = at(next_);
  segment.begun = true;
  if (size > 0 && size < segment.size) {
    segment.data += size;
    segment.size -= size;
    return;
  }
  segment.stage = Stage::kLent;
  ++next_;
  if (given_back_early_ != 0) given_back(std::exchange(given_back_early_, 0), {});
}

int PendingOutput::gather(iovec* vectors) const noexcept {
  int count = 0;
  for (std::size_t i = next_; i != last_ && at(i).stage == Stage::kRefused; ++i)
    vectors[count++] = {const_cast<std::byte*>(at(i).data), at(i).size};
  return count;
}

void PendingOutput::written(std::size_t size) noexcept {
  while (waits() && at(next_).stage == Stage::kRefused && size >= at(next_).size) {
    size -= at(next_).size;
    done(at(next_++), {});
  }
  if (size == 0) return;
  Segment& segment = at(next_);
  segment.data += size;
  segment.size -= size;
  if (segment.chunk != nullptr) held_ -= size;
}

// --- output that is no longer needed -------------------------------------------------------------

void PendingOutput::unuse(Chunk* chunk) noexcept {
  if (chunk == nullptr || --chunk->users != 0) return;
  if (pool_ != nullptr)
    pool_->release(chunk);
  else
    ChunkPool::destroy(chunk);
}

void PendingOutput::done(Segment& segment, std::error_code error) noexcept {
  if (segment.chunk != nullptr) held_ -= segment.size;
  segment.stage = Stage::kDone;
  if (!segment.error) segment.error = error;
  if (segment.chunk == filling_ && filling_ != nullptr && filling_->users == 2 && !reserved_)
    stop_filling();  // all data in the chunk has been sent, so it can return to the pool
  unuse(std::exchange(segment.chunk, nullptr));
}

void PendingOutput::given_back(std::size_t count, std::error_code error) noexcept {
  for (std::size_t i = first_; i != next_ && count != 0; ++i) {
    if (at(i).stage != Stage::kLent) continue;
    done(at(i), error);
    --count;
  }
  // What remains of `count` is segments that the Carrier returned inside Carrier::send(), before
  // lent() was called for them.
  given_back_early_ = count;
}

void PendingOutput::drop(std::error_code error) noexcept {
  for (; next_ != last_; ++next_) {
    Segment& segment = at(next_);
    if (segment.begun) {  // the Carrier still reads the part of the segment that it took
      segment.stage = Stage::kLent;
      segment.error = error;
    } else {
      done(segment, error);
    }
  }
}

void PendingOutput::end(std::error_code error) noexcept {
  if (filling_ != nullptr) stop_filling();
  for (std::size_t i = first_; i != last_; ++i)
    if (at(i).stage != Stage::kDone) done(at(i), error);
  next_ = last_;
}

bool PendingOutput::lends() const noexcept {
  for (std::size_t i = first_; i != next_; ++i)
    if (at(i).stage == Stage::kLent) return true;
  return false;
}

bool PendingOutput::has_release() noexcept {
  while (first_ != next_ && at(first_).stage == Stage::kDone && at(first_).release == nullptr)
    ++first_;
  return first_ != next_ && at(first_).stage == Stage::kDone;
}

PendingOutput::Release PendingOutput::take_release() noexcept {
  const Segment segment = std::exchange(at(first_++), Segment{});
  return {segment.release, segment.context, segment.error};
}

}}  // namespace conn
