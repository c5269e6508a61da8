// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Private to EpollLoop: the file events of one loop on one epoll instance.
//
// Changes of interest are written to the kernel once in each iteration, by sync(): interest that is
// added and removed in between costs no system call. Only the removal of a descriptor's last event
// is written at once, so that the descriptor does not make the loop's descriptor readable, and its
// number may be reused for another file.

#include <sys/epoll.h>

#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "ae/abi.h"
#include "ae/core/fork.h"
#include "ae/core/handler_slot.h"
#include "ae/core/loop_core.h"
#include "ae/event_loop.h"

namespace ae { inline namespace AECONN_ABI {

class EpollFiles {
 public:
  /// Keeps a reference to `epoll` and reads it at each use: a child of fork() gets an instance of
  /// its own.
  EpollFiles(LoopCore& core, const int& epoll);
  EpollFiles(const EpollFiles&) = delete;
  EpollFiles& operator=(const EpollFiles&) = delete;
  ~EpollFiles() { clear(); }

  void add(int fd, Mask mask, FileHandler handler);
  void remove(int fd, Mask mask);
  Mask events(int fd) const;

  bool dirty() const noexcept { return dirty_ != nullptr; }
  /// Writes the changes of interest to the kernel.
  void sync() {
    if (dirty_ != nullptr) sync_dirty();
  }
  /// Whether handlers are due that the kernel does not announce: those of regular files, which are
  /// always ready, and of descriptors that turned out to be closed or were refused by the kernel.
  bool has_ready() const noexcept { return broken_ != nullptr || always_ready_ != 0; }
  /// Whether descriptors that the kernel refused for lack of resources wait for retry().
  bool has_refused() const noexcept { return refused_; }
  void retry();

  /// Runs the handlers for an event from epoll_wait(). Returns false if it is for none of the
  /// files.
  bool dispatch(const epoll_event& event);
  /// Records an event that the iteration had no time for: when reported again, it is served first.
  void leave(const epoll_event& event) noexcept;
  /// Moves recorded events to the front of what epoll_wait() reported; to be called before any of
  /// it is dispatched.
  void put_left_first(std::span<epoll_event> events) noexcept {
    if (left_ != 0) sort_left_first(events);
  }
  /// Runs the handlers that has_ready() refers to.
  void dispatch_ready();
  void after_fork();
  void clear();

 private:
  struct File {
    HandlerSlot<void(int, Mask)> read;
    HandlerSlot<void(int, Mask)> write;
    // Number of removals: a due event must not reach a handler that was set after it arrived.
    std::uint32_t read_removals = 0;
    std::uint32_t write_removals = 0;
    std::uint32_t generation = 0;  // of the registration; older events are stale
    std::uint32_t in_kernel = 0;   // interest registered with epoll
    std::uint64_t left = 0;        // its position among the files that leave() recorded; 0: none
    int fd = -1;
    bool registered = false;
    bool always_ready = false;
    bool barrier = false;
    bool dirty = false;   // true if and only if in the dirty_ list
    bool broken = false;  // true if and only if in the broken_ list
    bool refused = false;
    bool closed = false;  // in the broken_ list: after_fork() found it closed
    File* next_dirty = nullptr;
    File* next_broken = nullptr;
  };

  static std::uint32_t wanted(const File& file) noexcept;
  File* find(int fd) const noexcept;
  File* file_of(const epoll_event& event) const noexcept;
  void sort_left_first(std::span<epoll_event> events) noexcept;
  void forget_left(File& file) noexcept {
    if (std::exchange(file.left, 0) != 0) --left_;
  }
  File& get(int fd);
  void mark_dirty(File& file) noexcept;
  void mark_broken(File& file) noexcept;
  void sync_dirty();
  void sync(File& file);
  void forget(File& file) noexcept;
  void set_always_ready(File& file, bool ready) noexcept;
  void run_handlers(File& file, std::uint32_t ready);

  LoopCore& core_;
  const int& epoll_;
  std::vector<std::unique_ptr<File>> files_;  // indexed by descriptor; entries are never removed
  File* dirty_ = nullptr;
  File* broken_ = nullptr;
  std::size_t always_ready_ = 0;
  std::size_t next_ready_ = 0;  // index in files_ where dispatch_ready() begins
  std::size_t left_ = 0;        // number of files with `left` set
  std::uint64_t last_left_ = 0;
  bool refused_ = false;
  MadeHere made_here_;  // for the epoll instance
};

}}  // namespace ae
