// SPDX-License-Identifier: BSD-3-Clause
#include "ae/epoll/epoll_descriptors.h"

#include <fcntl.h>
#include <sys/eventfd.h>
#include <sys/timerfd.h>

#include <cerrno>
#include <system_error>

namespace ae { inline namespace AECONN_ABI {
namespace {

/// Returns `result`; if it is negative, throws errno with the text `what`.
int checked(int result, const char* what) {
  if (result < 0) throw std::system_error(errno, std::generic_category(), what);
  return result;
}

int open_epoll() { return checked(::epoll_create1(EPOLL_CLOEXEC), "event loop"); }
int open_wake() { return checked(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK), "event loop wake-up"); }

}  // namespace

EpollDescriptors::EpollDescriptors() : epoll_(open_epoll()), wake_(open_wake()) {
  watch(wake_.get(), EPOLLIN | EPOLLET, kWake);
}

void EpollDescriptors::watch(int fd, std::uint32_t wanted, std::uint64_t tag) {
  epoll_event event{};
  event.events = wanted;
  event.data.u64 = tag;
  checked(::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event), "event loop");
}

void EpollDescriptors::wake() noexcept {
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = ::write(wake_.get(), &one, sizeof one);
}

void EpollDescriptors::open_alarm() {
  if (alarm_.get() >= 0) return;
  Descriptor its_alarm(checked(::timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK),
                               "timer of an event loop"));
  watch(its_alarm.get(), EPOLLIN | EPOLLET, kAlarm);
  alarm_.take(its_alarm);
}

void EpollDescriptors::open_for_host() {
  open_alarm();
  Descriptor its_work(
      checked(::eventfd(1, EFD_CLOEXEC | EFD_NONBLOCK), "wake-up of an event loop"));
  watch(its_work.get(), 0, kWork);
  work_.take(its_work);
}

void EpollDescriptors::show_work(bool left) noexcept {
  if (left == work_shown_) return;
  epoll_event event{};
  event.events = left ? std::uint32_t{EPOLLIN} : 0u;
  event.data.u64 = kWork;
  if (::epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, work_.get(), &event) == 0) work_shown_ = left;
}

void EpollDescriptors::after_fork() {
  alarm_.reset();
  work_.reset();
  work_shown_ = false;
  Descriptor its_wake(open_wake());
  wake_.take(its_wake);
  const Descriptor its_epoll(open_epoll());
  // dup3() is used because it keeps the descriptor's number, which a host program may watch.
  checked(::dup3(its_epoll.get(), epoll_.get(), O_CLOEXEC), "event loop");
  watch(wake_.get(), EPOLLIN | EPOLLET, kWake);
}

}}  // namespace ae
