// SPDX-License-Identifier: BSD-3-Clause
#include "ae/loops.h"

#include <condition_variable>
#include <exception>
#include <mutex>
#include <string>

namespace ae { inline namespace AECONN_ABI {
namespace {

/// The state of one on_each() call. It is on the caller's stack, so the caller must not return
/// before the last loop has called done().
struct Round {
  explicit Round(std::size_t count) : left(count) { failures.resize(count); }
  void done(std::size_t index, std::exception_ptr failure) {
    const std::lock_guard lock(mutex);
    failures[index] = std::move(failure);
    if (--left == 0) all_done.notify_all();
  }
  std::mutex mutex;
  std::condition_variable all_done;
  std::size_t left;
  std::vector<std::exception_ptr> failures;
};

}  // namespace

void run_on_each(std::size_t count, const std::function<Poster(std::size_t)>& poster,
                 const std::function<EventLoop&(std::size_t)>& loop,
                 const std::function<void(EventLoop&, std::size_t)>& fn) {
  Round round(count);
  for (std::size_t i = 0; i < count; ++i) {
    const auto task = [&round, &loop, &fn, i] {
      std::exception_ptr failure;
      try {
        fn(loop(i), i);
      } catch (...) {
        failure = std::current_exception();
      }
      round.done(i, std::move(failure));
    };
    bool posted = false;
    std::exception_ptr why;
    try {
      posted = poster(i).post(task);
      if (!posted) throw LoopError("loop " + std::to_string(i) + " has ended");
    } catch (...) {
      why = std::current_exception();
    }
    if (!posted) round.done(i, std::move(why));
  }
  std::unique_lock lock(round.mutex);
  round.all_done.wait(lock, [&round] { return round.left == 0; });
  for (const std::exception_ptr& failure : round.failures)
    if (failure) std::rethrow_exception(failure);
}

LoopList::LoopList(const std::vector<EventLoop*>& loops) {
  if (loops.empty()) throw LoopError("a list of loops needs one at least");
  for (EventLoop* loop : loops) entries_.push_back({loop, loop->poster()});
}

void LoopList::on_each(const std::function<void(EventLoop&, std::size_t)>& fn) {
  for (std::size_t i = 0; i < size(); ++i)
    if (thread(i) == std::this_thread::get_id())
      throw LoopError("on_each() on a thread of the list would wait for itself");
  run_on_each(
      size(), [this](std::size_t i) { return entries_[i].poster; },
      [this](std::size_t i) -> EventLoop& { return *entries_[i].loop; }, fn);
}

}}  // namespace ae
