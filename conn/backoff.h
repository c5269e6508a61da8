// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Pauses between connection attempts of a client: they grow, are randomized so that clients do not
// retry at the same time, and are at least as long as a refusing peer asked for. It reads no clock.

#include <cstdint>
#include <random>

#include "ae/abi.h"
#include "ae/time.h"

namespace conn { inline namespace AECONN_ABI {

/// The sequence of pauses of one client.
class AECONN_API Backoff {
 public:
  /// The first pause is at most `first`; each later one is at most twice the limit before it, up to
  /// `most`. Each is chosen at random between half the limit and the limit.
  Backoff(ae::Duration first, ae::Duration most, std::uint64_t seed);

  /// Returns the pause after one more failure. `asked` is the time the peer asked for, capped at
  /// one minute. If that is longer, the pause is between `asked` and one and a half times `asked`,
  /// because many clients may have been asked the same.
  ae::Duration next(ae::Duration asked = ae::Duration::zero());
  /// Call after a success: the next pause is a first one again.
  void reset() noexcept { limit_ = first_; }

 private:
  ae::Duration between(ae::Duration least, ae::Duration most);
  ae::Duration first_, most_, limit_;
  std::mt19937_64 random_;
};

}}  // namespace conn
