// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// ae::EventLoop on one epoll instance, without libev: with a run() of its own, or below the loop of
// a host program, whatever that is, by one descriptor.
//
// A host needs two lines:
//
//   poll descriptor() for reading, level-triggered, as any other
//   when it is readable, call dispatch()
//
// The descriptor is readable exactly while there is something to do: files, timers, posts, work
// that was left over. What the host does to the loop outside dispatch(), as writing to a
// connection, makes it readable where there is something to follow. A host that can run something
// before each of its sleeps may call prepare() there, which spares system calls; none has to.

#include <memory>

#include "ae/abi.h"
#include "ae/event_loop.h"

namespace ae { inline namespace AECONN_ABI {

/// A loop on epoll alone: one of its own, or below a host's.
class AECONN_API EpollLoop final : public EventLoop {
 public:
  /// Throws std::system_error if the kernel gives no descriptors for it: two, and two more for a
  /// host. run() and process_events() open a third, and keep it, once a timer has outlasted 16
  /// sleeps; they may then be woken once for a timer that was cancelled or moved meanwhile.
  EpollLoop();
  ~EpollLoop() override;

  void add_file_event(int fd, Mask mask, FileHandler handler) override;
  void remove_file_event(int fd, Mask mask) override;
  Mask file_events(int fd) const override;
  TimerId add_time_event(Duration delay, TimeHandler handler) override;
  TimerId add_time_event(TimePoint when, TimeHandler handler) override;
  bool again(TimerId id, Duration delay) noexcept override;
  bool again(TimerId id, TimePoint when) noexcept override;
  bool remove_time_event(TimerId id) override;
  HookId add_before_sleep(std::function<void()> hook) override;
  HookId add_after_sleep(std::function<void()> hook) override;
  void remove_hook(HookId id) override;
  void add_source(Source& source) override;
  void remove_source(Source& source) override;
  void run() override;
  void stop() noexcept override;
  std::size_t process_events(Process flags) override;
  void set_spin(const Spin& spin) override;
  LoopTimes times() const override;
  void post(std::function<void()> fn) override;
  Poster poster() override;
  void destroy_later(std::unique_ptr<Deferred> object) noexcept override;
  std::unique_ptr<LoopLocal>& local(const void* key) override;
  TimePoint now() const override;
  bool has_time() noexcept override;
  bool in_handler() const noexcept override;

  // --- below a host's loop -----------------------------------------------------------------------
  /// Readable while there is something to do, for poll(2), epoll, io_uring and whatever polls
  /// descriptors; to be watched level-triggered. The loop's own: valid until it dies, the same at
  /// every call but after after_fork(); neither to be read nor to be closed. From the first call on
  /// the loop keeps it true. A timer that was moved to a later time may make it readable once with
  /// nothing to do. Throws std::system_error if the kernel gives no descriptor for timers.
  int descriptor();
  /// Does what is there, without waiting: one iteration, that begins with the events and ends ready
  /// for the host's sleep. Where there is nothing it costs a system call. Returns the number of
  /// handlers that ran. Rethrows what a handler threw; the others that were due run in the next
  /// one, for which the descriptor is readable.
  ///
  /// Also from inside a handler of this loop that lets the host turn its loop meanwhile (a script
  /// that runs for long, and looks for what is new in between). Such a nested turn serves file
  /// events and sources, but not the handlers that are running; no posts, timers, hooks or deferred
  /// objects: these wait for the next turn that is not nested. What the handler itself has written
  /// leaves with the first nested turn: a host that may sleep there calls dispatch() before.
  std::size_t dispatch();
  /// For a host that calls it before each of its sleeps, or never. Sends what was written since
  /// dispatch(), tells the kernel what is waited for, and runs no handler. False: there is
  /// something to do still; the descriptor is readable then, so a host may leave it to its poll, or
  /// poll without waiting. The first call is the promise of one before every sleep: from then on
  /// dispatch() leaves the preparation of the sleep to it, and what is written after dispatch()
  /// waits for it and costs no system call of its own. What is written after prepare() wakes the
  /// host, once, by one system call: it need not be called again. Rethrows what a source threw.
  bool prepare();
  /// Takes that promise back, for a loop that leaves such a host: dispatch() alone is enough again.
  /// Does what prepare() does, if there was one. Rethrows what a source threw.
  void end_prepare();
  /// In a child after fork(), before the loop is used again: it gets descriptors of its own. The
  /// host watches descriptor() anew. What could not be had is thrown as std::system_error.
  void after_fork();

 private:
  struct Impl;
  void on_nudge() noexcept override;
  std::unique_ptr<Impl> impl_;
};

}}  // namespace ae
