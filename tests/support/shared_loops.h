// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Several event loops on one thread: running one of them runs all.

#include <memory>
#include <thread>
#include <vector>

#include "ae/loops.h"
#include "tests/support/any_loop.h"

namespace testing {

class SharedLoops final : public ae::Loops {
 public:
  /// `first` and as many more as needed for `count` loops.
  SharedLoops(testing::AnyLoop& first, std::size_t count) : loops_{&first} {
    while (loops_.size() < count) {
      more_.push_back(std::make_unique<testing::AnyLoop>(first));
      loops_.push_back(more_.back().get());
    }
  }
  std::size_t size() const noexcept override { return loops_.size(); }
  ae::Poster poster(std::size_t index) const override { return loops_[index]->poster(); }
  ae::EventLoop* loop(std::size_t index) const noexcept override { return loops_[index]; }
  std::thread::id thread(std::size_t) const override { return std::this_thread::get_id(); }
  void on_each(const std::function<void(ae::EventLoop&, std::size_t)>& fn) override {
    for (std::size_t i = 0; i < loops_.size(); ++i) fn(*loops_[i], i);
  }
  testing::AnyLoop& operator[](std::size_t index) const { return *loops_[index]; }

 private:
  std::vector<std::unique_ptr<testing::AnyLoop>> more_;
  std::vector<testing::AnyLoop*> loops_;
};

}  // namespace testing
