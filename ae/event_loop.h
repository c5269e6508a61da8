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
//   file and time events -> sources' pending work -> before_sleep hooks -> sources' flush()
//   -> sources' arm() (which may veto the sleep) -> sleep -> after_sleep hooks

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

class SourceList;

/// Directions of I/O on a descriptor, in which a file event waits for readiness or reports it.
enum Mask : unsigned {
  kNone = 0,      ///< no direction: neither reading nor writing
  kReadable = 1,  ///< data or end of stream can be read
  kWritable = 2,  ///< a write can make progress without blocking
  /// A flag to combine with kWritable: if the descriptor is readable and writable in one iteration,
  /// the write handler runs first (Redis's AE_BARRIER).
  kBarrier = 4,
  /// A flag by which the caller guarantees that the descriptor stays open until its last event is
  /// removed. The loop then does not check whether it is open, which saves a system call when
  /// interest begins or changes; a closed descriptor may abort the process. The flag applies to
  /// both directions, and is ignored if either direction is added without it.
  kTrusted = 8,
};
/// Returns the directions and flags that are in one or both of the masks.
constexpr Mask operator|(Mask a, Mask b) {
  return static_cast<Mask>(static_cast<unsigned>(a) | static_cast<unsigned>(b));
}
/// Returns the directions and flags that are in both masks.
constexpr Mask operator&(Mask a, Mask b) {
  return static_cast<Mask>(static_cast<unsigned>(a) & static_cast<unsigned>(b));
}
/// Returns the directions and flags that are not in the mask.
constexpr Mask operator~(Mask a) { return static_cast<Mask>(~static_cast<unsigned>(a) & 15u); }

/// What one call of process_events() may do. Values are combined with |.
enum Process : unsigned {
  kFileEvents = 1,       ///< run file event handlers
  kTimeEvents = 2,       ///< run time event handlers
  kDontWait = 4,         ///< do not sleep: return at once if nothing is ready
  kCallBeforeSleep = 8,  ///< run before_sleep hooks; sources are served even without this flag
  kCallAfterSleep = 16,  ///< run after_sleep hooks
  kAllEvents = kFileEvents | kTimeEvents,  ///< run file and time event handlers
  /// Do everything that one iteration of run() does.
  kFullIteration = kAllEvents | kCallBeforeSleep | kCallAfterSleep,
};
/// Returns the flags that are in one or both of the arguments.
constexpr Process operator|(Process a, Process b) {
  return static_cast<Process>(static_cast<unsigned>(a) | static_cast<unsigned>(b));
}

/// Called when `fd` is ready for reading or writing; `ready` is kReadable or kWritable. It is
/// called again in the next iteration if the descriptor is still ready (level-triggered).
using FileHandler = std::function<void(int fd, Mask ready)>;

/// The value that a TimeHandler returns to end its time event.
inline constexpr Duration kNoMore = Duration::min();

/// Called when a time event expires. Returns the delay until its next call, or kNoMore; other
/// negative values count as 0.
using TimeHandler = std::function<Duration()>;

using TimerId = std::uint64_t;  ///< identifies a time event of one loop; never 0, not reused
using HookId = std::uint64_t;   ///< identifies a hook of one loop; never 0, not reused

/// Work that no descriptor announces, or that a descriptor announces too late: bytes that are
/// already decrypted, completions in a queue, connections with readable data that the kernel does
/// not know of. The loop does not own sources. Call remove_source() before the source is destroyed,
/// or at least destroy it on the loop's thread, which removes it. A source may outlive its loop.
class AECONN_API Source {
 public:
  /// Creates a source that does not rest: a loop calls its functions in each iteration.
  Source() = default;
  Source(const Source&) = delete;
  Source& operator=(const Source&) = delete;
  virtual ~Source();

  /// Whether the source has work to do now. While it has, the loop polls for events instead of
  /// sleeping.
  virtual bool has_pending() const = 0;
  /// Does a part of the work, limited by EventLoop::has_time(). Called in every iteration unless
  /// the source rests, and again after arm() has vetoed the sleep or a spin has found work. Returns
  /// the number of handlers that ran, which process_events() adds to its result.
  virtual std::size_t process_pending() = 0;
  /// Sends the output that the program has written so far. Called after each process_pending(), and
  /// after the before_sleep hooks have run.
  virtual void flush() {}
  /// Prepares the source for the loop's sleep; called last, and only if the loop is about to sleep.
  /// An implementation has a descriptor wake the loop when work arrives, and then checks for work
  /// once more. Returning false vetoes the sleep.
  virtual bool arm() { return true; }
  /// Returns how the loop is to busy-poll has_pending_now() before it calls arm() and sleeps; null:
  /// no spinning for this source. While it spins, the loop polls descriptors and timers every 20 us
  /// (every 2 us if EventLoop::set_spin() asks for spinning too).
  virtual const Spin* spin() const { return nullptr; }
  /// Checks, without a system call, for new work of the source. Called repeatedly while the loop
  /// spins; the spin ends when it returns true.
  virtual bool has_pending_now() { return has_pending(); }

  /// Tells the loop that the source has no work until its own code calls wake(): the loop calls no
  /// function of a source that rests. An iteration costs less if all sources rest. Only for a
  /// source that is given all its work by code that can call wake(); has_pending() must return
  /// false meanwhile, and neither arm() nor spin() may be needed. May be called inside any function
  /// of the source. To be called on the loop's thread, or while the source is in no loop.
  void rest() noexcept {
    if (!rests_) set_rests(true);
  }
  /// Ends what rest() began: this iteration, or the next one, calls the source's functions again.
  /// Does nothing if the source does not rest, or if its loop has ended. Does not wake a host
  /// program that sleeps for the loop: see EventLoop::nudge().
  void wake() noexcept {
    if (rests_) set_rests(false);
  }

 private:
  friend class SourceList;
  void set_rests(bool rests) noexcept;
  SourceList* list_ = nullptr;  // the list of the source's loop; null: it is in no loop
  bool rests_ = false;
};

/// Base class of objects that can be passed to destroy_later(). Each object contains its list link,
/// so that deferring its destruction does not allocate.
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

/// The state that an object which serves several loops (such as a transport) keeps for one loop.
/// Owned by the loop; destroyed in reverse order of creation, before the loop's own watchers.
class AECONN_API LoopLocal {
 public:
  LoopLocal() = default;
  LoopLocal(const LoopLocal&) = delete;
  LoopLocal& operator=(const LoopLocal&) = delete;
  virtual ~LoopLocal() = default;
  /// Replaces the resources that a child of fork() shares with its parent. Called from the loop's
  /// after_fork(), if the child continues to use the loop.
  virtual void after_fork() noexcept {}
};

/// Posts functions to a loop that may already have been destroyed. Copyable; every member may be
/// called from any thread.
class AECONN_API Poster {
 public:
  class Queue;  ///< the state that a loop shares with its posters
  Poster() = default;
  /// Called by implementations of EventLoop, not by programs.
  explicit Poster(std::shared_ptr<Queue> queue) : queue_(std::move(queue)) {}
  /// Runs `fn` on the loop's thread. Functions posted by one thread run in posting order. Returns
  /// false, and never runs `fn`, if the loop has been destroyed or the poster is empty. True
  /// guarantees that `fn` runs exactly once, at the latest during the loop's destruction.
  bool post(std::function<void()> fn) const;
  /// Whether post() would succeed now. If it returns false inside a posted function, the loop is
  /// being destroyed.
  bool open() const noexcept;

 private:
  std::shared_ptr<Queue> queue_;
};

/// Reports incorrect use of the loop, such as a re-entrant run() or a negative descriptor.
class AECONN_API LoopError : public std::logic_error {
 public:
  using std::logic_error::logic_error;
};

/// An event loop, whatever mechanism it uses to wait. Implementations: LibevLoop and EpollLoop.
class AECONN_API EventLoop {
 public:
  EventLoop() = default;
  EventLoop(const EventLoop&) = delete;
  EventLoop& operator=(const EventLoop&) = delete;
  /// Destroys the loop. First it runs the functions that are still posted, and destroys its
  /// LoopLocal objects and those passed to destroy_later(). Must not be called from inside a
  /// handler.
  virtual ~EventLoop() = default;

  // --- file events -------------------------------------------------------------------------------
  /// Sets `handler` for each direction in `mask` (kReadable, kWritable, either with kBarrier or
  /// kTrusted); a direction that is not in `mask` keeps its handler. Does not own `fd`: remove the
  /// events before closing it. Throws LoopError for a negative fd, a mask without a direction or an
  /// empty handler. If `fd` is not open, throws std::system_error (EBADF), or else its handlers run
  /// once, so that their next system call reports the error, and are then removed.
  virtual void add_file_event(int fd, Mask mask, FileHandler handler) = 0;
  /// Removes the handlers of the directions in `mask`; does nothing for a direction without a
  /// handler. A removed handler does not run, even if it was already due in this iteration.
  virtual void remove_file_event(int fd, Mask mask) = 0;
  /// Returns the directions in which `fd` has a handler, with kBarrier if that flag is set; never
  /// kTrusted.
  virtual Mask file_events(int fd) const = 0;

  // --- time events -------------------------------------------------------------------------------
  /// Adds a time event that calls `handler` after `delay` on the monotonic clock, never earlier,
  /// and returns its id. The delay counts from the exact current time, which in a slow handler is
  /// later than now(). A handler that throws is not called again. Throws LoopError for an empty
  /// handler.
  virtual TimerId add_time_event(Duration delay, TimeHandler handler) = 0;
  /// Adds a time event that calls `handler` at the time `when`, never earlier; if `when` has
  /// passed, in the next iteration. Returns its id. In a handler, now() + 5s as `when` costs less
  /// than a delay of 5s, for which the loop reads the clock.
  virtual TimerId add_time_event(TimePoint when, TimeHandler handler) = 0;
  /// Moves a time event to an earlier or later time, as if it were removed and added again; one
  /// that is already due may be moved too. Cheaper than removing and adding, especially for a later
  /// time: intended for time-outs that every message restarts. Negative delays count as 0. Returns
  /// false if the event does not exist. Inside the event's own handler, it overrides the delay that
  /// the handler returns.
  virtual bool again(TimerId id, Duration delay) noexcept = 0;
  /// Changes the expiry of a time event to the time `when`. Otherwise like again() with a delay.
  virtual bool again(TimerId id, TimePoint when) noexcept = 0;
  /// Removes a time event. Returns false if it does not exist. Inside the event's own handler, it
  /// overrides the delay that the handler returns: the event ends.
  virtual bool remove_time_event(TimerId id) = 0;

  // --- hooks and sources -------------------------------------------------------------------------
  /// Adds a hook that runs in each iteration before the loop may sleep, and returns its id. Hooks
  /// run in the order in which they were added; one added inside a hook first runs in the next
  /// iteration.
  virtual HookId add_before_sleep(std::function<void()> hook) = 0;
  /// Adds a hook that runs in each iteration after the sleep, and returns its id. Hooks run in the
  /// order in which they were added.
  virtual HookId add_after_sleep(std::function<void()> hook) = 0;
  /// Removes the hook `id`. Does nothing if there is no such hook.
  virtual void remove_hook(HookId id) = 0;
  virtual void add_source(Source& source) = 0;  ///< adds a source, which the loop does not own
  /// Removes a source from the loop. To be called before the source is destroyed.
  virtual void remove_source(Source& source) = 0;

  // --- running the loop --------------------------------------------------------------------------
  /// Runs iterations until stop(). Rethrows an exception of a handler; the loop stays usable, and
  /// the other handlers that were due run in the next run(). Throws LoopError if called from inside
  /// a handler.
  virtual void run() = 0;
  /// Makes run() return after the current iteration, once the data that its handlers wrote is
  /// flushed. If the loop is not running, makes the next run() return at once.
  virtual void stop() noexcept = 0;
  /// Runs one iteration, limited to what `flags` allow, like Redis's aeProcessEvents. Returns the
  /// number of handlers that ran; throws like run(). If a source had work in this iteration, the
  /// call does not sleep, because the caller may be waiting for that work.
  virtual std::size_t process_events(Process flags) = 0;

  // --- functions from other threads --------------------------------------------------------------
  /// Runs `fn` on the loop's thread. May be called from any thread while the loop exists; use a
  /// Poster if the loop may be destroyed first. A function posted from within a posted function
  /// runs in a later iteration.
  virtual void post(std::function<void()> fn) = 0;
  virtual Poster poster() = 0;  ///< returns a Poster for this loop, for threads that may outlive it

  // --- how the loop waits ------------------------------------------------------------------------
  /// Sets how the loop waits when it has nothing to do. Sources may ask it to spin (to poll instead
  /// of sleeping) longer, see Spin::both. A loop that is set to spin here polls its descriptors
  /// too, even if no source needs polling.
  virtual void set_spin(const Spin& spin) { static_cast<void>(spin); }
  /// Returns how the loop has spent its time; all 0 for an implementation that does not measure it.
  virtual LoopTimes times() const { return {}; }

  // --- waking a loop inside a host program's loop ------------------------------------------------
  /// Wakes the loop if it runs inside a host program's loop and the host may be about to sleep.
  /// Code that gives work to a source must call it, such as a transport after a write, because no
  /// descriptor announces that work: the source's process_pending() or flush() must run, or objects
  /// must be destroyed. Programs do not have to call it. Nearly free inside a handler, on a loop
  /// that uses its own run(), and when called repeatedly. Loop thread only.
  void nudge() noexcept {
    if (host_may_sleep_) on_nudge();
  }

  // --- lifetime of objects, state for one loop, time ---------------------------------------------
  /// Destroys `object` once no handler is on the stack, or at the latest when the loop is
  /// destroyed.
  virtual void destroy_later(std::unique_ptr<Deferred> object) noexcept = 0;
  /// Returns the pointer that owns the state which the object at address `key` keeps for this loop;
  /// null until the caller sets it. The reference stays valid until the loop is destroyed. Such
  /// pointers let several objects share the loop without global variables. They are created in the
  /// order of the first calls, and destroyed in reverse order: state whose destructor needs other
  /// state must request that other pointer before its own.
  virtual std::unique_ptr<LoopLocal>& local(const void* key) = 0;

  /// Returns, inside a handler, the time at which this part of the iteration began: cheap and
  /// monotonic. Outside handlers, returns the current time.
  virtual TimePoint now() const = 0;
  /// Whether this iteration may run one more handler. False once its handlers have taken 10 ms (the
  /// time of sources' handlers is counted separately). The remaining handlers then keep their
  /// events and run first in the next iteration, so that completions, timers and descriptors are
  /// all served, however many handlers are due. Code that runs several handlers in one call (a
  /// source, a listener) must call has_time() before each handler except the first; a source that
  /// stops early must return true from has_pending(). The call reads a clock: cheap, but not free.
  virtual bool has_time() noexcept { return true; }
  /// Whether a handler, hook or source of this loop is running now. To be called on the loop's
  /// thread.
  virtual bool in_handler() const noexcept = 0;

 protected:
  /// For a loop whose host program does the sleeping: sets whether nudge() must call on_nudge().
  /// The loop sets it to false while it works, and after a nudge until it has worked again.
  void set_host_may_sleep(bool may) noexcept { host_may_sleep_ = may; }
  bool host_may_sleep() const noexcept { return host_may_sleep_; }
  virtual void on_nudge() noexcept {}

 private:
  bool host_may_sleep_ = false;
};

}}  // namespace ae
