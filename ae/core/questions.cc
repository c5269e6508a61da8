// SPDX-License-Identifier: BSD-3-Clause
// Implements Loops::ask_each(). Each loop gets a question by a post. A thread that waits for its
// answers, and whose own loops therefore run no posts, answers what others ask of these loops
// instead: so two loops that ask each other do not wait forever.

#include <algorithm>
#include <condition_variable>
#include <exception>
#include <list>
#include <memory>
#include <mutex>
#include <string>

#include "ae/core/fork.h"
#include "ae/loops.h"

namespace ae { inline namespace AECONN_ABI {
namespace {

using Ask = std::function<void(EventLoop&, std::size_t)>;

/// What one ask_each() asks one loop.
struct Question {
  enum class Step { kOpen, kBeingAnswered, kAnswered };

  /// Runs the function. Only for the thread that has set `step` to kBeingAnswered.
  void answer() noexcept {
    try {
      (*ask)(*loop, index);
    } catch (...) {
      failure = std::current_exception();
    }
  }

  const MadeHere made_here;
  EventLoop* loop = nullptr;
  std::size_t index = 0;
  std::thread::id thread;    // runs the loop; the id of no thread: not known
  const Ask* ask = nullptr;  // lives until all questions of its ask_each() have been answered
  Step step = Step::kOpen;
  std::exception_ptr failure;
};
using QuestionPtr = std::shared_ptr<Question>;

/// The questions of the process that wait for an answer.
class Board {
 public:
  /// Never destroyed: threads may ask until the process ends.
  static Board& get() {
    static auto* const only = new Board;
    return *only;
  }

  /// Answers the question, unless another thread does or has.
  void answer(Question& question) {
    std::unique_lock lock(mutex_);
    answer(question, lock);
  }
  /// `node` has one question. Allocates nothing: its loop has the post already.
  void put(std::list<QuestionPtr>& node) noexcept {
    const std::lock_guard lock(mutex_);
    if (node.front()->step != Question::Step::kOpen) return;  // its loop was quicker
    open_.splice(open_.end(), node);
    changed_.notify_all();
  }
  /// Waits until `mine` are answered, and meanwhile answers the questions to this thread.
  void wait(const std::vector<QuestionPtr>& mine) {
    std::unique_lock lock(mutex_);
    while (!std::all_of(mine.begin(), mine.end(), [](const QuestionPtr& each) {
      return each->step == Question::Step::kAnswered;
    })) {
      const auto to_me = std::find_if(open_.begin(), open_.end(), [](const QuestionPtr& each) {
        return each->thread == std::this_thread::get_id() && !each->made_here.inherited();
      });
      if (to_me == open_.end()) {
        changed_.wait(lock);
        continue;
      }
      const QuestionPtr next = *to_me;
      answer(*next, lock);
    }
    std::erase_if(open_, [](const QuestionPtr& each) { return each->made_here.inherited(); });
  }

 private:
  void answer(Question& question, std::unique_lock<Mutex>& lock) {
    if (question.step != Question::Step::kOpen) return;
    question.step = Question::Step::kBeingAnswered;
    std::erase_if(open_, [&](const QuestionPtr& each) { return each.get() == &question; });
    lock.unlock();
    question.answer();
    lock.lock();
    question.step = Question::Step::kAnswered;
    changed_.notify_all();
  }

  Mutex mutex_;
  std::condition_variable_any changed_;
  std::list<QuestionPtr> open_;
};

/// Asks `count` loops from `first` on. Everything that may fail for lack of memory comes before the
/// first post, or is told as the failure of its loop: once a loop has a question, it has to be
/// awaited.
void ask_some(Loops& loops, std::size_t first, std::size_t count, const Ask& fn) {
  Board& board = Board::get();
  std::vector<QuestionPtr> all;
  std::vector<std::list<QuestionPtr>> nodes;
  for (std::size_t i = first; i < first + count; ++i) {
    all.push_back(std::make_shared<Question>());
    Question& question = *all.back();
    question.loop = loops.loop(i);
    question.index = i;
    question.thread = loops.thread(i);
    question.ask = &fn;
    nodes.push_back({all.back()});
  }
  const auto is_here = [](const Question& its) { return its.thread == std::this_thread::get_id(); };
  for (std::size_t i = 0; i < count; ++i) {
    Question& question = *all[i];
    if (is_here(question)) continue;
    bool posted = false;
    try {
      const ae::Poster poster = loops.poster(question.index);
      posted = poster.post([&board, its = all[i]] { board.answer(*its); });
      if (!posted) throw LoopError("loop " + std::to_string(question.index) + " has ended");
    } catch (const std::exception&) {
      question.failure = std::current_exception();
      question.step = Question::Step::kAnswered;
    }
    // Only now: a loop that has taken the post ends no earlier than it has run it.
    if (posted) board.put(nodes[i]);
  }
  for (const QuestionPtr& each : all) {
    if (!is_here(*each)) continue;
    try {
      if (!loops.poster(each->index).open())
        throw LoopError("loop " + std::to_string(each->index) + " has ended");
      each->answer();
    } catch (const std::exception&) {
      each->failure = std::current_exception();
    }
    each->step = Question::Step::kAnswered;
  }
  board.wait(all);
  for (const QuestionPtr& each : all)
    if (each->failure) std::rethrow_exception(each->failure);
}

}  // namespace

void Loops::ask_each(const std::function<void(EventLoop&, std::size_t)>& fn) {
  ask_some(*this, 0, size(), fn);
}

void Loops::ask(std::size_t index, const std::function<void(EventLoop&)>& fn) {
  ask_some(*this, index, 1, [&fn](EventLoop& loop, std::size_t) { fn(loop); });
}

std::thread::id Loops::thread(std::size_t) const { return {}; }

}}  // namespace ae
