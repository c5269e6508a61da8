// SPDX-License-Identifier: BSD-3-Clause
#include "conn/tls/engine/output.h"

#include <cstring>
#include <new>

namespace conn { inline namespace AECONN_ABI { namespace tls {

std::size_t Output::put(const char* bytes, std::size_t size) {
  if (wire_.failed()) return 0;
  switch (state_) {
    case State::kThrough: {
      const ssize_t n = wire_.send(next_type_, bytes, size);
      if (n < 0) return 0;
      // The record type set by set_type() applies to one write only, as in OpenSSL's socket BIO.
      type_ = std::exchange(next_type_, 0);
      const std::size_t taken = static_cast<std::size_t>(n);
      if (taken == size) return size;
      if (!keep(bytes + taken, size - taken)) return 0;
      move_to(State::kUnsent);
      return size;
    }
    case State::kGathering:
      if (size > room_.size() - gathered_) return send_gathered() ? put(bytes, size) : 0;
      std::memcpy(room_.data() + gathered_, bytes, size);
      gathered_ += size;
      return room_.size() - gathered_ >= kLargestRecord || send_gathered() ? size : 0;
    case State::kCollecting:
      return keep(bytes, size) ? size : 0;
    case State::kHeld:
      if (!keep(bytes, size)) return 0;
      move_to(State::kUnsent);
      type_ = 0;
      if (const ssize_t n = wire_.send(0, bytes_.data(), bytes_.size()); n < 0) {
        return 0;
      } else {
        sent_ = static_cast<std::size_t>(n);
      }
      if (unsent() == 0) forget();
      return size;
    case State::kUnsent:
      // A record for the kernel must not be mixed with other bytes: refuses it, so that OpenSSL
      // writes it again later.
      if (next_type_ != 0 || type_ != 0) return 0;
      return keep(bytes, size) ? size : 0;
  }
  return 0;
}

bool Output::send_gathered() {
  if (state_ != State::kGathering) return !wire_.failed();
  move_to(State::kThrough);
  return gathered_ == 0 || put(room_.data(), gathered_) != 0;
}

Output::Flushed Output::flush() {
  if (state_ == State::kThrough || state_ == State::kCollecting || state_ == State::kGathering)
    return Flushed::kAll;
  if (state_ == State::kHeld) move_to(State::kUnsent);
  while (unsent() != 0) {
    const ssize_t n = wire_.send(type_, bytes_.data() + sent_, unsent());
    if (n < 0) {
      forget();
      return Flushed::kFailed;
    }
    if (n == 0) return Flushed::kPartly;
    sent_ += static_cast<std::size_t>(n);
  }
  forget();
  return Flushed::kAll;
}

bool Output::keep(const char* bytes, std::size_t size) {
  // Drops the bytes that were sent. forget() would do so only once all bytes are sent, which may
  // never happen if the wire (connection below TLS) always leaves a few of them.
  if (sent_ > bytes_.size() / 2) {
    bytes_.erase(bytes_.begin(), bytes_.begin() + static_cast<std::ptrdiff_t>(sent_));
    sent_ = 0;
  }
  try {
    bytes_.insert(bytes_.end(), bytes, bytes + size);
    return true;
  } catch (const std::bad_alloc&) {
    // the exception must not pass through OpenSSL's functions, which are on the stack
    wire_.fail(ENOMEM);
    return false;
  }
}

void Output::forget() noexcept {
  bytes_.clear();
  sent_ = 0;
  type_ = 0;
  move_to(State::kThrough);
}

}}}  // namespace conn::tls
