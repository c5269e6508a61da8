// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// How many connections are being made at once in a process, over all loops: the others stand in
// line. Each connection of a storm then has what it needs to come to its end.

#include <cstddef>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>

#include "ae/abi.h"
#include "ae/core/fork.h"
#include "ae/event_loop.h"

namespace conn { inline namespace AECONN_ABI {

/// A number of places, and a line before them. Any thread.
class AECONN_API DialLimit {
 public:
  /// `most` at least one.
  explicit DialLimit(std::size_t most) : most_(most == 0 ? 1 : most) {}
  DialLimit(const DialLimit&) = delete;
  DialLimit& operator=(const DialLimit&) = delete;
  /// The one that Redial uses where it is given none: 32 at once.
  static DialLimit& of_process();

  /// A place, or a place in the line. Lives, and goes, on its loop's thread; the limit outlives it.
  class Place;
  using PlacePtr = std::unique_ptr<Place>;  ///< dropping it leaves
  /// Any loop's thread. Where the result does not hold() a place at once, `granted` runs, from the
  /// loop, when it does; in the order in which they asked.
  [[nodiscard]] PlacePtr enter(ae::EventLoop& loop, std::function<void()> granted);

  /// Who holds a place keeps it. Any thread.
  void set_most(std::size_t most);
  std::size_t taken() const;    ///< places that are held; any thread
  std::size_t waiting() const;  ///< in the line; any thread

 private:
  struct Entry {
    ae::Poster poster;
    std::function<void()> granted;  // of the loop's thread
    bool holds = false;             // the limit's mutex
  };
  void leave(const std::shared_ptr<Entry>& entry) noexcept;
  void grant() noexcept;

  mutable ae::Mutex mutex_;
  std::size_t most_, taken_ = 0;
  std::deque<std::shared_ptr<Entry>> line_;
};

/// One client's, from enter() to its end.
class DialLimit::Place {
 public:
  /// For enter().
  Place(DialLimit& limit, std::shared_ptr<Entry> entry) : limit_(limit), entry_(std::move(entry)) {}
  ~Place() { limit_.leave(entry_); }
  Place(const Place&) = delete;
  Place& operator=(const Place&) = delete;
  bool holds() const;  ///< false: it is in the line

 private:
  DialLimit& limit_;
  std::shared_ptr<Entry> entry_;
};

}}  // namespace conn
