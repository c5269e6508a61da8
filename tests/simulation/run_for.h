// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Lets simulated time pass on a loop.

#include "ae/event_loop.h"

namespace simulation {

/// Runs the loop until `span` of its time has passed.
inline void run_for(ae::EventLoop& loop, ae::Duration span) {
  bool over = false;
  loop.add_time_event(span, [&] {
    over = true;
    return ae::kNoMore;
  });
  while (!over) (void)loop.process_events(ae::kFullIteration);
}

}  // namespace simulation
