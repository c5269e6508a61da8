// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Private to EpollLoop: the file events of one loop on one epoll instance.
//
// What handlers ask for is written to the kernel once in an iteration, by sync(): interest that
// comes and goes in between costs no system call. Only the removal of a descriptor's last event
// reaches it at once, so that the descriptor of the loop is not readable for it and the number may
// be used for another file.

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
  /// Borrows `epoll`, which is read anew at each use: a child of fork() has one of its own.
  EpollFiles(LoopCore& core, const int& epoll);
  EpollFiles(const EpollFiles&) = delete;
  EpollFiles& operator=(const EpollFiles&) = delete;
  ~EpollFiles() { clear(); }

  void add(int fd, Mask mask, FileHandler handler);
  void remove(int fd, Mask mask);
  Mask events(int fd) const;

  bool dirty() const noexcept { return dirty_ != nullptr; }
  /// Writes what changed to the kernel.
  void sync() {
    if (dirty_ != nullptr) sync_dirty();
  }
  /// Handlers are due that the kernel does not announce: of regular files, which are always ready,
  /// and of descriptors that turned out to be closed.
  bool has_ready() const noexcept { return broken_ != nullptr || always_ready_ != 0; }
  /// Descriptors that the kernel had no room for wait for retry().
  bool has_refused() const noexcept { return refused_; }
  void retry();

  /// What epoll_wait() says of a descriptor of ours. False: it was of none.
  bool dispatch(const epoll_event& event);
  /// The iteration had no time for this one: where it is reported again it goes before others.
  void leave(const epoll_event& event) noexcept;
  /// For what epoll_wait() has reported, before any of it is dispatched.
  void put_left_first(std::span<epoll_event> events) noexcept {
    if (left_ != 0) sort_left_first(events);
  }
  /// The handlers that has_ready() speaks of.
  void dispatch_ready();
  void after_fork();
  void clear();

 private:
  struct File {
    HandlerSlot<void(int, Mask)> read;
    HandlerSlot<void(int, Mask)> write;
    // Count removals: an event that is due is for the handler that stood there when it came.
    std::uint32_t read_removals = 0;
    std::uint32_t write_removals = 0;
    std::uint32_t generation =
        0;                        // of its registration: events of an older one are of another file
    std::uint32_t in_kernel = 0;  // what epoll knows
    std::uint64_t left = 0;  // it was ready and there was no time for it: its number among those
    int fd = -1;
    bool registered = false;
    bool always_ready = false;
    bool barrier = false;
    bool dirty = false;   // true exactly while it stands in the list of dirty_
    bool broken = false;  // true exactly while it stands in the list of broken_
    bool refused = false;
    bool closed = false;  // of those that are broken: it was seen
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
  std::vector<std::unique_ptr<File>> files_;  // by descriptor; an entry stays until the end
  File* dirty_ = nullptr;
  File* broken_ = nullptr;
  std::size_t always_ready_ = 0;
  std::size_t next_ready_ = 0;  // of files_, where dispatch_ready() begins
  std::size_t left_ = 0;        // of files_
  std::uint64_t last_left_ = 0;
  bool refused_ = false;
  MadeHere made_here_;  // of the epoll instance
};

}}  // namespace ae
