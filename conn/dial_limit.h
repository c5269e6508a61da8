// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// DialLimit limits the number of connection attempts in progress in a process, over all loops;
// further ones wait in a queue. In a burst of reconnects, each attempt then has the resources to
// complete.

#include <cstddef>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>

#include "ae/abi.h"
#include "ae/core/fork.h"
#include "ae/event_loop.h"

namespace conn { inline namespace AECONN_ABI {

/// A number of places for connection attempts, and a queue of waiting clients. Thread-safe.
class AECONN_API DialLimit {
 public:
  /// Creates a limit of `most` places; 0 counts as 1.
  explicit DialLimit(std::size_t most) : most_(most == 0 ? 1 : most) {}
  DialLimit(const DialLimit&) = delete;
  DialLimit& operator=(const DialLimit&) = delete;
  /// The limit that Redial uses by default: 32 places for the whole process.
  static DialLimit& of_process();

  /// A place, or a position in the queue for one. Use and destroy it on its loop's thread. The
  /// DialLimit must outlive it.
  class Place;
  using PlacePtr = std::unique_ptr<Place>;  ///< destroying it returns the place or leaves the queue
  /// Requests a place; to be called on the loop's thread. If the result does not hold() a place
  /// immediately, it waits in the queue, and `granted` runs from the loop when it gets one. Places
  /// are granted in the order of the enter() calls.
  [[nodiscard]] PlacePtr enter(ae::EventLoop& loop, std::function<void()> granted);

  /// Changes the number of places. Clients that hold a place keep it. Any thread.
  void set_most(std::size_t most);
  std::size_t taken() const;    ///< number of places in use; any thread
  std::size_t waiting() const;  ///< number of clients in the queue; any thread

 private:
  struct Entry {
    ae::Poster poster;
    std::function<void()> granted;  // called and destroyed on the loop's thread
    bool holds = false;             // whether the client has a place; guarded by the limit's mutex
  };
  void leave(const std::shared_ptr<Entry>& entry) noexcept;
  void grant() noexcept;

  mutable ae::Mutex mutex_;
  std::size_t most_, taken_ = 0;
  std::deque<std::shared_ptr<Entry>> line_;
};

/// One client's place or position in the queue, from enter() until this object is destroyed.
class DialLimit::Place {
 public:
  /// Called by enter(), which programs use instead.
  Place(DialLimit& limit, std::shared_ptr<Entry> entry) : limit_(limit), entry_(std::move(entry)) {}
  ~Place() { limit_.leave(entry_); }
  Place(const Place&) = delete;
  Place& operator=(const Place&) = delete;
  bool holds() const;  ///< whether it has a place; false: it is still in the queue

 private:
  DialLimit& limit_;
  std::shared_ptr<Entry> entry_;
};

}}  // namespace conn
