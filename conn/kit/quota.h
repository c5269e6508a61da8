// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Quota: counts connections against a limit: those of one listener (option max-connections), or
// those to one address (option spread). Used by transports; host programs do not need it.

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "ae/abi.h"
#include "ae/event_loop.h"
#include "conn/error.h"

namespace conn { inline namespace AECONN_ABI {

/// Counts connections against a limit. Each counted connection owns a Place, and counts until the
/// Place is destroyed. Call the functions on one thread or under a lock. A Place may be destroyed
/// on any thread, so full() may stay true for a short time after that.
class Quota {
 public:
  /// The object that a Place points to. Each pointer to it counts as one connection.
  class Slot {
   public:
    Slot() = default;
    Slot(const Slot&) = delete;
    Slot& operator=(const Slot&) = delete;
    virtual ~Slot() = default;
    /// Called when the connection has moved to `loop`, on the thread of that loop. The default does
    /// nothing.
    virtual void moved_to(const ae::EventLoop& /*loop*/) const noexcept {}
  };
  /// A pointer that counts one connection in the quota while it exists. The connection owns it, and
  /// may release it on another thread. Null: the connection is not counted.
  using Place = std::shared_ptr<const Slot>;
  static constexpr std::uint64_t kDefault = 65536;  ///< default value of option max-connections
  /// Largest value that option max-connections accepts.
  static constexpr std::uint64_t kMost = 100'000'000;

  /// Creates a quota that allows `most` connections. Throws std::bad_alloc.
  explicit Quota(std::uint64_t most) : most_(most), places_(std::make_shared<Slot>()) {}
  /// Number of connections that the quota allows at once.
  std::uint64_t most() const noexcept { return most_; }
  /// Returns the number of connections that are counted. It exceeds most() if take() was called
  /// without checking full().
  std::uint64_t taken() const noexcept {
    return static_cast<std::uint64_t>(places_.use_count()) - 1;
  }
  /// Returns whether as many connections are counted as the quota allows.
  bool full() const noexcept { return taken() >= most_; }
  /// Counts one more connection, even if the quota is full: the caller must check full() before.
  /// Each copy of the result counts as another connection.
  Place take() const noexcept { return places_; }
  /// Returns the failure that Listener::on_refused() reports when the pending connection of `peer`
  /// is refused because the quota is full.
  Failure refusal(std::string_view peer) const {
    return {std::make_error_code(std::errc::connection_refused),
            std::string(peer.empty() ? "a client" : peer) + ": " + std::to_string(most_) +
                " connections are open (max-connections)"};
  }

 private:
  std::uint64_t most_;
  Place places_;  // each copy of this pointer counts one connection
};

}}  // namespace conn
