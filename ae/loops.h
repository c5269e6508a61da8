// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// An interface to several event loops that serve together, each on a thread of its own. LoopGroup
// creates its threads and loops; LoopList refers to loops that the host program already runs.

#include <cstddef>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "ae/abi.h"
#include "ae/event_loop.h"

namespace ae { inline namespace AECONN_ABI {

/// A number of event loops, each addressed by an index from 0.
class AECONN_API Loops {
 public:
  Loops() = default;
  Loops(const Loops&) = delete;
  Loops& operator=(const Loops&) = delete;
  virtual ~Loops() = default;

  /// Returns the number of loops, including those that have ended; never 0. Thread-safe.
  virtual std::size_t size() const noexcept = 0;
  /// Returns a Poster for loop `index`, which must be less than size(). Thread-safe.
  virtual Poster poster(std::size_t index) const = 0;
  /// Returns loop `index`, which must be less than size(). Only functions that run on that loop,
  /// such as those posted with its Poster, may use the loop. Other threads may only compare the
  /// pointer, because the loop may be destroyed at any time. Thread-safe.
  virtual EventLoop* loop(std::size_t index) const noexcept = 0;
  /// Runs `fn` on the threads of all loops concurrently, and waits until all calls have returned.
  /// If several calls throw, rethrows the exception of the loop with the lowest index. Throws
  /// LoopError if a loop has ended (`fn` has then run on the others), or if called on the thread of
  /// one of the loops, which would wait for itself. May be called on any other thread.
  virtual void on_each(const std::function<void(EventLoop& loop, std::size_t index)>& fn) = 0;
  /// Runs `fn` for each loop like on_each(). Unlike on_each(), it may also be called on the loops'
  /// own threads, on several of them at the same time, and inside handlers. For the loops of the
  /// calling thread it calls `fn` at once. While it waits for the other loops, it also runs the
  /// functions that other threads pass to ask_each() for the loops of the calling thread, but no
  /// handlers. So `fn` must only read the state of its loop: it must not wait, run handlers, or
  /// begin or end anything. Throws like on_each(), but may be called on any thread.
  ///
  /// The loops of the calling thread are those for which thread() returns the calling thread,
  /// whether or not they run a handler now. While `fn` runs for one of them, another thread that
  /// begins to run or destroy that loop has to wait. For any other loop, the call waits until a
  /// thread runs or destroys that loop: for ever if no thread does, or if only the calling thread
  /// would. So a thread that takes over a loop from another thread must run the loop once before it
  /// calls ask_each(). While the other thread may still call ask_each(), the new thread must run
  /// the loop before it does anything else with it.
  void ask_each(const std::function<void(EventLoop& loop, std::size_t index)>& fn);
  /// Runs `fn` as ask_each() does, but only for loop `index`, which must be less than size().
  void ask(std::size_t index, const std::function<void(EventLoop& loop)>& fn);
  /// Returns the id of the thread that runs loop `index`: the last thread to call the loop's run(),
  /// process_events(), EpollLoop::dispatch() or prepare() (for a borrowed ev_loop: ev_run()), even
  /// if that call has returned. Before the first of these calls, returns the id of no thread
  /// (std::thread::id()). Throws LoopError in a child of fork() if the thread belongs to its
  /// parent. Thread-safe.
  virtual std::thread::id thread(std::size_t index) const;
  /// Tells the loops which processors (sched_setaffinity(2) numbers) are near the device that a
  /// listener uses; a LoopGroup with Config::pin then prefers them. `whose` identifies the
  /// listener; an empty list withdraws its entry. Thread-safe.
  virtual void set_near(const void* /*whose*/, const std::vector<int>& /*processors*/) {}
};

/// Event loops that the host program runs on its own threads, such as a cache's workers. They may
/// end before this object does, but not while on_each() runs.
class AECONN_API LoopList final : public Loops {
 public:
  /// Refers to `loops` without owning them, and only posts functions to them. on_each() waits until
  /// each loop has run its function, forever if one never does: so call it, conn::listen() or the
  /// destructor of a listener only while all loops run. A loop may be moved to another thread (see
  /// thread()), but not while on_each() runs. Throws LoopError for an empty list.
  explicit LoopList(const std::vector<EventLoop*>& loops);
  std::size_t size() const noexcept override { return entries_.size(); }
  Poster poster(std::size_t index) const override { return entries_[index].poster; }
  EventLoop* loop(std::size_t index) const noexcept override { return entries_[index].loop; }
  void on_each(const std::function<void(EventLoop& loop, std::size_t index)>& fn) override;

 private:
  struct Entry {
    EventLoop* loop;
    Poster poster;
  };
  std::vector<Entry> entries_;
};

/// Implements on_each() for any loops, given a Poster and the loop for each index: posts `fn` to
/// all of them, waits for all calls, and rethrows the first exception in the order of indices.
AECONN_API void run_on_each(std::size_t count, const std::function<Poster(std::size_t)>& poster,
                            const std::function<EventLoop&(std::size_t)>& loop,
                            const std::function<void(EventLoop&, std::size_t)>& fn);

}}  // namespace ae
