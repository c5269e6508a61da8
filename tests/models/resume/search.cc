// SPDX-License-Identifier: BSD-3-Clause
#include "tests/models/resume/search.h"

#include <algorithm>
#include <cstring>

#include "tests/models/resume/steps.h"
#include "tests/models/resume/visited.h"

namespace resume_model {
namespace {

/// States that wait for their steps, as the bytes that can differ from zero.
class Waiting {
 public:
  bool empty() const { return bytes_.size() == at_; }
  void push(const State& state) {
    const auto* from = reinterpret_cast<const Byte*>(&state);
    bytes_.insert(bytes_.end(), from, from + state.used_size());
  }
  State pop() {
    State state{};
    std::memcpy(&state, bytes_.data() + at_, offsetof(State, paths));
    const std::size_t size = state.used_size();
    std::memcpy(&state, bytes_.data() + at_, size);
    at_ += size;
    return state;
  }
  void clear() {
    bytes_.clear();
    at_ = 0;
  }

 private:
  std::vector<Byte> bytes_;
  std::size_t at_ = 0;
};

class Search {
 public:
  explicit Search(Findings& findings) : findings_(findings), options_(findings.options) {}

  SearchReport run() {
    add(initial_state(options_), 0, 0);
    while (!later_.empty() && !stopped_) {
      std::swap(now_, later_);
      later_.clear();
      while (!now_.empty() && !stopped_) expand(now_.pop());
    }
    report_.states = visited_.size();
    report_.steps = targets_.size();
    if (findings_.violation.empty() && !report_.limited) find_hopeless();
    return std::move(report_);
  }

 private:
  std::uint32_t add(const State& state, std::uint32_t from, std::size_t step);
  void expand(const State& state);
  void find_hopeless();
  void tell_way(std::uint32_t to);

  enum Mark : Byte { kComplete = 1, kMustHope = 2 };
  struct Origin {
    std::uint32_t from = 0;
    Byte step = 0;  ///< its place among all steps of `from`
  };

  Findings& findings_;
  const Options& options_;
  SearchReport report_ = {};
  Visited visited_;
  Waiting now_, later_;  ///< states as many steps from the first one, and those one step further
  std::uint32_t expanded_ = 0;
  bool stopped_ = false;
  // By number of state.
  std::vector<Origin> origins_;
  std::vector<Byte> marks_;
  std::vector<std::size_t> first_target_;
  std::vector<std::uint32_t> targets_;
};

std::uint32_t Search::add(const State& state, std::uint32_t from, std::size_t step) {
  const auto [number, is_new] = visited_.add(state);
  if (!is_new) return number;
  origins_.push_back({from, byte(static_cast<int>(step))});
  const End& client = state.ends[kClient];
  const End& server = state.ends[kServer];
  const bool must_hope = state.dials != 0 && client.phase != Phase::kEnded &&
                         server.phase != Phase::kEnded && client.peer_total == 0 &&
                         server.peer_total == 0;
  const bool complete = is_complete(state, options_);
  marks_.push_back(byte((complete ? kComplete : 0) | (must_hope ? kMustHope : 0)));
  if (state.is_over()) ++report_.reasons[{client.reason, server.reason}];
  later_.push(state);
  return number;
}

// States are expanded in the order of their numbers.
void Search::expand(const State& state) {
  const std::uint32_t number = expanded_++;
  const std::size_t before = targets_.size();
  first_target_.push_back(before);
  Step violating{};
  bool found = false;
  for_each_step(state, findings_, [&](const Step& step, const State& next) {
    targets_.push_back(add(next, number, targets_.size() - before));
    if (!found && !findings_.violation.empty()) violating = step;
    found = !findings_.violation.empty();
  });
  const bool stands = targets_.size() == before && !state.is_over();
  if (stands && report_.standstills++ == 0) tell_way(number);
  if (found) {
    tell_way(number);
    report_.way.push_back(describe(violating));
  }
  report_.limited = !found && visited_.size() >= options_.limit;
  stopped_ = found || report_.limited;
}

// Most steps lead to states with greater numbers, so a few passes from the last state to the first
// one find all that a complete end can be reached from.
void Search::find_hopeless() {
  first_target_.push_back(targets_.size());
  const std::uint32_t count = visited_.size();
  for (bool changed = true; changed;) {
    changed = false;
    for (std::uint32_t state = count; state-- > 0;) {
      if ((marks_[state] & kComplete) != 0) continue;
      const auto first = targets_.begin() + static_cast<std::ptrdiff_t>(first_target_[state]);
      const auto last = targets_.begin() + static_cast<std::ptrdiff_t>(first_target_[state + 1]);
      const auto ends_well = [&](std::uint32_t to) { return (marks_[to] & kComplete) != 0; };
      if (!std::any_of(first, last, ends_well)) continue;
      marks_[state] = byte(marks_[state] | kComplete);
      changed = true;
    }
  }
  for (std::uint32_t state = 0; state < count; ++state) {
    if (marks_[state] != kMustHope) continue;
    if (report_.hopeless++ == 0 && report_.way.empty()) tell_way(state);
  }
}

// Walks from the first state once more, along the steps by which each was found.
void Search::tell_way(std::uint32_t to) {
  std::vector<Byte> steps;
  for (; to != 0; to = origins_[to].from) steps.push_back(origins_[to].step);
  report_.way.clear();
  Findings unused{options_};
  State state = initial_state(options_);
  for (; !steps.empty(); steps.pop_back()) {
    State next{};
    int left = steps.back();
    for_each_step(state, unused, [&](const Step& step, const State& then) {
      if (left-- != 0) return;
      next = then;
      report_.way.push_back(describe(step));
    });
    state = next;
  }
}

}  // namespace

SearchReport search(Findings& findings) { return Search(findings).run(); }

}  // namespace resume_model
