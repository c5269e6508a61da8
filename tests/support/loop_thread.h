// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// A server on a thread of its own, so that the thread's allocations are the server's only.

#include <functional>
#include <future>
#include <thread>
#include <utility>

#include "conn/endpoint.h"
#include "tests/support/allocations.h"
#include "tests/support/any_loop.h"

namespace testing {

class LoopThread {
 public:
  /// Serves at `address`; returns when the LoopThread is being destroyed.
  using Run = std::function<void(testing::AnyLoop& loop, const conn::Endpoint& address)>;

  /// `body` runs on the thread: it creates a loop and a listener, and calls `run` once. An
  /// exception before that is rethrown by the constructor.
  explicit LoopThread(std::function<void(const Run& run)> body) {
    std::promise<conn::Endpoint> listening;
    auto where = listening.get_future();
    thread_ = std::thread([this, body = std::move(body), &listening] {
      try {
        body([&](testing::AnyLoop& loop, const conn::Endpoint& at) {
#if AECONN_COUNTS_ALLOCATIONS
          let_libev_grow(loop);
#endif
          loop_ = &loop;
          listening.set_value(at);
          loop.run();
        });
      } catch (...) {
        if (loop_ != nullptr) throw;
        listening.set_exception(std::current_exception());
      }
    });
    try {
      address = where.get();
    } catch (...) {
      thread_.join();
      throw;
    }
  }
  ~LoopThread() {
    loop_->post([this] { loop_->stop(); });
    thread_.join();
  }
  LoopThread(const LoopThread&) = delete;
  LoopThread& operator=(const LoopThread&) = delete;

#if AECONN_COUNTS_ALLOCATIONS
  /// The thread's allocations so far.
  Allocations watch(bool on) const {
    std::promise<Allocations> answer;
    loop_->post([&answer, on] { answer.set_value(watch_allocations(on)); });
    return answer.get_future().get();
  }
#endif

  conn::Endpoint address;

 private:
  testing::AnyLoop* loop_ = nullptr;
  std::thread thread_;
};

}  // namespace testing
