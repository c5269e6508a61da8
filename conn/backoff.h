// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// How long a client waits before it tries again: longer each time, never exactly as long as the
// others, and at least as long as a peer that refused it asked for. Pure: no clock.

#include <cstdint>
#include <random>

#include "ae/abi.h"
#include "ae/time.h"

namespace conn { inline namespace AECONN_ABI {

/// The pauses of one client.
class AECONN_API Backoff {
 public:
  /// The first pause is `first` at most, later ones twice as long as the one before and `most` at
  /// most. Each is drawn between half of that and all of it.
  Backoff(ae::Duration first, ae::Duration most, std::uint64_t seed);

  /// The pause after one more failure. `asked`: what the peer asked for; the pause is that or up to
  /// half more, since many were asked. A minute is the most that is granted.
  ae::Duration next(ae::Duration asked = ae::Duration::zero());
  /// It worked: the next pause is a first one.
  void reset() noexcept { limit_ = first_; }

 private:
  ae::Duration between(ae::Duration least, ae::Duration most);
  ae::Duration first_, most_, limit_;
  std::mt19937_64 random_;
};

}}  // namespace conn
