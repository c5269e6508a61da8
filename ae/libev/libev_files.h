// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Private to the libev implementation: the file events of one loop, one ev_io for each descriptor.
//
// Changes of interest are passed to libev once in each iteration, by sync() before the sleep:
// interest that is added and removed in between costs nothing, and a descriptor is checked before
// libev sees it, because libev aborts the process for a bad one. Only the removal of a descriptor's
// last event is passed on at once, so that events of this iteration do not outlive it, and the
// number may be reused for another file.

#include <ev.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "ae/abi.h"
#include "ae/core/handler_slot.h"
#include "ae/event_loop.h"
#include "ae/libev/libev_core.h"

namespace ae { inline namespace AECONN_ABI {

class LibevFiles {
 public:
  explicit LibevFiles(LibevCore& core);
  LibevFiles(const LibevFiles&) = delete;
  LibevFiles& operator=(const LibevFiles&) = delete;
  ~LibevFiles();

  void add(int fd, Mask mask, FileHandler handler);
  void remove(int fd, Mask mask);
  Mask events(int fd) const;

  /// Passes the changes of interest to libev; to be called before each sleep.
  void sync() {
    if (dirty_ != nullptr) sync_dirty();
  }
  /// Whether descriptors that sync() found closed wait for run_broken().
  bool has_broken() const noexcept { return broken_ != nullptr; }
  /// Runs the handlers of closed descriptors once, so that their next read or write fails.
  void run_broken();
  /// Whether there are descriptors that an iteration had no time for.
  bool has_left() const noexcept { return left_ != nullptr; }
  /// Runs the handlers of those that are still ready, before libev serves other descriptors.
  void run_left() {
    if (left_ != nullptr) run_all_left();
  }
  void after_fork();
  void clear();

 private:
  struct File {
    ev_io io;
    HandlerSlot<void(int, Mask)> read;
    HandlerSlot<void(int, Mask)> write;
    // Number of removals: a due event must not reach a handler that was set after it arrived.
    std::uint32_t read_removals = 0;
    std::uint32_t write_removals = 0;
    bool barrier = false;
    bool trusted = false;  // kTrusted
    bool dirty = false;    // true if and only if in the dirty_ list
    bool broken = false;   // true if and only if in the broken_ list
    bool left = false;     // true if and only if in the left_ list
    LibevFiles* owner = nullptr;
    File* next_dirty = nullptr;
    File* next_broken = nullptr;
    File* next_left = nullptr;
  };

  static void on_ready(struct ev_loop* loop, ev_io* io, int revents);
  static void on_retry(struct ev_loop* loop, ev_timer* timer, int revents);
  static int wanted(const File& file) noexcept;

  File* find(int fd) const noexcept;
  File& get(int fd);
  void mark_dirty(File& file) noexcept;
  void sync_dirty();
  void sync(File& file);
  void leave(File& file) noexcept;
  void run_all_left();
  void dispatch(File& file, int revents);
  void run_handlers(File& file, int revents);
  void run(File& file, Mask direction);
  void after_error(File& file);

  LibevCore& core_;
  std::vector<std::unique_ptr<File>> files_;  // indexed by descriptor; entries are never removed
  File* dirty_ = nullptr;
  File* broken_ = nullptr;
  File* left_ = nullptr;  // in the order in which their handlers run
  File** left_end_ = &left_;
  ev_timer retry_;  // for descriptors that the kernel refused for lack of resources
};

}}  // namespace ae
