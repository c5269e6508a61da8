// SPDX-License-Identifier: BSD-3-Clause
#include "ae/epoll/epoll_files.h"

#include <fcntl.h>

#include <algorithm>
#include <cerrno>
#include <system_error>
#include <utility>

#include "ae/core/file_events.h"

namespace ae { inline namespace AECONN_ABI {
namespace {

constexpr std::uint32_t kBoth = EPOLLIN | EPOLLOUT;

std::uint32_t to_epoll(Mask mask) noexcept {
  return ((mask & kReadable) != 0 ? std::uint32_t{EPOLLIN} : 0u) |
         ((mask & kWritable) != 0 ? std::uint32_t{EPOLLOUT} : 0u);
}

bool is_open(int fd) noexcept { return ::fcntl(fd, F_GETFD) >= 0; }

}  // namespace

EpollFiles::EpollFiles(LoopCore& core, const int& epoll) : core_(core), epoll_(epoll) {}

void EpollFiles::add(int fd, Mask mask, FileHandler handler) {
  check_file_event(fd, mask, handler);
  const std::uint32_t directions = to_epoll(mask);
  File& file = get(fd);
  // The number is that of a new descriptor: the handlers of the closed one must not run for it.
  if (file.closed && is_open(fd)) remove(fd, kReadable | kWritable);
  if ((mask & kBarrier) != 0) {
    file.barrier = true;
  } else if ((directions & EPOLLOUT) != 0) {
    file.barrier = false;
  }
  if (directions == kBoth) {
    file.read.set(handler);
    file.write.set(std::move(handler));
  } else {
    (directions == EPOLLIN ? file.read : file.write).set(std::move(handler));
  }
  mark_dirty(file);
}

void EpollFiles::remove(int fd, Mask mask) {
  File* const file = find(fd);
  if (file == nullptr) return;
  if ((mask & (kWritable | kBarrier)) != 0) file->barrier = false;
  const std::uint32_t gone = to_epoll(mask) & wanted(*file);
  if (gone == 0) return;
  if ((gone & EPOLLIN) != 0) ++file->read_removals;
  if ((gone & EPOLLOUT) != 0) ++file->write_removals;
  if ((wanted(*file) & ~gone) == 0) {
    file->barrier = false;
    forget(*file);
  } else {
    mark_dirty(*file);
  }
  // The handler is destroyed last, because its destructor may call this object again.
  if ((gone & EPOLLIN) != 0) file->read.clear();
  if ((gone & EPOLLOUT) != 0) file->write.clear();
}

Mask EpollFiles::events(int fd) const {
  const File* const file = find(fd);
  if (file == nullptr) return kNone;
  return (file->read ? kReadable : kNone) | (file->write ? kWritable : kNone) |
         (file->barrier ? kBarrier : kNone);
}

std::uint32_t EpollFiles::wanted(const File& file) noexcept {
  return (file.read ? std::uint32_t{EPOLLIN} : 0u) | (file.write ? std::uint32_t{EPOLLOUT} : 0u);
}

EpollFiles::File& EpollFiles::get(int fd) {
  const auto at = static_cast<std::size_t>(fd);
  if (at >= files_.size()) {
    // The table of files has an entry for each number up to the highest descriptor. Without the
    // check of `fd`, an invalid number could make the table huge.
    if (!is_open(fd)) refuse_closed_descriptor();
    files_.resize(std::max(at + 1, files_.size() * 2));
  }
  if (!files_[at]) {
    files_[at] = std::make_unique<File>();
    files_[at]->fd = fd;
  }
  return *files_[at];
}

void EpollFiles::mark_dirty(File& file) noexcept {
  if (file.dirty) return;
  file.dirty = true;
  file.next_dirty = std::exchange(dirty_, &file);
  core_.stir();
}

// --- telling the kernel which descriptors to watch -----------------------------------------------

void EpollFiles::sync_dirty() {
  for (File* file = std::exchange(dirty_, nullptr); file != nullptr;) {
    File* const next = std::exchange(file->next_dirty, nullptr);
    file->dirty = false;
    sync(*file);
    file = next;
  }
}

void EpollFiles::sync(File& file) {
  const std::uint32_t want = wanted(file);
  if (want == 0 || (file.registered() && want == file.in_kernel) || file.always_ready) return;
  if (file.closed) return mark_broken(file);
  epoll_event event{};
  event.events = want;
  event.data.u64 = file.registered() ? file.tag : file.new_tag();
  int result =
      ::epoll_ctl(epoll_, file.registered() ? EPOLL_CTL_MOD : EPOLL_CTL_ADD, file.fd, &event);
  // The program closed the descriptor without calling remove(), and its number is used by a new
  // file.
  if (result != 0 && errno == ENOENT) {
    event.data.u64 = file.new_tag();
    result = ::epoll_ctl(epoll_, EPOLL_CTL_ADD, file.fd, &event);
  } else if (result != 0 && errno == EEXIST) {
    result = ::epoll_ctl(epoll_, EPOLL_CTL_MOD, file.fd, &event);
  }
  file.tag = result == 0 ? event.data.u64 : 0;
  file.in_kernel = result == 0 ? want : 0;
  if (result == 0) return;
  // epoll cannot watch regular files (see epoll_ctl(2)), which are always ready.
  if (errno == EPERM) return set_always_ready(file, true);
  if (errno == ENOMEM || errno == ENOSPC) file.refused = refused_ = true;
  mark_broken(file);
}

// Queues the file's handlers to run once. If the descriptor is closed, their next system call
// reports it; if the kernel refused the descriptor, retry() registers it again later.
void EpollFiles::mark_broken(File& file) noexcept {
  if (!std::exchange(file.broken, true)) file.next_broken = std::exchange(broken_, &file);
  core_.stir();
}

void EpollFiles::forget(File& file) noexcept {
  file.refused = file.closed = false;
  set_always_ready(file, false);
  forget_left(file);
  if (std::exchange(file.tag, 0) == 0) return;
  file.in_kernel = 0;
  // A child of fork() that only destroys the loop shares the epoll instance with its parent, and
  // must not remove the parent's descriptors from it.
  if (made_here_.inherited()) return;
  epoll_event unused{};
  // epoll_ctl() fails if the descriptor is closed, because the kernel has then removed it from the
  // epoll instance.
  (void)::epoll_ctl(epoll_, EPOLL_CTL_DEL, file.fd, &unused);
}

void EpollFiles::set_always_ready(File& file, bool ready) noexcept {
  if (file.always_ready == ready) return;
  file.always_ready = ready;
  always_ready_ += ready ? 1 : std::size_t(-1);
  core_.stir();
}

void EpollFiles::retry() {
  refused_ = false;
  for (const auto& file : files_)
    if (file && std::exchange(file->refused, false)) mark_dirty(*file);
}

// Prepares all files for the new epoll instance of a child of fork(): sync() will register every
// one again.
void EpollFiles::after_fork() {
  made_here_.renew();
  for (const auto& file : files_) {
    if (!file) continue;
    file->tag = 0;
    file->in_kernel = 0;
    file->always_ready = false;
    if (wanted(*file) == 0) continue;
    if (is_open(file->fd)) {
      mark_dirty(*file);
    } else {
      // File::closed stays set even if the descriptor's number is reused before the handlers run.
      file->closed = true;
      mark_broken(*file);
    }
  }
  always_ready_ = 0;
}

void EpollFiles::clear() {
  for (std::size_t fd = 0; fd < files_.size(); ++fd)
    remove(static_cast<int>(fd), kReadable | kWritable);
}

// --- running the handlers of descriptors ---------------------------------------------------------

bool EpollFiles::leave(const epoll_event& event) noexcept {
  File* const file = file_of(event);
  if (file == nullptr) return false;
  if (file->left == 0) {
    file->left = ++last_left_;
    ++left_;
    core_.stir();
  }
  return true;
}

// Moves the events of files that an earlier iteration had no time to serve (recorded by leave()) to
// the front, in the order of recording. The kernel reports events in its own order, mixed with
// events of files that were served in the last iteration.
void EpollFiles::sort_left_first(std::span<epoll_event> events) noexcept {
  const auto number = [this](const epoll_event& event) {
    const File* const file = file_of(event);
    return file != nullptr ? file->left : 0;
  };
  const auto end = std::stable_partition(
      events.begin(), events.end(), [&](const epoll_event& event) { return number(event) != 0; });
  std::sort(events.begin(), end, [&](const epoll_event& one, const epoll_event& other) {
    return number(one) < number(other);
  });
}

void EpollFiles::dispatch_ready() {
  if (!core_.may_run(kFileEvents)) return;
  for (bool first = true; broken_ != nullptr; first = false) {
    if (!first && (core_.aborting() || !core_.has_time())) break;
    File* const file = broken_;
    broken_ = std::exchange(file->next_broken, nullptr);
    file->broken = false;
    if (!file->registered() && wanted(*file) != 0) {
      core_.guarded([&] { run_handlers(*file, kBoth); });
      // The handlers should have removed the events of a closed descriptor. If they did not, the
      // events are removed here.
      const bool closed = file->closed || !is_open(file->fd);
      if (!file->refused && !file->dirty && !file->registered() && closed)
        remove(file->fd, kReadable | kWritable);
    }
  }
  if (always_ready_ == 0) return;
  bool first = true;
  const std::size_t begin = std::exchange(next_ready_, 0);
  for (std::size_t n = 0; n < files_.size(); ++n) {
    const std::size_t fd = (begin + n) % files_.size();
    File* const file = files_[fd].get();
    if (file == nullptr || !file->always_ready) continue;
    if (core_.aborting() || (!std::exchange(first, false) && !core_.has_time())) {
      next_ready_ = fd;
      break;
    }
    core_.guarded([&] { run_handlers(*file, wanted(*file)); });
  }
}

// Runs the handlers for any set of events; run_due() itself handles the usual one, EPOLLIN alone.
void EpollFiles::run_all_due(File& file, std::uint32_t events) {
  const bool failed = (events & (EPOLLERR | EPOLLHUP)) != 0;
  const std::uint32_t ready = (failed ? kBoth : events & kBoth) & file.in_kernel;
  core_.guarded([&] { run_handlers(file, ready); });
}

void EpollFiles::run_handlers(File& file, std::uint32_t ready) {
  if (ready == EPOLLIN) return run(file, kReadable);
  if (ready == EPOLLOUT) return run(file, kWritable);
  if (ready != kBoth) return;
  const Mask second = file.barrier ? kReadable : kWritable;
  const auto& removals = second == kReadable ? file.read_removals : file.write_removals;
  const auto before = removals;
  run(file, file.barrier ? kWritable : kReadable);
  if (removals == before) run(file, second);
}

}}  // namespace ae
