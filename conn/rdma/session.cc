// SPDX-License-Identifier: BSD-3-Clause
#include "conn/rdma/session.h"

#include <algorithm>
#include <utility>

#include "conn/rdma/protocol/resume_message.h"

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

void Session::take_secret(std::span<const std::byte> secret, bool peer_has_it,
                          std::uint64_t arrived) noexcept {
  key_before_ = std::exchange(key_, siphash128(key_, secret));
  unsure_ = !peer_has_it;
  arrived_ = arrived;
  entry.set_keys(key_, unsure_ ? key_before_ : key_);
}

const SipKey& Session::next_key(std::uint64_t arrived) noexcept {
  const bool before = two_keys(arrived) && use_before_;
  return request_key_ = before ? key_before_ : key_;
}

bool Session::may_know_other_key(std::uint64_t arrived) noexcept {
  if (!two_keys(arrived)) return false;
  // The peer first accepts the old key; from some time on it always accepts the new one. So if it
  // has refused the old key and later the new one, it does not know the session. A request without
  // an answer shows nothing about its key.
  if (request_key_ == key_before_) return before_refused_ = true;
  return !before_refused_;
}

bool Session::find_key(std::span<const std::byte> sealed, std::span<const std::byte> bound,
                       std::uint64_t arrived) noexcept {
  if (verify_request(sealed, key_, bound)) {
    request_key_ = key_;
    return true;
  }
  if (!two_keys(arrived)) {
    if (std::exchange(unsure_, false)) entry.set_keys(key_, key_);
    return false;
  }
  if (!verify_request(sealed, key_before_, bound)) return false;
  request_key_ = key_before_;
  return true;
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
  // While nobody listens at the peer's address, attempts continue for the time kNobody. The last of
  // them is made exactly at the end of this time.
  set_next(nobody ? std::min(now + pause_, nobody_since_ + kNobody) : now + pause_);
  return true;
}

void Session::on_path() noexcept {
  lost_ = false;
  before_refused_ = false;
  nobody_since_ = {};
  pause_ = {};
  ++resumes_;
}

}}}  // namespace conn::rdma
