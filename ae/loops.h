// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Several loops that serve together, each on a thread of its own. LoopGroup makes threads and
// loops; LoopList names those that a host program runs already.

#include <atomic>
#include <cstddef>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "ae/abi.h"
#include "ae/event_loop.h"

namespace ae { inline namespace AECONN_ABI {

/// Several loops, by index.
class AECONN_API Loops {
 public:
  Loops() = default;
  Loops(const Loops&) = delete;
  Loops& operator=(const Loops&) = delete;
  virtual ~Loops() = default;

  /// How many there are, those that have ended included; never 0. Any thread.
  virtual std::size_t size() const noexcept = 0;
  /// Posts to loop `index` (below size()). Any thread.
  virtual Poster poster(std::size_t index) const = 0;
  /// Runs `fn` on every loop's thread, on all at the same time, and waits until it ran on all.
  /// Rethrows the first exception, that of the lowest index. Throws LoopError where a loop has
  /// ended (`fn` ran on the others then) and on the thread of one of the loops, which would wait
  /// for itself. Any other thread.
  virtual void on_each(const std::function<void(EventLoop& loop, std::size_t index)>& fn) = 0;
  /// For whoever listens on a device: on these processors (sched_setaffinity(2) numbers) it is
  /// near. `whose` tells the listeners apart; an empty list takes back what it said. Any thread.
  virtual void set_near(const void* /*whose*/, const std::vector<int>& /*processors*/) {}
};

/// Loops of the host program's own, on threads of its own: a cache's workers, say. They may end
/// before this does, but not while on_each() runs.
class AECONN_API LoopList final : public Loops {
 public:
  /// Borrows the loops; at least one. Nothing is done with them here but posting. on_each() waits
  /// until they run, and for ever where one does not: what works with the list (conn::listen(), a
  /// listener that is dropped) is for the time while they run. Throws LoopError for an empty list.
  explicit LoopList(const std::vector<EventLoop*>& loops);
  std::size_t size() const noexcept override { return entries_.size(); }
  Poster poster(std::size_t index) const override { return entries_[index].poster; }
  void on_each(const std::function<void(EventLoop& loop, std::size_t index)>& fn) override;

 private:
  struct Entry {
    EventLoop* loop;
    Poster poster;
    std::shared_ptr<std::atomic<std::thread::id>> thread;  // known once it has run
  };
  std::vector<Entry> entries_;
};

/// on_each() for an implementation that has posters and loops: posts, waits, rethrows.
AECONN_API void run_on_each(std::size_t count, const std::function<Poster(std::size_t)>& poster,
                            const std::function<EventLoop&(std::size_t)>& loop,
                            const std::function<void(EventLoop&, std::size_t)>& fn);

}}  // namespace ae
