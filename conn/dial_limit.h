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

/// Limits how many connection attempts are in progress at once. Each attempt needs a place, which
/// is the permission to connect; a client that gets none waits in a queue. Thread-safe.
class AECONN_API DialLimit {
 public:
  /// Creates a limit of `most` simultaneous connection attempts; 0 means 1.
  explicit DialLimit(std::size_t most) : most_(most == 0 ? 1 : most) {}
  DialLimit(const DialLimit&) = delete;
  DialLimit& operator=(const DialLimit&) = delete;
  /// The limit that Redial uses by default: 32 simultaneous connection attempts in the whole
  /// process.
  static DialLimit& of_process();

  /// A client's permission to connect, or its position in the queue for one. Use and destroy it on
  /// the thread of the client's loop. The DialLimit must outlive it.
  class Place;
  /// Owns a client's Place; destroying it frees the place, or takes the client out of the queue.
  using PlacePtr = std::unique_ptr<Place>;
  /// Requests a place for a client of `loop`; call it on that loop's thread. If a place is free,
  /// the client has it when this function returns (Place::holds() is true), and `granted` is not
  /// called. Otherwise the client waits in the queue, and `granted` runs from the loop once the
  /// client has a place. Another thread may free a place before the caller calls holds(): holds()
  /// is then true, and `granted` runs nevertheless. Places are granted in the order of the enter()
  /// calls.
  [[nodiscard]] PlacePtr enter(ae::EventLoop& loop, std::function<void()> granted);

  /// Changes how many connection attempts may be in progress at once. Connection attempts that are
  /// already in progress continue. Thread-safe.
  void set_most(std::size_t most);
  /// Number of clients of this process that have a place now; may be called on any thread. In a
  /// child of fork() the number begins at 0: the parent's attempts do not count.
  std::size_t taken() const;
  /// Number of clients that wait in the queue for a place; may be called on any thread.
  std::size_t waiting() const;

 private:
  struct Entry {
    ae::Poster poster;
    // Called when the client gets its place; called and destroyed on the loop's thread.
    std::function<void()> granted;
    // True if the client has a place; false: it waits in the queue. Guarded by mutex_.
    bool holds = false;
    // Says whether the parent of this process (before fork()) created this entry.
    ae::MadeHere made_here;
  };
  void leave(const std::shared_ptr<Entry>& entry) noexcept;
  void grant() noexcept;
  void forget_parent() noexcept;

  mutable ae::Mutex mutex_;
  ae::MadeHere made_here_;
  std::size_t most_, taken_ = 0;
  std::deque<std::shared_ptr<Entry>> line_;
};

/// One client's permission to connect (its place), or its position in the queue for a place. It
/// begins with enter() and ends when this object is destroyed.
class DialLimit::Place {
 public:
  /// Called by DialLimit::enter(), which programs use instead of this constructor.
  Place(DialLimit& limit, std::shared_ptr<Entry> entry) : limit_(limit), entry_(std::move(entry)) {}
  ~Place() { limit_.leave(entry_); }
  Place(const Place&) = delete;
  Place& operator=(const Place&) = delete;
  /// Returns whether the client has a place; false: it still waits in the queue.
  bool holds() const;

 private:
  DialLimit& limit_;
  std::shared_ptr<Entry> entry_;
};

}}  // namespace conn
