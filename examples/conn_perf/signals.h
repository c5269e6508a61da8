#pragma once
// SIGINT and SIGTERM as an event of the loop.

#include <sys/signalfd.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <functional>
#include <utility>

#include "ae/event_loop.h"
#include "conn/error.h"

namespace perf {

class Signals {
 public:
  Signals(ae::EventLoop& loop, std::function<void()> asked_to_end)
      : loop_(loop), asked_to_end_(std::move(asked_to_end)) {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGTERM);
    sigprocmask(SIG_BLOCK, &set, nullptr);
    fd_ = signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC);
    if (fd_ < 0) throw conn::Error("signalfd: " + conn::errno_text(errno));
    loop_.add_file_event(fd_, ae::kReadable, [this](int, ae::Mask) {
      signalfd_siginfo info;
      while (read(fd_, &info, sizeof info) == sizeof info) asked_to_end_();
    });
  }
  Signals(const Signals&) = delete;
  Signals& operator=(const Signals&) = delete;
  ~Signals() {
    loop_.remove_file_event(fd_, ae::kReadable);
    close(fd_);
  }

 private:
  ae::EventLoop& loop_;
  std::function<void()> asked_to_end_;
  int fd_ = -1;
};

}  // namespace perf
