// SPDX-License-Identifier: BSD-3-Clause
#include "conn/rdma/session.h"

#include <algorithm>
#include <utility>

namespace conn { inline namespace AECONN_ABI { namespace rdma {

void Session::lose(Phase phase, Failure why, ae::TimePoint now, ae::Duration more) {
  if (!lost_) {
    lost_at_ = now;
    until_ = now + time_ + more;
    why_ = std::move(why);
    pause_ = nobody_since_ == ae::TimePoint{} ? ae::Duration::zero() : kFirstPause;
    nobody_since_ = {};
    attempts_ = 1;
    lost_ = true;
  }
  on_stopped(now);
  if (phase != Phase::kResending) resumes_as_ = phase;
  next_at_ = now;
}

void Session::take_secret(std::span<const std::byte> secret) noexcept {
  key_ = siphash128(key_, secret);
  entry.set_key(key_);
}

void Session::end() noexcept {
  lost_ = false;
  unsent_ = {};
  request.reset();
  entry = {};
}

void Session::keep(std::uint64_t confirmed, std::uint64_t posted, std::vector<std::byte> bytes) {
  unsent_.prepend(std::move(bytes));
  confirmed_ = confirmed;
  posted_ = std::max(posted_, posted);
}

bool Session::take_count(std::uint64_t counted) noexcept {
  if (counted < confirmed_ || counted > posted_) {
    peer_misses_bytes_ = true;
    return false;
  }
  unsent_.drop(static_cast<std::size_t>(counted - confirmed_));
  confirmed_ = counted;
  return true;
}

std::uint64_t Session::missed_by(std::uint32_t counted) const noexcept {
  const std::uint32_t more = counted - static_cast<std::uint32_t>(confirmed_);
  return more <= posted_ - confirmed_ ? unsent_.size() - more : unsent_.size();
}

bool Session::plan_next(ae::TimePoint now, bool nobody) noexcept {
  if (!nobody)
    nobody_since_ = {};
  else if (nobody_since_ == ae::TimePoint{})
    nobody_since_ = now;
  if (now >= until_ || (nobody && now - nobody_since_ >= kNobody)) return false;
  pause_ = std::clamp(2 * pause_, kFirstPause, kLastPause);
  // If nobody listens, the last attempt is made when kNobody is over, not a whole pause later.
  set_next(nobody ? std::min(now + pause_, nobody_since_ + kNobody) : now + pause_);
  return true;
}

void Session::on_path() noexcept {
  lost_ = false;
  nobody_since_ = {};
  pause_ = {};
  ++resumes_;
}

}}}  // namespace conn::rdma
