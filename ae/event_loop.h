// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// One thread, one loop: file events, time events, hooks around the sleep, posts from other
// threads, and sources of work that no descriptor announces.
//
// Thread rule for this file: everything is called on the loop's own thread, except post() and
// Poster, which any thread may use. Handlers may add, remove, replace and close anything, the
// handler that is running included.
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

/// Which readiness a file event asks for, or reports.
enum Mask : unsigned {
  kNone = 0,      ///< no direction
  kReadable = 1,  ///< there is something to read, or the end
  kWritable = 2,  ///< there is room to write
  /// With kWritable: if the descriptor is readable and writable in one iteration, the write
  /// handler runs first (Redis's AE_BARRIER).
  kBarrier = 4,
  /// The descriptor is certain to stay open until its last event is removed, so the loop need not
  /// look whether it is: a system call less where interest begins or changes. A closed one may end
  /// the process then. Holds for both directions, and not at all if one of them comes without it.
  kTrusted = 8,
};
/// Both.
constexpr Mask operator|(Mask a, Mask b) {
  return static_cast<Mask>(static_cast<unsigned>(a) | static_cast<unsigned>(b));
}
/// What both have.
constexpr Mask operator&(Mask a, Mask b) {
  return static_cast<Mask>(static_cast<unsigned>(a) & static_cast<unsigned>(b));
}
/// All others.
constexpr Mask operator~(Mask a) { return static_cast<Mask>(~static_cast<unsigned>(a) & 15u); }

/// What one call of process_events() may do.
enum Process : unsigned {
  kFileEvents = 1,                         ///< handlers of descriptors
  kTimeEvents = 2,                         ///< handlers of times
  kDontWait = 4,                           ///< Poll: return at once when nothing is ready.
  kCallBeforeSleep = 8,                    ///< Run before_sleep hooks (sources are always served).
  kCallAfterSleep = 16,                    ///< Run after_sleep hooks.
  kAllEvents = kFileEvents | kTimeEvents,  ///< handlers of both
  kFullIteration = kAllEvents | kCallBeforeSleep | kCallAfterSleep,  ///< as run() does
};
/// Both.
constexpr Process operator|(Process a, Process b) {
  return static_cast<Process>(static_cast<unsigned>(a) | static_cast<unsigned>(b));
}

/// Runs when `fd` is ready. `ready` is kReadable or kWritable. Called again in the next iteration
/// while the descriptor stays ready (level-triggered).
using FileHandler = std::function<void(int fd, Mask ready)>;

/// Returned by a TimeHandler that wants no further call.
inline constexpr Duration kNoMore = Duration::min();

/// Returns the delay until its next call (negative values other than kNoMore count as 0).
using TimeHandler = std::function<Duration()>;

using TimerId = std::uint64_t;  ///< Never 0; not reused.
using HookId = std::uint64_t;   ///< Never 0; not reused.

/// Work that no descriptor announces, or announces too late: bytes decrypted ahead, completions
/// in a queue, connections that are readable by rule rather than by the kernel.
/// The loop borrows sources: remove_source() before the object dies.
class AECONN_API Source {
 public:
  Source() = default;
  Source(const Source&) = delete;
  Source& operator=(const Source&) = delete;
  virtual ~Source() = default;

  /// True while there is work to do now: the loop then polls instead of sleeping.
  virtual bool has_pending() const = 0;
  /// Does a bounded piece of the work (EventLoop::has_time()); called in every iteration, and again
  /// where arm() vetoed the sleep. Returns the number of things done (handlers run), for
  /// process_events().
  virtual std::size_t process_pending() = 0;
  /// Called after each process_pending() and the before_sleep hooks: send what has been written.
  virtual void flush() {}
  /// Called last, only if the loop is about to block: ask to be woken (through a descriptor), then
  /// look once more. False vetoes the sleep.
  virtual bool arm() { return true; }
  /// Whether and how the loop is to busy-poll has_pending_now() before it arms and sleeps; null:
  /// not for this source. Every 20 us the loop looks at descriptors and timers meanwhile, in a turn
  /// of its iteration.
  virtual const Spin* spin() const { return nullptr; }
  /// Looks for new work without a system call; used while spinning. True ends the spin.
  virtual bool has_pending_now() { return has_pending(); }
};

/// Something destroy_later() takes. The link is inside, so deferring allocates nothing.
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

/// Per-loop state of something that serves many loops (a transport's contexts). Owned by the loop,
/// destroyed in reverse order of creation before the loop's own watchers go.
class AECONN_API LoopLocal {
 public:
  LoopLocal() = default;
  LoopLocal(const LoopLocal&) = delete;
  LoopLocal& operator=(const LoopLocal&) = delete;
  virtual ~LoopLocal() = default;
  /// In a child of fork() that goes on with the loop, when it says so: what is shared with the
  /// parent is replaced.
  virtual void after_fork() noexcept {}
};

/// Posts to a loop that may be gone. Copyable; every member may be used from any thread.
class AECONN_API Poster {
 public:
  class Queue;  ///< what a loop and its posters share
  Poster() = default;
  /// For loops.
  explicit Poster(std::shared_ptr<Queue> queue) : queue_(std::move(queue)) {}
  /// Runs `fn` on the loop's thread. Posts of one thread run in their order. False if the loop is
  /// gone (or was never there): `fn` then never runs. True is a promise: it runs exactly once, at
  /// the latest while the loop is being destroyed.
  bool post(std::function<void()> fn) const;
  /// Whether post() would be true now. False inside a posted function: the loop is being destroyed.
  bool open() const noexcept;

 private:
  std::shared_ptr<Queue> queue_;
};

/// A mistake in the use of the loop (re-entrant run, negative descriptor).
class AECONN_API LoopError : public std::logic_error {
 public:
  using std::logic_error::logic_error;
};

/// A loop, whatever it waits with. LibevLoop and EpollLoop are two.
class AECONN_API EventLoop {
 public:
  EventLoop() = default;
  EventLoop(const EventLoop&) = delete;
  EventLoop& operator=(const EventLoop&) = delete;
  /// LoopLocals, posted functions and deferred objects go first. Not from inside a handler.
  virtual ~EventLoop() = default;

  // --- file events -------------------------------------------------------------------------------
  /// Sets `handler` for each direction in `mask` (kReadable, kWritable, either with kBarrier
  /// or kTrusted) and
  /// leaves the other direction alone. Borrows `fd`: remove the events before closing it.
  /// Throws LoopError for a negative fd, an empty mask or an empty handler. The handlers of a
  /// descriptor that turns out to be closed run once, so that their next call fails, and are
  /// removed.
  virtual void add_file_event(int fd, Mask mask, FileHandler handler) = 0;
  /// Removes the directions in `mask`. No-op where none is set. A handler that is already due in
  /// this iteration does not run.
  virtual void remove_file_event(int fd, Mask mask) = 0;
  /// Without kTrusted.
  virtual Mask file_events(int fd) const = 0;

  // --- time events -------------------------------------------------------------------------------
  /// Calls `handler` not earlier than `delay` from now, by the monotonic clock: from the real now,
  /// which in a slow handler is later than now(). A handler that throws is not called again.
  virtual TimerId add_time_event(Duration delay, TimeHandler handler) = 0;
  /// Not earlier than `when`. Spares a look at the clock where the time is at hand: now() + 5s. One
  /// whose time is over runs in the next iteration.
  virtual TimerId add_time_event(TimePoint when, TimeHandler handler) = 0;
  /// Moves an event, to an earlier or a later time, as if it had been removed and added; also one
  /// that is due. Cheaper than that, most of all where it becomes later: made for time-outs that
  /// each message starts anew. Negative delays count as 0. False if there is no such event (any
  /// more). From inside its own handler: stronger than what that returns.
  virtual bool again(TimerId id, Duration delay) noexcept = 0;
  /// The same, to a point in time.
  virtual bool again(TimerId id, TimePoint when) noexcept = 0;
  /// False if there is no such event (any more). From inside its own handler: it is not re-armed.
  virtual bool remove_time_event(TimerId id) = 0;

  // --- hooks and sources -------------------------------------------------------------------------
  /// Hooks run in the order they were added; one that is added by a hook, from the next time on.
  virtual HookId add_before_sleep(std::function<void()> hook) = 0;
  /// As add_before_sleep(), for what runs once the sleep is over.
  virtual HookId add_after_sleep(std::function<void()> hook) = 0;
  /// No-op where there is no such hook (any more).
  virtual void remove_hook(HookId id) = 0;
  virtual void add_source(Source& source) = 0;     ///< borrowed until remove_source()
  virtual void remove_source(Source& source) = 0;  ///< before the source dies

  // --- running -----------------------------------------------------------------------------------
  /// Runs iterations until stop(). Rethrows what a handler threw, with the loop still usable: the
  /// other handlers that were due run when it is run again.
  /// Throws LoopError when called from inside a handler.
  virtual void run() = 0;
  /// Ends run() after the current iteration, with what its handlers wrote flushed. Before run():
  /// that run() returns at once.
  virtual void stop() noexcept = 0;
  /// One iteration, as Redis's aeProcessEvents. Returns the number of handlers that ran; it does
  /// not sleep after serving a source, whose work may be what the caller waits for.
  virtual std::size_t process_events(Process flags) = 0;

  // --- other threads -----------------------------------------------------------------------------
  /// Any thread, as long as the loop lives; see Poster for the case where it may not. What a posted
  /// function posts runs in a later iteration.
  virtual void post(std::function<void()> fn) = 0;
  virtual Poster poster() = 0;  ///< for threads that may outlive the loop

  // --- waiting -----------------------------------------------------------------------------------
  /// How the loop waits when it has nothing to do. Sources may ask for more (Spin::both). It looks
  /// at its descriptors again and again then, also where no source has anything to poll.
  virtual void set_spin(const Spin& spin) { static_cast<void>(spin); }
  /// All 0 where a loop keeps no account.
  virtual LoopTimes times() const { return {}; }

  // --- outside handlers --------------------------------------------------------------------------
  /// There is something for the sources' process_pending() or flush(), or to destroy, that no
  /// descriptor announces: a loop below a host's, which may be about to sleep, wakes for it. Who
  /// gives a source work calls it, a transport for what is written; programs need not. Costs next
  /// to nothing inside a handler, on a loop with a run() of its own, and where it was called
  /// already. Loop thread.
  void nudge() noexcept {
    if (host_may_sleep_) on_nudge();
  }

  // --- lifetime ----------------------------------------------------------------------------------
  /// Destroys `object` once no handler is on the stack (at the latest with the loop).
  virtual void destroy_later(std::unique_ptr<Deferred> object) noexcept = 0;
  /// The slot for `key`'s per-loop state; empty at first. The reference stays valid until the loop
  /// dies. Several objects share the loop without globals this way. State that needs other state in
  /// its destructor asks for that slot before its own: the order of asking is that of creation.
  virtual std::unique_ptr<LoopLocal>& local(const void* key) = 0;

  /// The time of this iteration, cheap, monotonic; outside handlers simply the time.
  virtual TimePoint now() const = 0;
  /// Whether this iteration may run one more handler. False once its handlers took 10 ms together:
  /// the others keep their events for the next iteration, where they run first, so that
  /// completions, timers and descriptors have their turn, however many handlers are due. Whoever
  /// runs several in one call (a source, a listener) asks before each but the first; a source that
  /// stops then says so by has_pending(). A look at a clock: cheap, but not free.
  virtual bool has_time() noexcept { return true; }
  /// True on the loop's thread while a handler, hook or source of this loop is running.
  virtual bool in_handler() const noexcept = 0;

 protected:
  /// For a loop whose sleep is not its own: nudge() is to reach on_nudge(). Not while it works, and
  /// not again before it has.
  void set_host_may_sleep(bool may) noexcept { host_may_sleep_ = may; }
  bool host_may_sleep() const noexcept { return host_may_sleep_; }
  virtual void on_nudge() noexcept {}

 private:
  bool host_may_sleep_ = false;
};

}}  // namespace ae
