// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Limits the number of connection attempts in progress in a process, over all loops; further ones
// wait in a queue. Under a burst of reconnects, each attempt then has the resources to complete.

#include <cstddef>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>

#include "ae/abi.h"
#include "ae/core/fork.h"
#include "ae/event_loop.h"

namespace conn { inline namespace AECONN_ABI {

/// A number of places and a queue of waiting clients. Thread-safe.
class AECONN_API DialLimit {
 public:
  /// `most`: the number of places, at least one.
  explicit DialLimit(std::size_t most) : most_(most == 0 ? 1 : most) {}
  DialLimit(const DialLimit&) = delete;
  DialLimit& operator=(const DialLimit&) = delete;
  /// The default of Redial: 32 places.
  static DialLimit& of_process();

  /// A place, or a position in the queue. Use and destroy it on its loop's thread. The limit must
  /// outlive it.
  class Place;
  using PlacePtr = std::unique_ptr<Place>;  ///< destroying it gives the place up
  /// Call on the loop's thread. If the result does not hold() a place immediately, `granted` runs
  /// from the loop when it does, in the order of the enter() calls.
  [[nodiscard]] PlacePtr enter(ae::EventLoop& loop, std::function<void()> granted);

  /// Changes the number of places. Places already held are kept. Any thread.
  void set_most(std::size_t most);
  std::size_t taken() const;    ///< places in use; any thread
  std::size_t waiting() const;  ///< clients in the queue; any thread

 private:
  struct Entry {
    ae::Poster poster;
    std::function<void()> granted;  // used on the loop's thread
    bool holds = false;             // guarded by the limit's mutex
  };
  void leave(const std::shared_ptr<Entry>& entry) noexcept;
  void grant() noexcept;

  mutable ae::Mutex mutex_;
  std::size_t most_, taken_ = 0;
  std::deque<std::shared_ptr<Entry>> line_;
};

/// One client's place, from enter() until it is destroyed.
class DialLimit::Place {
 public:
  /// Use enter() instead.
  Place(DialLimit& limit, std::shared_ptr<Entry> entry) : limit_(limit), entry_(std::move(entry)) {}
  ~Place() { limit_.leave(entry_); }
  Place(const Place&) = delete;
  Place& operator=(const Place&) = delete;
  bool holds() const;  ///< false: still in the queue

 private:
  DialLimit& limit_;
  std::shared_ptr<Entry> entry_;
};

}}  // namespace conn
