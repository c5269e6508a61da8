// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// ArrivalSource: an object that accepts connections. When a server stops, it is asked to accept the
// connections that have arrived before listening ends.

#include <cstdint>

#include "ae/abi.h"

namespace conn { inline namespace AECONN_ABI {

/// An object that accepts connections on one loop. The ConnectionSet of the loop has a list of
/// them.
class AECONN_API ArrivalSource {
 public:
  ArrivalSource() = default;
  ArrivalSource(const ArrivalSource&) = delete;
  ArrivalSource& operator=(const ArrivalSource&) = delete;
  /// Says what accept_arrived() has left to accept.
  enum class Left : std::uint8_t {
    kNothing,  ///< all connections that have arrived are accepted, or the listener is paused
    kWaits,    ///< more connections have arrived, but must wait, for example for room in a queue
    kMore,     ///< more connections have arrived, which the next iteration can accept
  };
  /// Called when a server that stops begins to accept what has arrived. May set a limit on the
  /// number of connections that accept_arrived() accepts in all; the default sets none.
  virtual void begin_accepting() noexcept {}
  /// Accepts connections that have arrived, up to the limit for one iteration of the loop. Handlers
  /// of the program may run, may destroy this object, and may throw.
  virtual Left accept_arrived() = 0;
  /// Removes this object from the list of its ConnectionSet, as the destructor does.
  void leave_list() noexcept {
    if (link_ == nullptr) return;
    *link_ = next_;
    if (next_ != nullptr) next_->link_ = link_;
    link_ = nullptr;
  }

 protected:
  virtual ~ArrivalSource() { leave_list(); }

 private:
  friend class ConnectionSet;
  ArrivalSource* next_ = nullptr;
  ArrivalSource** link_ = nullptr;
  // Number of the last call of ConnectionSet::accept_arrived() that asked this object.
  std::uint64_t round_ = 0;
};

}}  // namespace conn
