// SPDX-License-Identifier: BSD-3-Clause
#include "conn/groups/spreading.h"

namespace conn { inline namespace AECONN_ABI {

// Must not throw, because a loop is also chosen while another loop ends.
std::size_t Spreading::pick(const std::string& peer,
                            const std::vector<std::uint64_t>& counts) noexcept {
  const std::lock_guard lock(picking_);
  try {
    return pick_ ? pick_({peer, counts}) : kNone;
  } catch (...) {
    return kNone;
  }
}

void Spreading::forget_function() noexcept {
  // Destroyed after the mutex is unlocked, because its destructor may run any code.
  Spread::Pick pick;
  const std::lock_guard lock(picking_);
  pick.swap(pick_);
}

}}  // namespace conn
