// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Private to EpollLoop: the file events of one loop on one epoll instance.
//
// sync() passes changes of interest to the kernel once in each iteration, so interest that is added
// and removed in between costs no system call. Only the removal of a descriptor's last event is
// passed to the kernel at once: afterwards the descriptor cannot make the loop's own descriptor
// readable, and its number may be reused for another file.

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
  /// Keeps a reference to `epoll` and reads the descriptor at each use, because a child of fork()
  /// replaces it with an epoll instance of its own.
  EpollFiles(LoopCore& core, const int& epoll);
  EpollFiles(const EpollFiles&) = delete;
  EpollFiles& operator=(const EpollFiles&) = delete;
  ~EpollFiles() { clear(); }

  void add(int fd, Mask mask, FileHandler handler);
  void remove(int fd, Mask mask);
  Mask events(int fd) const;

  bool dirty() const noexcept { return dirty_ != nullptr; }
  /// Tells the kernel (with epoll_ctl(2)) all changes of the events that the files wait for.
  void sync() {
    if (dirty_ != nullptr) sync_dirty();
  }
  /// Whether handlers are due that the kernel does not announce: those of regular files, which are
  /// always ready, and those of descriptors that were closed or refused by the kernel.
  bool has_ready() const noexcept { return broken_ != nullptr || always_ready_ != 0; }
  /// Whether the kernel has refused to watch descriptors, for lack of resources. retry() tries
  /// again to register them.
  bool has_refused() const noexcept { return refused_; }
  void retry();
  /// Whether sync(), retry(), dispatch_ready() and put_left_first() have nothing to do. The loop
  /// may skip them (see LoopCore::settled()) only while this is true.
  bool quiet() const noexcept { return !dirty() && !has_ready() && !has_left() && !refused_; }

  /// Runs the handlers for an event that epoll_wait() reported. Returns false if the event belongs
  /// to none of the files.
  [[gnu::always_inline]] bool dispatch(const epoll_event& event) {
    File* const file = file_of(event);
    if (file == nullptr) return false;
    // A settled loop (LoopCore::settled()) only serves descriptors. It need not call forget_left(),
    // since leave() has recorded no events, nor may_run(), since its handlers are allowed to run.
    if (!core_.settled()) {
      forget_left(*file);
      if (!core_.may_run(kFileEvents)) return true;
    }
    run_due(*file, event.events);
    return true;
  }
  /// Records an event that is not served in this iteration for lack of time. The next iteration
  /// serves it first, see put_left_first(). Returns false if the event belongs to none of the
  /// files.
  bool leave(const epoll_event& event) noexcept;
  /// Whether leave() has recorded events that have not been served yet.
  bool has_left() const noexcept { return left_ != 0; }
  /// Moves the events recorded by leave() to the front of `events`, which epoll_wait() has just
  /// reported. To be called before any of them is dispatched.
  void put_left_first(std::span<epoll_event> events) noexcept {
    if (left_ != 0) sort_left_first(events);
  }
  /// Runs the handlers that are due without an event from the kernel, see has_ready().
  void dispatch_ready();
  void after_fork();
  void clear();

 private:
  struct File {
    HandlerSlot<void(int, Mask)> read;
    HandlerSlot<void(int, Mask)> write;
    // How often the read handler was removed (write_removals: the write handler). run_handlers()
    // compares the counts, so that an event cannot reach a handler that was set after the event
    // arrived.
    std::uint32_t read_removals = 0;
    std::uint32_t write_removals = 0;
    // The value that epoll reports with the events of this file: the number of times that the file
    // was registered with epoll (the upper half), and its descriptor. An event with another value
    // is out of date, and is ignored. 0: the file is not registered.
    std::uint64_t tag = 0;
    std::uint32_t generation = 0;  // number of times that this file was registered with epoll
    std::uint32_t in_kernel = 0;   // events that epoll currently watches this descriptor for
    // Number that leave() has given this file, because there was no time to serve it; 0: none.
    std::uint64_t left = 0;
    int fd = -1;
    bool always_ready = false;
    bool barrier = false;
    // True if this file is in the list dirty_: sync() must tell the kernel what it waits for.
    bool dirty = false;
    // True if this file is in the list broken_ (closed, or refused by epoll): its handlers must run
    // once, see mark_broken().
    bool broken = false;
    bool refused = false;
    // True once after_fork() has found the descriptor closed, until the file has no handlers any
    // more. Meanwhile the number may be that of another descriptor, which must not be watched.
    bool closed = false;
    File* next_dirty = nullptr;
    File* next_broken = nullptr;

    bool registered() const noexcept { return tag != 0; }
    /// Returns the value of `tag` for a new registration with epoll.
    std::uint64_t new_tag() noexcept {
      if (++generation == 0) generation = 1;
      return std::uint64_t{generation} << 32 | static_cast<std::uint32_t>(fd);
    }
  };

  static std::uint32_t wanted(const File& file) noexcept;
  File* find(int fd) const noexcept {
    // A negative fd is converted to a number larger than any table, so that no file is found.
    const auto at = static_cast<std::size_t>(fd);
    return at < files_.size() ? files_[at].get() : nullptr;
  }
  File* file_of(const epoll_event& event) const noexcept {
    File* const file = find(static_cast<int>(event.data.u64 & 0xffffffff));
    return file != nullptr && file->tag == event.data.u64 ? file : nullptr;
  }
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
  /// Runs the handlers of a file for which the kernel has reported `events`.
  [[gnu::always_inline]] void run_due(File& file, std::uint32_t events) {
    if (events == EPOLLIN && (file.in_kernel & EPOLLIN) != 0) [[likely]] {
      core_.guarded([&]() __attribute__((always_inline)) { run(file, kReadable); });
      return;
    }
    run_all_due(file, events);
  }
  void run_all_due(File& file, std::uint32_t events);
  void run_handlers(File& file, std::uint32_t ready);
  [[gnu::always_inline]] void run(File& file, Mask direction) {
    auto& slot = direction == kReadable ? file.read : file.write;
    if (!slot) return;
    core_.count_handler();
    slot.run(file.fd, direction);
  }

  LoopCore& core_;
  const int& epoll_;
  // The files, indexed by descriptor. An entry stays when the file has no handlers any more.
  std::vector<std::unique_ptr<File>> files_;
  File* dirty_ = nullptr;
  File* broken_ = nullptr;
  std::size_t always_ready_ = 0;
  std::size_t next_ready_ = 0;  // descriptor at which dispatch_ready() continues
  std::size_t left_ = 0;        // number of files whose events leave() has recorded
  std::uint64_t last_left_ = 0;
  bool refused_ = false;
  MadeHere made_here_;  // remembers the process that created the epoll instance
};

}}  // namespace ae
