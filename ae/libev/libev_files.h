// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Private to the libev implementation: the file events of one loop, one ev_io for each descriptor.
//
// What handlers ask for is written to libev once in an iteration, by sync() before the sleep:
// interest that comes and goes in between costs nothing, and a descriptor is looked at once more
// before libev sees it, because libev aborts the process for a bad one. Only the removal of a
// descriptor's last event reaches libev at once, so that no event of this iteration outlives it
// and the number may be used for another file.

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

  /// Writes what changed to libev; before each sleep.
  void sync() {
    if (dirty_ != nullptr) sync_dirty();
  }
  /// True while descriptors that sync() found bad wait for run_broken().
  bool has_broken() const noexcept { return broken_ != nullptr; }
  /// Tells the handlers of bad descriptors, once: their next read or write fails.
  void run_broken();
  /// True while descriptors wait for which an iteration had no time.
  bool has_left() const noexcept { return left_ != nullptr; }
  /// Those of them that are still ready, before libev comes to any other.
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
    // Count removals: an event that is due is for the handler that stood there when it came.
    std::uint32_t read_removals = 0;
    std::uint32_t write_removals = 0;
    bool barrier = false;
    bool trusted = false;  // kTrusted
    bool dirty = false;    // true exactly while it stands in the list of dirty_
    bool broken = false;   // true exactly while it stands in the list of broken_
    bool left = false;     // true exactly while it stands in the list of left_
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
  std::vector<std::unique_ptr<File>> files_;  // by descriptor; an entry stays until the end
  File* dirty_ = nullptr;
  File* broken_ = nullptr;
  File* left_ = nullptr;  // in the order in which they are to run
  File** left_end_ = &left_;
  ev_timer retry_;  // for descriptors the kernel had no room for
};

}}  // namespace ae
