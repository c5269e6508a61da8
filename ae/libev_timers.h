#pragma once
// Private to the libev implementation: the time events of one loop. A timer that expires only
// joins a queue; the loop runs a bounded piece of that queue in each iteration, after the file
// events, so that any number of timers due at once delays nobody's I/O for long.

#include <ev.h>

#include <cstddef>
#include <unordered_map>

#include "ae/event_loop.h"
#include "ae/libev_core.h"

namespace ae {

class LibevTimers {
 public:
  explicit LibevTimers(LibevCore& core) : core_(core) {}
  LibevTimers(const LibevTimers&) = delete;
  LibevTimers& operator=(const LibevTimers&) = delete;
  ~LibevTimers() { clear(); }

  TimerId add(Duration delay, TimeHandler handler);
  bool remove(TimerId id);
  bool has_due() const noexcept { return due_.next != &due_; }
  /// Runs at most `limit` of the timers that are due. Passes on what a handler throws; that timer
  /// is then gone.
  void run_due(std::size_t limit);
  void clear();

 private:
  struct Link {
    Link* prev = this;
    Link* next = this;
  };
  struct Event : Link {
    ev_timer timer;  // active, or in due_, or running: exactly one of them
    TimerId id = 0;
    TimeHandler handler;
    LibevTimers* owner = nullptr;
    bool running = false;
    bool removed = false;  // by its own handler
  };

  static void on_expiry(struct ev_loop* loop, ev_timer* timer, int revents);
  static void unlink(Event& event) noexcept;
  void arm(Event& event, Duration delay) noexcept;
  void fire(Event& event);
  void forget(TimerId id);

  LibevCore& core_;
  std::unordered_map<TimerId, Event> events_;  // its nodes have stable addresses
  Link due_;
  TimerId last_id_ = 0;
};

}  // namespace ae
