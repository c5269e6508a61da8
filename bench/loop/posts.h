// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Benchmarks of posted functions, from the loop's own thread and from another.

#include <ev.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cstdint>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "bench/loop/sides.h"

namespace loop_bench {

/// The queue that a program without post() would write.
class Queue {
 public:
  /// Returns true if the loop must be woken: nobody has done so since the last run().
  bool add(std::function<void()> function) {
    const std::lock_guard lock(mutex_);
    functions_.push_back(std::move(function));
    return functions_.size() == 1;
  }
  void run() {
    {
      const std::lock_guard lock(mutex_);
      running_.swap(functions_);
    }
    for (const auto& function : running_) function();
    running_.clear();
  }

 private:
  std::mutex mutex_;
  std::vector<std::function<void()>> functions_, running_;
};

struct OurPosts : Ours {
  void post(std::function<void()> function) { loop.post(std::move(function)); }
};

struct LibevPosts : Libev {
  LibevPosts() {
    ev_async_init(&async,
                  [](struct ev_loop*, ev_async* w, int) { static_cast<Queue*>(w->data)->run(); });
    async.data = &queue;
    ev_async_start(loop, &async);
  }
  ~LibevPosts() override { ev_async_stop(loop, &async); }
  void post(std::function<void()> function) {
    if (queue.add(std::move(function))) ev_async_send(loop, &async);
  }
  Queue queue;
  ev_async async;
};

struct EpollPosts : Epoll, Handler {
  EpollPosts() : wake(::eventfd(0, EFD_NONBLOCK)) {
    call = [](Handler& handler) {
      auto& self = static_cast<EpollPosts&>(handler);
      std::uint64_t value = 0;
      require(::read(self.wake, &value, sizeof value) == sizeof value, "read of an eventfd");
      self.queue.run();
    };
    control(EPOLL_CTL_ADD, wake, EPOLLIN, *this);
  }
  ~EpollPosts() override { ::close(wake); }
  void post(std::function<void()> function) {
    const std::uint64_t one = 1;
    if (!queue.add(std::move(function))) return;
    require(::write(wake, &one, sizeof one) == sizeof one, "write of an eventfd");
  }
  Queue queue;
  int wake;
};

/// The loop's own thread posts `batch` functions before each iteration.
template <class Base>
struct PostingItself : Base {
  explicit PostingItself(std::size_t its_batch) : batch(its_batch) {}
  void iterate() override {
    for (std::size_t i = 0; i < batch; ++i) Base::post([this] { ++this->count; });
    Base::iterate();
  }
  std::size_t batch;
};

/// Another thread posts while the loop runs.
template <class Base>
struct PostingFromAfar : Base {
  void run(std::size_t events) override {
    std::thread poster([this, events] {
      for (std::size_t i = 0; i < events; ++i) Base::post([this] { ++this->count; });
    });
    Base::run(events);
    poster.join();
  }
};

}  // namespace loop_bench
