// SPDX-License-Identifier: BSD-3-Clause
// build/tests/resume-model: searches through the states of the resume protocol, or walks through
// them at random. README.md explains the model, `resume-model help` the words. tests/models/run
// reads what is printed here. The status is 1 if an invariant was violated or something stands
// still, 2 for words that are not understood.
#include <cstdio>
#include <exception>
#include <string_view>

#include "tests/models/resume/search.h"
#include "tests/models/resume/walks.h"

namespace resume_model { namespace {

void print(const char* what, std::uint64_t number) {
  std::printf("%s: %llu\n", what, static_cast<unsigned long long>(number));
}

void print(const Reasons& reasons) {
  constexpr const char* kNames[] = {"open", "closed", "end of stream", "expired", "refused", "gap"};
  for (const auto& [ends, number] : reasons) {
    std::printf("ended: client %s, server %s: %llu\n", kNames[static_cast<int>(ends.first)],
                kNames[static_cast<int>(ends.second)], static_cast<unsigned long long>(number));
  }
}

void print(const Findings& findings) {
  for (int i = 0; i < static_cast<int>(Event::kNumber); ++i) {
    if (findings.events[i] == 0) continue;
    std::printf("event: %s: %llu\n", name(static_cast<Event>(i)),
                static_cast<unsigned long long>(findings.events[i]));
  }
  if (!findings.violation.empty()) std::printf("violation: %s\n", findings.violation.c_str());
}

void print(const std::vector<std::string>& way) {
  for (const std::string& step : way) std::printf("  %s\n", step.c_str());
}

bool run_search(Findings& findings) {
  const SearchReport report = search(findings);
  print("states", report.states);
  print("steps", report.steps);
  print("standstills", report.standstills);
  print("hopeless", report.hopeless);
  print(report.reasons);
  print(findings);
  print(report.way);
  if (report.limited) std::puts("stopped: there are more states than the limit");
  return findings.violation.empty() && !report.limited && report.standstills == 0 &&
         (report.hopeless == 0 || findings.options.gap_allowed());
}

bool run_walks(Findings& findings) {
  const WalksReport report = walk(findings);
  print("walks", report.walks);
  print("steps", report.steps);
  print("unfinished", report.unfinished);
  print("complete", report.complete);
  print("resumes", report.resumes);
  print(report.reasons);
  print(findings);
  if (!findings.violation.empty()) print(report.way);
  return findings.violation.empty() && report.unfinished == 0;
}

int run(int count, char** words) {
  if (count == 1 && std::string_view(words[0]) == "help") {
    std::fputs(usage().c_str(), stdout);
    return 0;
  }
  const Options options = parse_options(count, words);
  Findings findings{options};
  return (options.walks != 0 ? run_walks(findings) : run_search(findings)) ? 0 : 1;
}

}  // namespace
}  // namespace resume_model

int main(int argc, char** argv) try {
  return resume_model::run(argc - 1, argv + 1);
} catch (const std::exception& error) {
  std::fprintf(stderr, "resume-model: %s\n", error.what());
  return 2;
}
