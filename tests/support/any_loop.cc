// SPDX-License-Identifier: BSD-3-Clause
#include "tests/support/any_loop.h"

#include <cstdlib>
#include <stdexcept>
#include <string>

namespace testing {
namespace {

std::unique_ptr<ae::EventLoop> make_guest(AnyLoop& host) {
  if (host.is_epoll()) return std::make_unique<ae::EpollLoop>();
  return std::make_unique<ae::LibevLoop>(host.native());
}

}  // namespace

LoopKind chosen_loop() {
  const char* const name = std::getenv("AECONN_LOOP");
  if (name == nullptr || *name == 0 || std::string_view(name) == "libev") return LoopKind::kLibev;
  if (std::string_view(name) == "epoll") return LoopKind::kEpoll;
  throw std::runtime_error("AECONN_LOOP=" + std::string(name) + ": there is libev and epoll");
}

std::unique_ptr<ae::EventLoop> make_loop(LoopKind kind) {
  if (kind == LoopKind::kEpoll) return std::make_unique<ae::EpollLoop>();
  return std::make_unique<ae::LibevLoop>();
}

AnyLoop::AnyLoop(LoopKind kind)
    : owned_(make_loop(kind)),
      below_(owned_.get()),
      libev_(dynamic_cast<ae::LibevLoop*>(below_)),
      epoll_(dynamic_cast<ae::EpollLoop*>(below_)) {
  set_host_may_sleep(true);  // nudges are passed on
}

AnyLoop::AnyLoop(AnyLoop& host)
    : owned_(make_guest(host)),
      below_(owned_.get()),
      libev_(dynamic_cast<ae::LibevLoop*>(below_)),
      epoll_(dynamic_cast<ae::EpollLoop*>(below_)) {
  set_host_may_sleep(true);
  if (epoll_ == nullptr) return;
  host_ = &host;
  host.add_file_event(epoll_->descriptor(), ae::kReadable, [this](int, ae::Mask) {
    try {
      epoll_->dispatch();
    } catch (...) {
      thrown_ = std::current_exception();
    }
  });
}

AnyLoop::~AnyLoop() {
  if (host_ != nullptr) host_->remove_file_event(epoll_->descriptor(), ae::kReadable);
  owned_.reset();
}

std::exception_ptr AnyLoop::take_exception() noexcept {
  if (libev_ != nullptr) return libev_->take_exception();
  return std::exchange(thrown_, nullptr);
}

void AnyLoop::after_fork() {
  if (libev_ != nullptr) libev_->after_fork();
  if (epoll_ != nullptr) epoll_->after_fork();
}

}  // namespace testing
