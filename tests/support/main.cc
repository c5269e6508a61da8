// SPDX-License-Identifier: BSD-3-Clause
// main() of the unit tests, for Catch2 2 and 3. Besides Catch2's report, the counts of test cases
// and the names of failed ones, each with its first failed assertion, are written to the file that
// AECONN_TEST_TALLY names; tests/run sums them up.
//
// A test with tag [conformance] or [busy] also counts as failed if a handler was called in vain
// twice in a row (conn/core/spurious_wakeups.h), which Catch2 does not know. A test in which that
// must happen resets the counter.
#ifndef AECONN_CATCH2_V3
#define CATCH_CONFIG_RUNNER
#endif
#include "tests/support/catch.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "conn/core/spurious_wakeups.h"

// Defined in tests/mutate/visits.cc, for the programs that link it.
extern "C" void test_begins() __attribute__((weak));
extern "C" void test_ends(const char* name) __attribute__((weak));

namespace {

#ifdef AECONN_CATCH2_V3
using Listener = Catch::EventListenerBase;
#else
using Listener = Catch::TestEventListenerBase;
#endif

// Counted by a listener, not in main(): Catch2 ends a listener's run even after a fatal signal.
int called_in_vain = 0;  // number of tests

bool has_tag(const Catch::TestCaseInfo& test, const char* wanted) {
#ifdef AECONN_CATCH2_V3
  for (const Catch::Tag& tag : test.tags)
    if (tag.original == wanted) return true;
#else
  for (const std::string& tag : test.tags)
    if (tag == wanted) return true;
#endif
  return false;
}

class Tally : public Listener {
 public:
  using Listener::Listener;

  void testCaseStarting(const Catch::TestCaseInfo& /*test*/) override {
    conn::SpuriousWakeups::longest_row = 0;
    if (test_begins != nullptr) test_begins();
  }

  void testCaseEnded(const Catch::TestCaseStats& stats) override {
#ifdef AECONN_CATCH2_V3
    const Catch::TestCaseInfo& test = *stats.testInfo;
#else
    const Catch::TestCaseInfo& test = stats.testInfo;
#endif
    if (test_ends != nullptr) test_ends(test.name.c_str());
    const unsigned row = conn::SpuriousWakeups::longest_row;
    const bool in_vain = row > 1 && (has_tag(test, "conformance") || has_tag(test, "busy"));
    if (in_vain) {
      ++called_in_vain;
      std::fprintf(stderr, "%s: a handler was called in vain %u times in a row\n",
                   test.name.c_str(), row);
      if (first_.empty()) first_ = " -- a handler was called in vain again and again";
    }
    if (stats.totals.testCases.failed != 0 || in_vain)
      write("FAIL %s%s\n", test.name.c_str(), first_.c_str());
    first_.clear();
  }

  // The return type differs between the versions.
#ifdef AECONN_CATCH2_V3
  void assertionEnded(const Catch::AssertionStats& stats) override { remember(stats); }
#else
  bool assertionEnded(const Catch::AssertionStats& stats) override {
    remember(stats);
    return true;
  }
#endif

  void testRunEnded(const Catch::TestRunStats& stats) override {
    const auto& cases = stats.totals.testCases;
    const auto more = static_cast<unsigned long long>(called_in_vain);
    const auto passed = static_cast<unsigned long long>(cases.passed + cases.failedButOk);
    write("%llu passed, %llu failed\n", passed - std::min(passed, more),
          static_cast<unsigned long long>(cases.failed) + more);
  }

 private:
  void remember(const Catch::AssertionStats& stats) {
    const auto& result = stats.assertionResult;
    if (result.isOk() || !first_.empty()) return;
    constexpr std::size_t kMost = 500;
    const Catch::SourceLineInfo& place = result.getSourceInfo();
    first_ = std::string(" -- ") + place.file + ":" + std::to_string(place.line) + ": ";
    first_ += result.getExpression();
    if (result.hasExpandedExpression()) first_ += ": " + result.getExpandedExpression();
    for (const auto& each : stats.infoMessages) first_ += "; " + each.message;
    std::replace(first_.begin(), first_.end(), '\n', ' ');
    if (first_.size() > kMost) first_.resize(kMost);
  }

  template <class... Values>
  static void write(const char* format, Values... values) {
    const char* path = std::getenv("AECONN_TEST_TALLY");
    std::FILE* file = path != nullptr ? std::fopen(path, "a") : nullptr;
    if (file == nullptr) return;
    std::fprintf(file, format, values...);
    std::fclose(file);
  }

  std::string first_;
};
CATCH_REGISTER_LISTENER(Tally)

}  // namespace

int main(int argc, char** argv) {
  const int failed = Catch::Session().run(argc, argv);
  return failed != 0 ? failed : called_in_vain != 0 ? 1 : 0;
}
