// SPDX-License-Identifier: BSD-3-Clause
#include "conn/backoff.h"

#include <algorithm>

namespace conn { inline namespace AECONN_ABI {
namespace {

constexpr ae::Duration kMostAsked = std::chrono::minutes(1);

}  // namespace

Backoff::Backoff(ae::Duration first, ae::Duration most, std::uint64_t seed)
    : first_(std::max(first, ae::Duration(1))),
      most_(std::max(most, first_)),
      limit_(first_),
      random_(seed) {}

ae::Duration Backoff::next(ae::Duration asked) {
  ae::Duration pause = between(limit_ / 2, limit_);
  limit_ = limit_ > most_ / 2 ? most_ : 2 * limit_;
  asked = std::min(asked, kMostAsked);
  if (asked > pause) pause = between(asked, asked + asked / 2);
  return pause;
}

ae::Duration Backoff::between(ae::Duration least, ae::Duration most) {
  const auto range = static_cast<std::uint64_t>((most - least).count()) + 1;
  return least + ae::Duration(static_cast<ae::Duration::rep>(random_() % range));
}

}}  // namespace conn
