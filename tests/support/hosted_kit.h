// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// An EpollLoop below a host, which is the test.

#include <poll.h>

#include "ae/epoll_loop.h"

namespace hosted_kit {
using ae::EpollLoop;

inline bool readable(EpollLoop& loop) {
  pollfd fd{loop.descriptor(), POLLIN, 0};
  return ::poll(&fd, 1, 0) == 1;
}

/// A host that sleeps in poll(2). False: no event for far too long.
inline bool sleeps_and_dispatches(EpollLoop& loop) {
  pollfd fd{loop.descriptor(), POLLIN, 0};
  if (::poll(&fd, 1, 20'000) != 1) return false;
  loop.dispatch();
  return true;
}

template <class Condition>
bool hosted_until(EpollLoop& loop, Condition condition) {
  while (!condition())
    if (!sleeps_and_dispatches(loop)) return false;
  return true;
}

/// Whether the loop becomes idle after a few iterations.
inline bool rests(EpollLoop& loop) {
  for (int i = 0; i < 10; ++i) {
    if (!readable(loop)) return true;
    loop.dispatch();
  }
  return false;
}

}  // namespace hosted_kit
