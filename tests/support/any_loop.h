// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The event loop that the tests run on: LibevLoop, or the one that AECONN_LOOP names (libev,
// epoll). All calls are forwarded to it, so a test of the common interface is written once.

#include <exception>
#include <memory>
#include <string_view>
#include <utility>

#include "ae/epoll_loop.h"
#include "ae/libev_loop.h"

namespace testing {

enum class LoopKind { kLibev, kEpoll };

/// The loop that AECONN_LOOP names; libev if it is not set or empty.
LoopKind chosen_loop();
std::unique_ptr<ae::EventLoop> make_loop(LoopKind kind = chosen_loop());

class AnyLoop : public ae::EventLoop {
 public:
  explicit AnyLoop(LoopKind kind = chosen_loop());
  /// A second loop on the same thread: running `host` runs this loop, too. `host` must outlive it.
  explicit AnyLoop(AnyLoop& host);
  ~AnyLoop() override;

  void add_file_event(int fd, ae::Mask mask, ae::FileHandler handler) override {
    below_->add_file_event(fd, mask, std::move(handler));
  }
  void remove_file_event(int fd, ae::Mask mask) override { below_->remove_file_event(fd, mask); }
  ae::Mask file_events(int fd) const override { return below_->file_events(fd); }
  ae::TimerId add_time_event(ae::Duration delay, ae::TimeHandler handler) override {
    return below_->add_time_event(delay, std::move(handler));
  }
  ae::TimerId add_time_event(ae::TimePoint when, ae::TimeHandler handler) override {
    return below_->add_time_event(when, std::move(handler));
  }
  bool again(ae::TimerId id, ae::Duration delay) noexcept override {
    return below_->again(id, delay);
  }
  bool again(ae::TimerId id, ae::TimePoint when) noexcept override {
    return below_->again(id, when);
  }
  bool remove_time_event(ae::TimerId id) override { return below_->remove_time_event(id); }
  ae::HookId add_before_sleep(std::function<void()> hook) override {
    return below_->add_before_sleep(std::move(hook));
  }
  ae::HookId add_after_sleep(std::function<void()> hook) override {
    return below_->add_after_sleep(std::move(hook));
  }
  void remove_hook(ae::HookId id) override { below_->remove_hook(id); }
  void add_source(ae::Source& source) override { below_->add_source(source); }
  void remove_source(ae::Source& source) override { below_->remove_source(source); }
  void run() override { below_->run(); }
  void stop() noexcept override { below_->stop(); }
  std::size_t process_events(ae::Process flags) override { return below_->process_events(flags); }
  void set_spin(const ae::Spin& spin) override { below_->set_spin(spin); }
  ae::LoopTimes times() const override { return below_->times(); }
  void post(std::function<void()> fn) override { below_->post(std::move(fn)); }
  ae::Poster poster() override { return below_->poster(); }
  void destroy_later(std::unique_ptr<ae::Deferred> object) noexcept override {
    below_->destroy_later(std::move(object));
  }
  std::unique_ptr<ae::LoopLocal>& local(const void* key) override { return below_->local(key); }
  ae::TimePoint now() const override { return below_->now(); }
  bool has_time() noexcept override { return below_->has_time(); }
  bool in_handler() const noexcept override { return below_->in_handler(); }

  bool is_epoll() const noexcept { return epoll_ != nullptr; }
  /// Valid with libev only.
  struct ev_loop* native() const noexcept {
    return libev_->native();
  }
  /// An exception that was thrown while the host ran this loop.
  std::exception_ptr take_exception() noexcept;
  void after_fork();

 private:
  void on_nudge() noexcept override { below_->nudge(); }

  std::unique_ptr<ae::EventLoop> owned_;
  ae::EventLoop* below_;  // owned_'s loop, valid also during its destruction
  ae::LibevLoop* libev_;
  ae::EpollLoop* epoll_;
  AnyLoop* host_ = nullptr;
  std::exception_ptr thrown_;
};

}  // namespace testing
