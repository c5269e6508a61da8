// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Private to EpollLoop: the epoll instance of one loop, and the loop's own descriptors, which it
// watches besides the files:
//
//   wake    an eventfd, edge-triggered, written to wake the loop. Posted functions wake it, and so
//           does EventLoop::nudge() outside handlers, even after a host program has called
//           prepare(): it may sleep without calling it again. The eventfd is never read.
//   alarm   a timerfd, edge-triggered, set for the next timer. It is used inside a host's loop, and
//           for a timer before whose expiry the loop has slept many times.
//   work    an eventfd that is always readable. It is watched only inside a host's loop, while
//           there is work that no other descriptor announces. So a busy period costs two system
//           calls, however many iterations it has: one at its beginning and one at its end.

#include <sys/epoll.h>
#include <unistd.h>

#include <cstdint>
#include <utility>

#include "ae/abi.h"

namespace ae { inline namespace AECONN_ABI {

/// Opens and closes the loop's epoll instance and its other descriptors, and replaces them in a
/// child of fork(). Functions that open descriptors throw std::system_error if there are none left;
/// they may be called again later.
class EpollDescriptors {
 public:
  /// Opens the epoll instance, and the eventfd `wake` that it watches.
  EpollDescriptors();
  EpollDescriptors(const EpollDescriptors&) = delete;
  EpollDescriptors& operator=(const EpollDescriptors&) = delete;

  /// Returns the epoll instance. Its number and the reference stay valid as long as this object.
  const int& epoll() const noexcept { return epoll_.get(); }

  /// Wakes the loop: its epoll instance reports an event. May be called from any thread.
  void wake() noexcept;

  /// Returns the timerfd; -1: it is not open.
  int alarm() const noexcept { return alarm_.get(); }
  /// Opens the timerfd, unless it is open.
  void open_alarm();
  /// Whether `event` is an event of the timerfd. The kernel reports each expiry only once.
  static bool is_alarm(const epoll_event& event) noexcept { return event.data.u64 == kAlarm; }

  /// Opens the timerfd `alarm` and the eventfd `work`, for use inside a host program's loop.
  void open_for_host();
  /// Whether open_for_host() was called.
  bool for_host() const noexcept { return work_.get() >= 0; }
  /// Makes the epoll instance readable if `left` is true, and ends that if it is false. To be
  /// called only if for_host() is true. If the kernel refuses the change, shows_work() does not
  /// change.
  void show_work(bool left) noexcept;
  bool shows_work() const noexcept { return work_shown_; }
  /// Whether `event` says only that show_work() was called with true.
  static bool is_work(const epoll_event& event) noexcept { return event.data.u64 == kWork; }

  /// Replaces the descriptors that this process, a child of fork(), shares with its parent. The
  /// epoll instance keeps its number, but watches no files afterwards. The timerfd `alarm` and the
  /// eventfd `work` are closed, even if this throws.
  void after_fork();

 private:
  // The values in epoll_event::data that mark the loop's own descriptors. For a file, the lower
  // half of the value is its descriptor number, which never equals one of these.
  static constexpr std::uint64_t kWake = 0xffffffff;
  static constexpr std::uint64_t kAlarm = 0xfffffffe;
  static constexpr std::uint64_t kWork = 0xfffffffd;

  class Descriptor {
   public:
    Descriptor() = default;
    explicit Descriptor(int fd) : fd_(fd) {}
    Descriptor(const Descriptor&) = delete;
    Descriptor& operator=(const Descriptor&) = delete;
    ~Descriptor() { reset(); }
    const int& get() const noexcept { return fd_; }
    void reset(int fd = -1) noexcept {
      if (fd_ >= 0) ::close(fd_);
      fd_ = fd;
    }
    void take(Descriptor& other) noexcept { reset(std::exchange(other.fd_, -1)); }

   private:
    int fd_ = -1;
  };

  void watch(int fd, std::uint32_t wanted, std::uint64_t tag);

  Descriptor epoll_, wake_, alarm_, work_;
  bool work_shown_ = false;  // true if the epoll instance watches work_, and so is readable
};

}}  // namespace ae
