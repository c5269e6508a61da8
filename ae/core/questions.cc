// SPDX-License-Identifier: BSD-3-Clause
// Implements Loops::ask_each(). Each loop is sent a question, as a posted function. While a thread
// waits for the answers, its own loops run no posted functions; so the thread itself answers the
// questions that other threads have sent to these loops. Otherwise two loops that ask each other
// would wait forever.

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <exception>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "ae/core/fork.h"
#include "ae/core/poster.h"
#include "ae/loops.h"
#include "ae/once.h"

namespace ae { inline namespace AECONN_ABI {
namespace {

using Ask = std::function<void(EventLoop&, std::size_t)>;

/// A question: one call of `ask` that ask_each() requests from one loop.
struct Question {
  enum class Step { kOpen, kBeingAnswered, kAnswered };

  /// Calls `ask` and returns true; returns false if another call of answer() has begun before. To
  /// be called on the loop's thread.
  bool answer() noexcept {
    Step open = Step::kOpen;
    if (!step.compare_exchange_strong(open, Step::kBeingAnswered)) return false;
    try {
      (*ask)(*loop, index);
    } catch (...) {
      failure = std::current_exception();
    }
    return true;
  }
  /// If the calling thread is the loop's thread, answers the question (calls `ask`) at once.
  /// Returns whether it did so.
  bool answer_here() {
    Poster::Queue* const queue = Poster::Queue::of(poster);
    bool answered = false;
    if (queue != nullptr) (void)queue->run_here([&] { answered = answer(); });
    return answered;
  }
  bool is_here() const noexcept {
    const Poster::Queue* const queue = Poster::Queue::of(poster);
    return queue != nullptr && queue->thread() == std::this_thread::get_id();
  }

  const MadeHere made_here{};
  EventLoop* loop = nullptr;
  std::size_t index = 0;
  Poster poster;  // the Poster of `loop`
  // The function to call. It exists until all loops that ask_each() asked have called it.
  const Ask* ask = nullptr;
  std::atomic<Step> step{Step::kOpen};
  std::exception_ptr failure;  // exception of `ask`, or of the attempt to call it; null: none
};
using QuestionPtr = std::shared_ptr<Question>;

/// The questions (calls requested by ask_each()) of the whole process that are not answered yet.
class Board {
 public:
  static Board& get() {
    return once([] { return Board(); });
  }

  /// Answers the question (makes the call that ask_each() requested), unless another thread has
  /// begun to do so. To be called on the loop's thread.
  void answer(Question& question) {
    if (!question.answer()) return;
    const std::lock_guard lock(mutex_);
    forget_parent();
    finish(question);
  }
  /// Adds the requested call in `node`, a list of one entry, unless the call has begun already.
  /// Allocates nothing: it must not fail, because the call has already been posted to its loop.
  void put(std::list<QuestionPtr>& node) noexcept {
    const std::lock_guard lock(mutex_);
    forget_parent();
    if (node.front()->step != Question::Step::kOpen) return;  // the loop has begun the call
    open_.splice(open_.end(), node);
    changed_.notify_all();
  }
  /// Waits until the loops have made the calls `mine`. Meanwhile makes the calls that other threads
  /// request from loops of this thread, because those threads wait for them.
  void wait(const std::vector<QuestionPtr>& mine) {
    std::unique_lock lock(mutex_);
    forget_parent();
    while (!std::all_of(mine.begin(), mine.end(), [](const QuestionPtr& each) {
      return each->step == Question::Step::kAnswered;
    })) {
      const auto to_me = std::find_if(open_.begin(), open_.end(), [](const QuestionPtr& each) {
        return each->step == Question::Step::kOpen && each->is_here() &&
               !each->made_here.inherited();
      });
      if (to_me == open_.end()) {
        changed_.wait(lock);
        continue;
      }
      const QuestionPtr next = *to_me;
      // answer_here() calls a function of the program, so the mutex must not be locked meanwhile.
      // While it is unlocked, another thread may take over the loop that is to make the call:
      // answer_here() then does nothing.
      lock.unlock();
      const bool answered = next->answer_here();
      lock.lock();
      forget_parent();
      if (answered) finish(*next);
    }
    std::erase_if(open_, [](const QuestionPtr& each) { return each->made_here.inherited(); });
  }

 private:
  /// To be called with the mutex locked. In a child of fork(), replaces the condition variable,
  /// which would wait for threads that exist only in the parent.
  void forget_parent() noexcept {
    if (!made_here_.inherited()) return;
    made_here_.renew();
    std::construct_at(&changed_);
  }
  void finish(Question& question) {
    std::erase_if(open_, [&](const QuestionPtr& each) { return each.get() == &question; });
    question.step = Question::Step::kAnswered;
    changed_.notify_all();
  }

  Mutex mutex_;
  MadeHere made_here_;
  std::condition_variable_any changed_;
  std::list<QuestionPtr> open_;
};

/// Has `count` loops, beginning with loop `first`, call `fn`, and waits for the calls. Once a call
/// is posted to a loop, this function must not throw before the call is done. Everything that needs
/// memory is therefore done before the first post; if a post itself fails, the failure counts as
/// the result of that loop's call.
void ask_some(Loops& loops, std::size_t first, std::size_t count, const Ask& fn) {
  Board& board = Board::get();
  std::vector<QuestionPtr> all;
  std::vector<std::list<QuestionPtr>> nodes;
  for (std::size_t i = first; i < first + count; ++i) {
    all.push_back(std::make_shared<Question>());
    Question& question = *all.back();
    (void)loops.thread(i);  // throws in a child of fork() whose parent has the loop's thread
    question.loop = loops.loop(i);
    question.index = i;
    question.poster = loops.poster(i);
    question.ask = &fn;
    nodes.push_back({all.back()});
  }
  const auto fail = [](Question& question) {
    question.failure = std::current_exception();
    question.step = Question::Step::kAnswered;
  };
  const auto post = [&](std::size_t i) {
    Question& question = *all[i];
    bool posted = false;
    try {
      posted = question.poster.post([&board, its = all[i]] { board.answer(*its); });
      if (!posted) throw LoopError("loop " + std::to_string(question.index) + " has ended");
    } catch (const std::exception&) {
      fail(question);
    }
    // Only a call that was posted to its loop is put on the board, the list of requested calls: the
    // loop is certain to make such a call, at the latest when the loop ends.
    if (posted) board.put(nodes[i]);
  };
  std::vector<std::size_t> here;
  here.reserve(count);
  for (std::size_t i = 0; i < count; ++i) {
    if (all[i]->is_here())
      here.push_back(i);
    else
      post(i);
  }
  for (const std::size_t i : here) {
    Question& question = *all[i];
    (void)Poster::Queue::of(question.poster)->run_here([&] {
      // The loop may have ended, but only on this thread: another thread that ends it would wait
      // for this function.
      if (question.poster.open()) (void)question.answer();
    });
    if (question.step == Question::Step::kBeingAnswered)
      question.step = Question::Step::kAnswered;
    else
      post(i);  // another thread has taken over the loop, or the loop has ended
  }
  board.wait(all);
  for (const QuestionPtr& each : all) {
    // Moves the exception out of the Question: the loop's thread may be the last one to release the
    // Question, and would then destroy the exception, too.
    if (std::exception_ptr why = std::exchange(each->failure, nullptr))
      std::rethrow_exception(std::move(why));
  }
}

}  // namespace

void Loops::ask_each(const std::function<void(EventLoop&, std::size_t)>& fn) {
  ask_some(*this, 0, size(), fn);
}

void Loops::ask(std::size_t index, const std::function<void(EventLoop&)>& fn) {
  ask_some(*this, index, 1, [&fn](EventLoop& loop, std::size_t) { fn(loop); });
}

std::thread::id Loops::thread(std::size_t index) const {
  const Poster its = poster(index);
  const Poster::Queue* const queue = Poster::Queue::of(its);
  return queue == nullptr ? std::thread::id() : queue->thread();
}

}}  // namespace ae
