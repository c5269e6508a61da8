// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Private to the libev implementation: the file events of one loop, one ev_io for each descriptor.
//
// sync() passes changes of interest to libev once in each iteration, before the sleep. Interest
// that is added and removed in between costs nothing, and each descriptor is checked first, because
// libev aborts the process for a closed one. Only the removal of a descriptor's last event is
// passed on at once: no event of this iteration can run a handler of that descriptor afterwards,
// and the number may be reused for another file.

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

  /// Tells libev all changes of the events that the files wait for. To be called before each sleep.
  void sync() {
    if (dirty_ != nullptr) sync_dirty();
  }
  /// Whether sync() has found closed descriptors, whose handlers run_broken() must run.
  bool has_broken() const noexcept { return broken_ != nullptr; }
  /// Runs the handlers of closed descriptors once, so that their next read or write reports the
  /// error.
  void run_broken();
  /// Whether an earlier iteration had no time to serve some of the ready descriptors.
  bool has_left() const noexcept { return left_ != nullptr; }
  /// Whether sync(), run_broken() and run_left() have nothing to do. The loop may skip them (see
  /// LoopCore::settled()) only while this is true.
  bool quiet() const noexcept { return dirty_ == nullptr && !has_broken() && !has_left(); }
  /// Serves the descriptors that an earlier iteration had no time for, if they are still ready,
  /// before libev serves others.
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
    // How often the read handler was removed (write_removals: the write handler). run_handlers()
    // compares the counts, so that an event cannot reach a handler that was set after the event
    // arrived.
    std::uint32_t read_removals = 0;
    std::uint32_t write_removals = 0;
    bool barrier = false;
    // True if the file was added with kTrusted: sync() does not check that its descriptor is open.
    bool trusted = false;
    // True if this file is in the list dirty_: sync() must tell libev what it waits for.
    bool dirty = false;
    // True if this file, whose descriptor is closed, is in the list broken_ of run_broken().
    bool broken = false;
    // True once after_fork() has found the descriptor closed, until the file has no handlers any
    // more. Meanwhile the number may be that of another descriptor, which must not be watched.
    bool closed = false;
    // True if this file is in the list left_: it was ready, but there was no time to serve it.
    bool left = false;
    LibevFiles* owner = nullptr;
    File* next_dirty = nullptr;
    File* next_broken = nullptr;
    File* next_left = nullptr;
  };

  static void on_ready(struct ev_loop* loop, ev_io* io, int revents);
  static void on_retry(struct ev_loop* loop, ev_timer* timer, int revents);
  static int wanted(const File& file) noexcept;

  File* find(int fd) const noexcept {
    // A negative fd is converted to a number larger than any table, so that no file is found.
    const auto at = static_cast<std::size_t>(fd);
    return at < files_.size() ? files_[at].get() : nullptr;
  }
  File& get(int fd);
  void mark_dirty(File& file) noexcept;
  void mark_broken(File& file) noexcept;
  void sync_dirty();
  void sync(File& file);
  void leave(File& file) noexcept;
  void run_all_left();
  void dispatch(File& file, int revents);
  void run_handlers(File& file, int revents);
  void run(File& file, Mask direction);
  void after_error(File& file);

  LibevCore& core_;
  // The files, indexed by descriptor. An entry stays when the file has no handlers any more.
  std::vector<std::unique_ptr<File>> files_;
  File* dirty_ = nullptr;
  File* broken_ = nullptr;
  File* left_ = nullptr;  // ready files that the last iteration had no time to serve, in order
  File** left_end_ = &left_;
  // The timer that is started when the kernel has refused to watch descriptors for lack of
  // resources. When it expires, their watchers are started again.
  ev_timer retry_;
};

}}  // namespace ae
