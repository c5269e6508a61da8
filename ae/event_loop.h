// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The event loop interface: one loop per thread, with file events, time events, hooks around the
// sleep, functions posted by other threads, and sources of work that no descriptor announces.
//
// Thread rule for this file: call everything on the loop's own thread, except post() and Poster,
// which any thread may use. A handler may add, remove, replace and close anything, including
// itself.
//
// One iteration:
//   file and time events -> sources' pending work -> before_sleep hooks -> sources' flush
//   -> sources arm (and may veto) -> sleep -> after_sleep hooks

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <stdexcept>
#include <utility>

#include "ae/abi.h"
#include "ae/spin.h"
#include "ae/time.h"

namespace ae { inline namespace AECONN_ABI {

/// The readiness that a file event asks for or reports.
enum Mask : unsigned {
  kNone = 0,      ///< no direction
  kReadable = 1,  ///< data or end of stream can be read
  kWritable = 2,  ///< a write can make progress
  /// With kWritable: if the descriptor is readable and writable in one iteration, the write
  /// handler runs first (Redis's AE_BARRIER).
  kBarrier = 4,
  /// The caller guarantees that the descriptor stays open until its last event is removed. The
  /// loop then skips the check whether it is open, which saves a system call when interest begins
  /// or changes; a closed descriptor may abort the process. The flag applies to both directions,
  /// and is ignored if either direction is added without it.
  kTrusted = 8,
};
/// Union.
constexpr Mask operator|(Mask a, Mask b) {
  return static_cast<Mask>(static_cast<unsigned>(a) | static_cast<unsigned>(b));
}
/// Intersection.
constexpr Mask operator&(Mask a, Mask b) {
  return static_cast<Mask>(static_cast<unsigned>(a) & static_cast<unsigned>(b));
}
/// Complement.
constexpr Mask operator~(Mask a) { return static_cast<Mask>(~static_cast<unsigned>(a) & 15u); }

/// What one call of process_events() may do.
enum Process : unsigned {
  kFileEvents = 1,                         ///< run file event handlers
  kTimeEvents = 2,                         ///< run time event handlers
  kDontWait = 4,                           ///< poll: return at once if nothing is ready
  kCallBeforeSleep = 8,                    ///< run before_sleep hooks (sources are always served)
  kCallAfterSleep = 16,                    ///< run after_sleep hooks
  kAllEvents = kFileEvents | kTimeEvents,  ///< file and time events
  kFullIteration = kAllEvents | kCallBeforeSleep | kCallAfterSleep,  ///< as run() does
};
/// Union.
constexpr Process operator|(Process a, Process b) {
  return static_cast<Process>(static_cast<unsigned>(a) | static_cast<unsigned>(b));
}

/// Runs when `fd` is ready; `ready` is kReadable or kWritable. Level-triggered: it is called again
/// in the next iteration while the descriptor stays ready.
using FileHandler = std::function<void(int fd, Mask ready)>;

/// A TimeHandler returns this to end its time event.
inline constexpr Duration kNoMore = Duration::min();

/// Returns the delay until its next call; negative values other than kNoMore count as 0.
using TimeHandler = std::function<Duration()>;

using TimerId = std::uint64_t;  ///< never 0; not reused
using HookId = std::uint64_t;   ///< never 0; not reused

/// Work that no descriptor announces, or that a descriptor announces too late: bytes that are
/// already decrypted, completions in a queue, connections that are readable by the library's rules
/// rather than the kernel's. The loop does not own sources: call remove_source() before the object
/// is destroyed.
class AECONN_API Source {
 public:
  Source() = default;
  Source(const Source&) = delete;
  Source& operator=(const Source&) = delete;
  virtual ~Source() = default;

  /// True while there is work to do now: the loop then polls instead of sleeping.
  virtual bool has_pending() const = 0;
  /// Does a bounded part of the work (see EventLoop::has_time()). Called in every iteration, and
  /// again after arm() vetoed the sleep. Returns the number of handlers run, for process_events().
  virtual std::size_t process_pending() = 0;
  /// Sends what has been written. Called after each process_pending() and the before_sleep hooks.
  virtual void flush() {}
  /// Called last, and only if the loop is about to block. Requests a wake-up through a descriptor,
  /// then checks for work once more. Returning false vetoes the sleep.
  virtual bool arm() { return true; }
  /// How the loop busy-polls has_pending_now() before it arms and sleeps; null: no spinning for
  /// this source. While it spins, the loop runs an iteration for descriptors and timers every 20 us
  /// (every 2 us if EventLoop::set_spin() asks too).
  virtual const Spin* spin() const { return nullptr; }
  /// Checks for new work without a system call; used while spinning. True ends the spin.
  virtual bool has_pending_now() { return has_pending(); }
};

/// Base class of objects for destroy_later(). The list link is a member, so deferring does not
/// allocate.
class AECONN_API Deferred {
 public:
  Deferred() = default;
  Deferred(const Deferred&) = delete;
  Deferred& operator=(const Deferred&) = delete;
  virtual ~Deferred() = default;

 private:
  friend class DeferredList;
  Deferred* next_ = nullptr;
};

/// Per-loop state of an object that serves several loops, such as the contexts of a transport.
/// Owned by the loop; destroyed in reverse order of creation, before the loop's own watchers.
class AECONN_API LoopLocal {
 public:
  LoopLocal() = default;
  LoopLocal(const LoopLocal&) = delete;
  LoopLocal& operator=(const LoopLocal&) = delete;
  virtual ~LoopLocal() = default;
  /// Replaces what is shared with the parent. Called from the loop's after_fork(), in a child of
  /// fork() that continues to use the loop.
  virtual void after_fork() noexcept {}
};

/// Posts functions to a loop that may already be destroyed. Copyable; every member may be used
/// from any thread.
class AECONN_API Poster {
 public:
  class Queue;  ///< state shared by a loop and its posters
  Poster() = default;
  /// For implementations of loops.
  explicit Poster(std::shared_ptr<Queue> queue) : queue_(std::move(queue)) {}
  /// Runs `fn` on the loop's thread. Functions posted by one thread run in posting order. Returns
  /// false if the loop is destroyed or the poster is empty: `fn` then never runs. True guarantees
  /// that `fn` runs exactly once, at the latest during the loop's destruction.
  bool post(std::function<void()> fn) const;
  /// Whether post() would succeed now. If it is false inside a posted function, the loop is being
  /// destroyed.
  bool open() const noexcept;

 private:
  std::shared_ptr<Queue> queue_;
};

/// Incorrect use of the loop, such as a re-entrant run() or a negative descriptor.
class AECONN_API LoopError : public std::logic_error {
 public:
  using std::logic_error::logic_error;
};

/// An event loop, independent of how it waits. Implementations: LibevLoop and EpollLoop.
class AECONN_API EventLoop {
 public:
  EventLoop() = default;
  EventLoop(const EventLoop&) = delete;
  EventLoop& operator=(const EventLoop&) = delete;
  /// First runs the posted functions and destroys LoopLocals and deferred objects. Must not be
  /// called from inside a handler.
  virtual ~EventLoop() = default;

  // --- file events -------------------------------------------------------------------------------
  /// Sets `handler` for each direction in `mask` (kReadable, kWritable, either with kBarrier or
  /// kTrusted); the other direction is unchanged. Does not own `fd`: remove the events before
  /// closing it. Throws LoopError for a negative fd, an empty mask or an empty handler. If the
  /// descriptor turns out to be closed, its handlers run once, so that their next system call
  /// reports the error, and are then removed.
  virtual void add_file_event(int fd, Mask mask, FileHandler handler) = 0;
  /// Removes the directions in `mask`; no-op for those that are not set. A handler that is already
  /// due in this iteration does not run.
  virtual void remove_file_event(int fd, Mask mask) = 0;
  /// The directions with a handler, and kBarrier; never kTrusted.
  virtual Mask file_events(int fd) const = 0;

  // --- time events -------------------------------------------------------------------------------
  /// Calls `handler` once `delay` has passed on the monotonic clock, never earlier. The delay
  /// counts from the actual time, which in a slow handler is later than now(). A handler that
  /// throws is not called again.
  virtual TimerId add_time_event(Duration delay, TimeHandler handler) = 0;
  /// Calls `handler` at `when`, never earlier; at a past time, in the next iteration. Saves a clock
  /// read if the time is known: now() + 5s.
  virtual TimerId add_time_event(TimePoint when, TimeHandler handler) = 0;
  /// Moves an event to an earlier or later time, as if it were removed and added; an event that is
  /// already due may be moved too. Cheaper than removing and adding, most of all for a later time:
  /// intended for time-outs that every message restarts. Negative delays count as 0. Returns false
  /// if the event does not exist. From inside its own handler it overrides the returned delay.
  virtual bool again(TimerId id, Duration delay) noexcept = 0;
  /// Moves an event to a point in time.
  virtual bool again(TimerId id, TimePoint when) noexcept = 0;
  /// Returns false if the event does not exist. From inside its own handler it overrides the
  /// returned delay: the event is not re-armed.
  virtual bool remove_time_event(TimerId id) = 0;

  // --- hooks and sources -------------------------------------------------------------------------
  /// Hooks run in registration order; a hook added from within a hook first runs in the next
  /// iteration.
  virtual HookId add_before_sleep(std::function<void()> hook) = 0;
  /// As add_before_sleep(), for hooks that run after the sleep.
  virtual HookId add_after_sleep(std::function<void()> hook) = 0;
  /// No-op if the hook does not exist.
  virtual void remove_hook(HookId id) = 0;
  virtual void add_source(Source& source) = 0;     ///< not owned; see Source
  virtual void remove_source(Source& source) = 0;  ///< must precede its destruction

  // --- running -----------------------------------------------------------------------------------
  /// Runs iterations until stop(). Rethrows what a handler threw; the loop stays usable, and the
  /// other handlers that were due run in the next run(). Throws LoopError if called from inside a
  /// handler.
  virtual void run() = 0;
  /// Ends run() after the current iteration, once the data written by its handlers is flushed.
  /// Called before run(), it makes that run() return at once.
  virtual void stop() noexcept = 0;
  /// Runs one iteration, as Redis's aeProcessEvents does. Returns the number of handlers that ran.
  /// Does not sleep after serving a source, because the caller may be waiting for that work.
  virtual std::size_t process_events(Process flags) = 0;

  // --- other threads -----------------------------------------------------------------------------
  /// Runs `fn` on the loop's thread. May be called from any thread while the loop exists; use a
  /// Poster if the loop may be destroyed first. A function posted from within a posted function
  /// runs in a later iteration.
  virtual void post(std::function<void()> fn) = 0;
  virtual Poster poster() = 0;  ///< for threads that may outlive the loop

  // --- waiting -----------------------------------------------------------------------------------
  /// How the loop waits when it has nothing to do. Sources may ask for more (Spin::both). A loop
  /// that is set to spin here polls its descriptors too, even if no source needs polling.
  virtual void set_spin(const Spin& spin) { static_cast<void>(spin); }
  /// How the loop spent its time; all 0 for an implementation that does not measure it.
  virtual LoopTimes times() const { return {}; }

  // --- outside handlers --------------------------------------------------------------------------
  /// Wakes a loop that runs below a host's loop, which may be about to sleep, because there is work
  /// that no descriptor announces: for the sources' process_pending() or flush(), or objects to
  /// destroy. Code that gives work to a source must call it, such as a transport after a write;
  /// programs do not have to. Nearly free inside a handler, on a loop that uses its own run(), and
  /// when called repeatedly. Loop thread only.
  void nudge() noexcept {
    if (host_may_sleep_) on_nudge();
  }

  // --- lifetime ----------------------------------------------------------------------------------
  /// Destroys `object` once no handler is on the stack, at the latest with the loop.
  virtual void destroy_later(std::unique_ptr<Deferred> object) noexcept = 0;
  /// The slot for the per-loop state of `key`; empty at first. The reference stays valid until the
  /// loop is destroyed. It lets several objects share the loop without globals. Slots are created
  /// in the order of the first calls: state whose destructor needs other state must request that
  /// slot before its own.
  virtual std::unique_ptr<LoopLocal>& local(const void* key) = 0;

  /// The time of this iteration: cheap and monotonic. Outside handlers, the current time.
  virtual TimePoint now() const = 0;
  /// Whether this iteration may run one more handler. False once its handlers have taken 10 ms (the
  /// sources' are timed apart from the others): the remaining handlers keep their events and run
  /// first in the next iteration, so that completions, timers and descriptors are all served,
  /// however many handlers are due. Code that runs several handlers in one call (a source, a
  /// listener) must ask before each but the first; a source that stops early must return true from
  /// has_pending(). It reads a clock: cheap, but not free.
  virtual bool has_time() noexcept { return true; }
  /// True on the loop's thread while a handler, hook or source of this loop is running.
  virtual bool in_handler() const noexcept = 0;

 protected:
  /// For a loop whose host does the sleeping: while true, nudge() calls on_nudge(). The loop sets
  /// it to false while it works, and after a nudge until it has worked again.
  void set_host_may_sleep(bool may) noexcept { host_may_sleep_ = may; }
  bool host_may_sleep() const noexcept { return host_may_sleep_; }
  virtual void on_nudge() noexcept {}

 private:
  bool host_may_sleep_ = false;
};

}}  // namespace ae
