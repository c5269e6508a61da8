// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Delivers SIGINT, SIGTERM and SIGHUP as events of the loop, for programs that end at once, and
// SIGHUP for those that conn::Stop ends.

#include <sys/signalfd.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <functional>
#include <utility>

#include "ae/event_loop.h"
#include "conn/error.h"

namespace service {

class Signals {
 public:
  /// Begins to catch the signals: `asked_to_end` runs for SIGINT and SIGTERM, `hung_up` for SIGHUP.
  /// If one of the two functions is empty, its signals keep their previous disposition.
  Signals(ae::EventLoop& loop, std::function<void()> asked_to_end,
          std::function<void()> hung_up = nullptr)
      : loop_(loop), asked_to_end_(std::move(asked_to_end)), hung_up_(std::move(hung_up)) {
    sigset_t set;
    sigemptyset(&set);
    if (asked_to_end_) {
      sigaddset(&set, SIGINT);
      sigaddset(&set, SIGTERM);
    }
    if (hung_up_) sigaddset(&set, SIGHUP);
    sigprocmask(SIG_BLOCK, &set, &before_);
    fd_ = signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC);
    if (fd_ < 0) {
      const int error = errno;
      sigprocmask(SIG_SETMASK, &before_, nullptr);
      throw conn::Error("signalfd: " + conn::errno_text(error));
    }
    loop_.add_file_event(fd_, ae::kReadable, [this](int, ae::Mask) {
      signalfd_siginfo info;
      while (read(fd_, &info, sizeof info) == sizeof info) {
        if (info.ssi_signo == SIGHUP) {
          hung_up_();
          continue;
        }
        came_ = true;
        asked_to_end_();
      }
    });
  }
  Signals(const Signals&) = delete;
  Signals& operator=(const Signals&) = delete;
  ~Signals() {
    loop_.remove_file_event(fd_, ae::kReadable);
    close(fd_);
    // After the first signal the program is about to end and may be signalled again: timeout(1)
    // signals the process and then its group. The signals therefore stay blocked.
    if (!came_) sigprocmask(SIG_SETMASK, &before_, nullptr);
  }

 private:
  ae::EventLoop& loop_;
  std::function<void()> asked_to_end_, hung_up_;
  sigset_t before_;
  int fd_ = -1;
  bool came_ = false;
};

}  // namespace service
