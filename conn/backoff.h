// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Backoff: the pauses between connection attempts of one client. They grow, are randomized so that
// clients do not retry at the same time, and are at least as long as a refusing peer asked for. The
// class does not read a clock.

#include <cstdint>
#include <random>

#include "ae/abi.h"
#include "ae/time.h"

namespace conn { inline namespace AECONN_ABI {

/// Computes the pauses between the connection attempts of one client.
class AECONN_API Backoff {
 public:
  /// Each pause has a limit: `first` for the first pause, then twice the previous limit, but never
  /// more than `most`. Each pause is chosen at random between half of its limit and its limit;
  /// `seed` starts the random numbers.
  Backoff(ae::Duration first, ae::Duration most, std::uint64_t seed);

  /// Returns the pause to make after one more failed attempt. `asked` is the time for which the
  /// refusing peer asked the client to wait, of which at most one minute counts; 0: none. If
  /// `asked` is longer than the pause would be, the pause is between `asked` and one and a half
  /// times `asked`, because many clients may have been asked the same.
  ae::Duration next(ae::Duration asked = ae::Duration::zero());
  /// Restarts the growth of the pauses: the next pause is as short as a client's first one. Call it
  /// after a successful attempt.
  void reset() noexcept { limit_ = first_; }

 private:
  ae::Duration between(ae::Duration least, ae::Duration most);
  ae::Duration first_, most_, limit_;
  std::mt19937_64 random_;
};

}}  // namespace conn
