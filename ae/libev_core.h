#pragma once
// Private to the libev implementation: what LibevLoop and its parts share about the ev_loop below.
// Watchers call us from C frames, so every handler runs inside LibevCore::guarded().

#include <ev.h>

#include <cstddef>
#include <exception>
#include <utility>

#include "ae/event_loop.h"

namespace ae {

class LibevCore {
 public:
  LibevCore(struct ev_loop* loop_below, bool is_owned) : loop(loop_below), owned(is_owned) {}
  LibevCore(const LibevCore&) = delete;
  LibevCore& operator=(const LibevCore&) = delete;

  struct ev_loop* const loop;
  const bool owned;
  Process allowed = kFullIteration;  // what this process_events() may do
  std::size_t ran = 0;               // handlers that ever ran, and what sources did
  ev_check tail;                     // runs posts and due timers, after the file handlers

  bool in_handler() const noexcept { return depth_ != 0; }
  bool allows(Process what) const noexcept { return (allowed & what) != 0; }
  /// False once a handler threw: the others of this iteration keep their events for the next one.
  bool may_run(Process what) const noexcept { return !aborting_ && allows(what); }
  bool aborting() const noexcept { return aborting_; }
  void begin_iteration() noexcept { aborting_ = false; }

  void count_handler() noexcept {
    ++ran;
    come_back();
  }
  /// The tail runs at the end of this iteration.
  void queue_tail() noexcept {
    if (!ev_is_pending(&tail)) ev_feed_event(loop, &tail, EV_CHECK);
    come_back();
  }

  /// Runs `body` as a handler. What it throws leaves through run() or take_exception().
  template <class Body>
  void guarded(Body&& body) noexcept {
    ++depth_;
    try {
      body();
    } catch (...) {
      if (!error_) error_ = std::current_exception();
      aborting_ = true;
      ev_break(loop, EVBREAK_ALL);
    }
    --depth_;
  }
  bool has_error() const noexcept { return error_ != nullptr; }
  std::exception_ptr take_error() noexcept { return std::exchange(error_, nullptr); }

  /// Something of ours needs one more iteration: a borrowed loop that runs out of watchers stays
  /// until release().
  void come_back() noexcept {
    if (owned || held_) return;
    held_ = true;
    ev_ref(loop);
  }
  void release() noexcept {
    if (!held_) return;
    held_ = false;
    ev_unref(loop);
  }

  /// Start and stop for watchers that must not keep a borrowed loop running. Any number of times.
  template <class Watcher>
  void start_unreferenced(void (*start)(struct ev_loop*, Watcher*), Watcher& watcher) noexcept {
    if (ev_is_active(&watcher)) return;
    start(loop, &watcher);
    if (!owned) ev_unref(loop);
  }
  template <class Watcher>
  void stop_unreferenced(void (*stop)(struct ev_loop*, Watcher*), Watcher& watcher) noexcept {
    if (!owned && ev_is_active(&watcher)) ev_ref(loop);
    stop(loop, &watcher);
  }

 private:
  int depth_ = 0;
  bool aborting_ = false;
  bool held_ = false;
  std::exception_ptr error_;
};

}  // namespace ae
