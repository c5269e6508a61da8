// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// LibevLoop: an ae::EventLoop on libev. A program that uses it needs no other header of a loop.
// This header does not include <ev.h>.

#include <exception>
#include <memory>

#include "ae/abi.h"
#include "ae/event_loop.h"

struct ev_loop;

namespace ae { inline namespace AECONN_ABI {

/// An event loop on libev, with an ev_loop of its own or on the program's ev_loop.
class AECONN_API LibevLoop final : public EventLoop {
 public:
  /// Creates a loop with an ev_loop of its own. Throws std::system_error if there are no
  /// descriptors left for the ev_loop.
  LibevLoop();
  /// Creates a loop on the host program's ev_loop, which must outlive this object. The host
  /// continues to call ev_run(); this object's watchers keep ev_run() running only while this
  /// object waits for something. If a handler throws, ev_run() returns (EVBREAK_ALL) and
  /// take_exception() returns the exception. Throws std::system_error if there is no descriptor
  /// left for wake-ups.
  explicit LibevLoop(struct ev_loop* borrowed);
  ~LibevLoop() override;

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

  /// Returns the underlying ev_loop, for programs that add libev watchers of their own.
  struct ev_loop* native() const noexcept;
  /// Returns the exception that a handler has thrown since the last call, or null. Needed only with
  /// a borrowed ev_loop; with an owned one run() rethrows.
  std::exception_ptr take_exception() noexcept;
  /// Calls ev_loop_fork() and replaces the loop's other resources, in a child after fork(). To be
  /// called before the child uses the loop again. If the kernel has no descriptor left for the
  /// child, this function ends the process, as libev does.
  void after_fork() noexcept;

 private:
  void on_nudge() noexcept override;

  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}}  // namespace ae
