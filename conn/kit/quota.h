// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// How many connections of one listener may exist at once (option max-connections), or lead to one
// address. Used by transports; host programs do not need it.

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "ae/abi.h"
#include "conn/error.h"

namespace conn { inline namespace AECONN_ABI {

/// Counts places. Its functions are for one thread, or behind a lock, but a place may be given back
/// on any thread: full() may then be true for a moment longer than it is.
class Quota {
 public:
  /// Held by a connection until it is destroyed, which may be on another thread.
  using Place = std::shared_ptr<const void>;
  static constexpr std::uint64_t kDefault = 65536;     ///< of max-connections
  static constexpr std::uint64_t kMost = 100'000'000;  ///< that the option may say

  /// Throws std::bad_alloc.
  explicit Quota(std::uint64_t most) : most_(most), places_(std::make_shared<char>()) {}
  std::uint64_t most() const noexcept { return most_; }  ///< how many places there are
  /// How many are held now; more than most() where take() was called without a look at full().
  std::uint64_t taken() const noexcept {
    return static_cast<std::uint64_t>(places_.use_count()) - 1;
  }
  bool full() const noexcept { return taken() >= most_; }  ///< whether no place is left
  /// A place, whether or not one is left: ask full() before. Copies of it are places, too.
  Place take() const noexcept { return places_; }
  /// What Listener::on_refused() tells of an arrival that found no place.
  Failure refusal(std::string_view peer) const {
    return {std::make_error_code(std::errc::connection_refused),
            std::string(peer.empty() ? "a client" : peer) + ": " + std::to_string(most_) +
                " connections are open (max-connections)"};
  }

 private:
  std::uint64_t most_;
  std::shared_ptr<const char> places_;  // each copy of it is a place that is taken
};

}}  // namespace conn
