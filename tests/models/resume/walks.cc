// SPDX-License-Identifier: BSD-3-Clause
#include "tests/models/resume/walks.h"

#include <random>

#include "tests/models/resume/steps.h"

namespace resume_model {
namespace {

constexpr std::uint64_t kFailurePercent = 6;

struct Choice {
  Step step;
  State next;
};

class Walks {
 public:
  explicit Walks(Findings& findings)
      : findings_(findings), options_(findings.options), random_(options_.seed) {}

  WalksReport run() {
    while (report_.walks < options_.walks && findings_.violation.empty()) one();
    return std::move(report_);
  }

 private:
  void one();
  const Choice* choose(const State& state);

  Findings& findings_;
  const Options& options_;
  std::mt19937_64 random_;
  WalksReport report_ = {};
  std::vector<Choice> usual_, failures_;
  std::string violating_ = {};  ///< the step that violates an invariant
};

bool accepts(const State& before, const State& after) {
  return after.ends[kServer].generation != before.ends[kServer].generation;
}

const Choice* Walks::choose(const State& state) {
  usual_.clear();
  failures_.clear();
  for_each_step(state, findings_, [&](const Step& step, const State& next) {
    (is_failure(step.kind) ? failures_ : usual_).push_back({step, next});
    if (!findings_.violation.empty() && violating_.empty()) violating_ = describe(step);
  });
  const bool fails = usual_.empty() || (!failures_.empty() && random_() % 100 < kFailurePercent);
  const std::vector<Choice>& from = fails ? failures_ : usual_;
  return from.empty() ? nullptr : &from[random_() % from.size()];
}

void Walks::one() {
  ++report_.walks;
  report_.way.clear();
  State state = initial_state(options_);
  for (std::uint64_t i = 0; i < options_.walk_steps && !state.is_over(); ++i) {
    const Choice* choice = choose(state);
    if (!findings_.violation.empty()) return report_.way.push_back(violating_);
    if (choice == nullptr) break;
    ++report_.steps;
    report_.way.push_back(describe(choice->step));
    if (accepts(state, choice->next)) ++report_.resumes;
    state = choice->next;
  }
  if (is_complete(state, options_)) ++report_.complete;
  if (state.is_over()) {
    ++report_.reasons[{state.ends[kClient].reason, state.ends[kServer].reason}];
  } else {
    ++report_.unfinished;
  }
}

}  // namespace

WalksReport walk(Findings& findings) { return Walks(findings).run(); }

}  // namespace resume_model
