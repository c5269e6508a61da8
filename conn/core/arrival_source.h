// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// ArrivalSource: what a graceful stop asks to accept the connections that have arrived before
// listening ends.

#include <cstdint>

#include "ae/abi.h"

namespace conn { inline namespace AECONN_ABI {

/// An object that accepts connections on one loop. ConnectionSet lists those of its loop.
class AECONN_API ArrivalSource {
 public:
  ArrivalSource() = default;
  ArrivalSource(const ArrivalSource&) = delete;
  ArrivalSource& operator=(const ArrivalSource&) = delete;
  /// What is left after accept_arrived().
  enum class Left : std::uint8_t {
    kNothing,  ///< all that have arrived are accepted, or the listener is paused
    kWaits,    ///< something else has to happen first, such as a queue that gets room
    kMore,     ///< the next iteration can accept more
  };
  /// Called when a stop begins to accept: sets how many connections are accepted at most.
  virtual void begin_accepting() noexcept {}
  /// Accepts connections that have arrived, as many as one iteration of the loop may. Handlers of
  /// the program may run, may destroy this object, and may throw.
  virtual Left accept_arrived() = 0;
  /// Takes this object from the list, as the destructor does.
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
  std::uint64_t round_ = 0;  // the last call of ConnectionSet::accept_arrived() that asked it
};

}}  // namespace conn
