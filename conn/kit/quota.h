// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Limits the connections of one listener (option max-connections), and counts those to one address.
// Used by transports; host programs do not need it.

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "ae/abi.h"
#include "conn/error.h"

namespace conn { inline namespace AECONN_ABI {

/// Counts places. Call its functions on one thread or under a lock; a place may be returned on any
/// thread, so full() may briefly stay true after that.
class Quota {
 public:
  /// Held by a connection until it is destroyed, possibly on another thread.
  using Place = std::shared_ptr<const void>;
  static constexpr std::uint64_t kDefault = 65536;     ///< default of max-connections
  static constexpr std::uint64_t kMost = 100'000'000;  ///< maximum of the option

  /// Throws std::bad_alloc.
  explicit Quota(std::uint64_t most) : most_(most), places_(std::make_shared<char>()) {}
  std::uint64_t most() const noexcept { return most_; }  ///< number of places
  /// Number of places in use; exceeds most() if take() was called without checking full().
  std::uint64_t taken() const noexcept {
    return static_cast<std::uint64_t>(places_.use_count()) - 1;
  }
  bool full() const noexcept { return taken() >= most_; }  ///< whether all places are in use
  /// Returns a place even if none is left: check full() before. A copy counts as another place.
  Place take() const noexcept { return places_; }
  /// The text for Listener::on_refused() when a pending connection gets no place.
  Failure refusal(std::string_view peer) const {
    return {std::make_error_code(std::errc::connection_refused),
            std::string(peer.empty() ? "a client" : peer) + ": " + std::to_string(most_) +
                " connections are open (max-connections)"};
  }

 private:
  std::uint64_t most_;
  std::shared_ptr<const char> places_;  // each copy is a place in use
};

}}  // namespace conn
