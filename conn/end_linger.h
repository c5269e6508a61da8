#pragma once
// How long the end of a loop may take to deliver what its connections still hold (option
// end-linger). Used by transports; host programs do not need it.

#include <chrono>

#include "conn/options.h"

namespace conn {

struct EndLinger {
  static constexpr ae::Duration kDefault = std::chrono::milliseconds(100);
  /// The option's value; throws Error.
  static ae::Duration parse(const Options& options) {
    return options.duration("end-linger", kDefault, ae::Duration::zero(), std::chrono::hours(1));
  }
};

}  // namespace conn
