// SPDX-License-Identifier: BSD-3-Clause
#include "ae/libev/libev_files.h"

#include <fcntl.h>

#include <algorithm>
#include <system_error>
#include <utility>

#include "ae/core/file_events.h"

namespace ae { inline namespace AECONN_ABI {
namespace {

constexpr int kReadWrite = EV_READ | EV_WRITE;
constexpr double kRetrySeconds = std::chrono::duration<double>(kFileEventRetry).count();

int to_libev(Mask mask) noexcept {
  return ((mask & kReadable) != 0 ? EV_READ : 0) | ((mask & kWritable) != 0 ? EV_WRITE : 0);
}

bool descriptor_open(int fd) noexcept { return ::fcntl(fd, F_GETFD) >= 0; }

}  // namespace

LibevFiles::LibevFiles(LibevCore& core) : core_(core) {
  ev_timer_init(&retry_, &LibevFiles::on_retry, kRetrySeconds, 0.0);
  retry_.data = this;
}

LibevFiles::~LibevFiles() {
  clear();
  ev_timer_stop(core_.loop, &retry_);
}

void LibevFiles::add(int fd, Mask mask, FileHandler handler) {
  check_file_event(fd, mask, handler);
  const int directions = to_libev(mask);
  File& file = get(fd);
  // The number is that of a new descriptor: the handlers of the closed one must not run for it.
  if (file.closed && descriptor_open(fd)) remove(fd, kReadable | kWritable);
  file.trusted = (mask & kTrusted) != 0 && (file.trusted || wanted(file) == 0);
  if ((mask & kBarrier) != 0) {
    file.barrier = true;
  } else if ((directions & EV_WRITE) != 0) {
    file.barrier = false;
  }
  if (directions == kReadWrite) {
    file.read.set(handler);
    file.write.set(std::move(handler));
  } else {
    (directions == EV_READ ? file.read : file.write).set(std::move(handler));
  }
  mark_dirty(file);
}

void LibevFiles::remove(int fd, Mask mask) {
  File* const file = find(fd);
  if (file == nullptr) return;
  if ((mask & (kWritable | kBarrier)) != 0) file->barrier = false;
  const int gone = to_libev(mask) & wanted(*file);
  if (gone == 0) return;
  const int left = wanted(*file) & ~gone;
  if ((gone & EV_READ) != 0) ++file->read_removals;
  if ((gone & EV_WRITE) != 0) ++file->write_removals;
  if (left == 0) {
    file->barrier = file->closed = false;
    ev_io_stop(core_.loop, &file->io);
  } else {
    const int due = ev_clear_pending(core_.loop, &file->io) & left;
    if (due != 0) ev_feed_event(core_.loop, &file->io, due);
    mark_dirty(*file);
  }
  // The handler is destroyed last, because its destructor may call this object again.
  if ((gone & EV_READ) != 0) file->read.clear();
  if ((gone & EV_WRITE) != 0) file->write.clear();
}

Mask LibevFiles::events(int fd) const {
  const File* const file = find(fd);
  if (file == nullptr) return kNone;
  return (file->read ? kReadable : kNone) | (file->write ? kWritable : kNone) |
         (file->barrier ? kBarrier : kNone);
}

void LibevFiles::sync_dirty() {
  for (File* file = std::exchange(dirty_, nullptr); file != nullptr;) {
    File* const next = std::exchange(file->next_dirty, nullptr);
    file->dirty = false;
    sync(*file);
    file = next;
  }
}

void LibevFiles::run_broken() {
  while (broken_ != nullptr && core_.may_run(kFileEvents) && core_.may_run_another()) {
    File* const file = broken_;
    broken_ = std::exchange(file->next_broken, nullptr);
    file->broken = false;
    if (!ev_is_active(&file->io)) dispatch(*file, EV_ERROR | kReadWrite);
  }
}

void LibevFiles::leave(File& file) noexcept {
  if (std::exchange(file.left, true)) return;
  *left_end_ = &file;
  left_end_ = &file.next_left;
  core_.stir();
}

// Runs the handlers of files that an earlier iteration had no time for. libev has reported again
// those files that are still ready; a file that is not ready any more is only removed from the
// list.
void LibevFiles::run_all_left() {
  while (left_ != nullptr && core_.may_run(kFileEvents) && core_.may_run_another()) {
    File* const file = left_;
    left_ = std::exchange(file->next_left, nullptr);
    if (left_ == nullptr) left_end_ = &left_;
    file->left = false;
    if (const int due = ev_clear_pending(core_.loop, &file->io); due != 0) dispatch(*file, due);
  }
}

// Prepares the files for the epoll instance that the child of fork() now uses: sync() will register
// each of them again. Descriptors that the child has closed are found here, including those added
// with kTrusted, because the loop opens new descriptors next, which may get their numbers.
void LibevFiles::after_fork() {
  for (const auto& file : files_) {
    if (!file || wanted(*file) == 0) continue;
    ev_io_stop(core_.loop, &file->io);
    if (descriptor_open(file->io.fd)) {
      mark_dirty(*file);
    } else {
      file->closed = true;
      mark_broken(*file);
    }
  }
}

void LibevFiles::clear() {
  for (std::size_t fd = 0; fd < files_.size(); ++fd) {
    remove(static_cast<int>(fd), kReadable | kWritable);
  }
}

[[gnu::always_inline]] inline void LibevFiles::run(File& file, Mask direction) {
  auto& slot = direction == kReadable ? file.read : file.write;
  if (!slot) return;
  core_.count_handler();
  slot.run(file.io.fd, direction);
}

void LibevFiles::on_ready(struct ev_loop*, ev_io* io, int revents) {
  File& file = *static_cast<File*>(io->data);
  LibevFiles& self = *file.owner;
  if (revents == EV_READ && !self.core_.ran_any()) {
    // The usual case: only the read handler is due, and it is the first handler of this iteration.
    if (self.core_.may_run(kFileEvents)) self.core_.guarded([&] { self.run(file, kReadable); });
    return;
  }
  if ((revents & EV_ERROR) == 0 && !self.core_.may_run_another()) return self.leave(file);
  self.dispatch(file, revents);
}

void LibevFiles::on_retry(struct ev_loop*, ev_timer* timer, int) {
  LibevFiles& self = *static_cast<LibevFiles*>(timer->data);
  for (const auto& file : self.files_) {
    if (file && wanted(*file) != 0 && !ev_is_active(&file->io)) self.mark_dirty(*file);
  }
}

int LibevFiles::wanted(const File& file) noexcept {
  return (file.read ? EV_READ : 0) | (file.write ? EV_WRITE : 0);
}

LibevFiles::File& LibevFiles::get(int fd) {
  const auto at = static_cast<std::size_t>(fd);
  if (at >= files_.size()) {
    // The table of files has an entry for each number up to the highest descriptor. Without the
    // check of `fd`, an invalid number could make the table huge.
    if (!descriptor_open(fd)) refuse_closed_descriptor();
    files_.resize(std::max(at + 1, files_.size() * 2));
  }
  if (!files_[at]) {
    auto file = std::make_unique<File>();
    ev_io_init(&file->io, &LibevFiles::on_ready, fd, 0);
    file->io.data = file.get();
    file->owner = this;
    files_[at] = std::move(file);
  }
  return *files_[at];
}

void LibevFiles::mark_dirty(File& file) noexcept {
  if (file.dirty) return;
  file.dirty = true;
  file.next_dirty = std::exchange(dirty_, &file);
  core_.stir();
  core_.come_back();
}

void LibevFiles::mark_broken(File& file) noexcept {
  if (std::exchange(file.broken, true)) return;
  file.next_broken = std::exchange(broken_, &file);
  core_.stir();
  core_.come_back();
}

void LibevFiles::sync(File& file) {
  const int want = wanted(file);
  const int have = ev_is_active(&file.io) ? file.io.events & kReadWrite : 0;
  // If no event is wanted (`want` is 0), remove() has already stopped the watcher.
  if (want == have || want == 0) return;
  const int fd = file.io.fd;
  ev_io_stop(core_.loop, &file.io);
  if (file.closed || (!file.trusted && !descriptor_open(fd))) {
    mark_broken(file);
    return;
  }
  ev_io_set(&file.io, fd, want);
  ev_io_start(core_.loop, &file.io);
}

void LibevFiles::dispatch(File& file, int revents) {
  if (core_.may_run(kFileEvents)) {
    core_.guarded([&] { run_handlers(file, revents); });
  } else if ((revents & EV_ERROR) != 0) {
    ev_io_stop(core_.loop, &file.io);
    mark_dirty(file);  // sync() will start the watcher again, or find that the descriptor is closed
    return;
  }
  if ((revents & EV_ERROR) != 0) after_error(file);
}

void LibevFiles::run_handlers(File& file, int revents) {
  if ((revents & kReadWrite) != kReadWrite) {
    run(file, (revents & EV_READ) != 0 ? kReadable : kWritable);
    return;
  }
  const Mask second = file.barrier ? kReadable : kWritable;
  const auto& removals = second == kReadable ? file.read_removals : file.write_removals;
  const auto before = removals;
  run(file, file.barrier ? kWritable : kReadable);
  if (removals == before) run(file, second);
}

// Called when libev has stopped a file's watcher or refused to start it, after the handlers have
// run once. If the descriptor is closed and the handlers did not remove its events, removes them.
// If the descriptor is good and the kernel only lacked resources, starts a timer that tries again;
// the handlers are called for each failed try.
void LibevFiles::after_error(File& file) {
  if (ev_is_active(&file.io) || file.dirty || wanted(file) == 0) return;
  if (file.closed || !descriptor_open(file.io.fd)) {
    remove(file.io.fd, kReadable | kWritable);
  } else if (!ev_is_active(&retry_)) {
    ev_timer_set(&retry_, kRetrySeconds, 0.0);
    ev_timer_start(core_.loop, &retry_);
  }
}

}}  // namespace ae
