// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// EpollLoop: an ae::EventLoop on one epoll instance, without libev. A program either calls its
// run(), or has any other event loop (the host's) poll one descriptor of the EpollLoop.
//
// A host has to do two things:
//
//   poll descriptor() for reading, level-triggered, like any other descriptor
//   call dispatch() when it is readable
//
// The descriptor is readable exactly while there is work to do: file events, timers, posted
// functions, or unfinished work. Operations outside dispatch(), such as writing to a connection,
// also make it readable if they need further processing. A host that can run code before each of
// its sleeps may call prepare() there, which saves system calls; this is optional.

#include <memory>

#include "ae/abi.h"
#include "ae/event_loop.h"

namespace ae { inline namespace AECONN_ABI {

/// An event loop that waits with epoll(7), on its own or inside a host program's event loop.
class AECONN_API EpollLoop final : public EventLoop {
 public:
  /// Creates a loop. Throws std::system_error if no descriptors are available. The loop opens two
  /// descriptors, and two more when a host calls descriptor() or prepare(). run() and
  /// process_events() open and keep a timerfd once the loop has slept more than 16 times before one
  /// timer expired. With a timerfd, the loop may wake up once for a timer that has been cancelled
  /// or moved.
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

  // --- inside a host program's event loop --------------------------------------------------------
  /// Returns a descriptor that is readable while there is work to do. Watch it level-triggered,
  /// with poll(2), epoll, io_uring or any other poller. It belongs to the loop: do not read or
  /// close it. It stays valid, with the same number, until the loop is destroyed. The loop keeps
  /// its readiness up to date from the first call on. A timer moved to a later time may make it
  /// readable once without work. Throws std::system_error if no descriptor is available.
  int descriptor();
  /// Runs one iteration without waiting, beginning with the events. Afterwards the host program's
  /// loop may sleep. With no work the call costs one system call. Returns the number of handlers
  /// that ran. Rethrows an exception of a handler; the other due handlers run in the next
  /// iteration, for which the descriptor is readable.
  ///
  /// May be called from inside a handler of this loop that runs the host's loop meanwhile (such as
  /// a long-running script that checks for new events in between). Such a nested call serves file
  /// events and sources, except the handlers that are running. Posted functions, timers, hooks and
  /// deferred objects wait for the next call that is not nested. Data that the handler itself has
  /// written is sent by the first nested call; a host that may sleep inside the handler must call
  /// dispatch() before it sleeps.
  std::size_t dispatch();
  /// Prepares the sleep of the host program's loop: sends what was written since dispatch() and
  /// registers interest with the kernel, but runs no handler. A host must call it before each of
  /// its sleeps, or never. Returns false if there is still work; the descriptor is then readable,
  /// so a host may poll as usual, or poll without waiting.
  ///
  /// After the first call, dispatch() no longer prepares the sleep itself, and data written after
  /// dispatch() waits for prepare() without a system call of its own. Data written after prepare()
  /// wakes the host, once, with one system call; prepare() need not be called again for it.
  /// Rethrows an exception of a source.
  bool prepare();
  /// Ends the use of prepare(), for a loop that is moved to a host program which does not call it:
  /// dispatch() alone is sufficient again. Prepares the sleep if prepare() was in use. Rethrows an
  /// exception of a source.
  void end_prepare();
  /// Gives the loop descriptors of its own in a child after fork(). To be called before the child
  /// uses the loop again. A host program must then watch descriptor() anew. Throws
  /// std::system_error if no descriptor is available.
  void after_fork();

 private:
  struct Impl;
  void on_nudge() noexcept override;
  std::unique_ptr<Impl> impl_;
};

}}  // namespace ae
