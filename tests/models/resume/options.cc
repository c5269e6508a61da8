// SPDX-License-Identifier: BSD-3-Clause
#include "tests/models/resume/options.h"

#include <charconv>
#include <stdexcept>
#include <string_view>

#include "tests/models/resume/state.h"

namespace resume_model {
namespace {

struct MutationName {
  Mutation mutation;
  std::string_view name;
};
constexpr MutationName kMutations[] = {
    {Mutation::kNone, "none"},
    {Mutation::kServerAnswersUnfenced, "server-answers-unfenced"},
    {Mutation::kLostUndrained, "lost-undrained"},
    {Mutation::kOldGenerationTaken, "old-generation-taken"},
    {Mutation::kGenerationReused, "generation-reused"},
    {Mutation::kDisconnectIsEnd, "disconnect-is-end"},
    {Mutation::kClientDialsUnfenced, "client-dials-unfenced"},
    {Mutation::kOldAnswerTaken, "old-answer-taken"},
    {Mutation::kOldOffsetBelieved, "old-offset-believed"},
    {Mutation::kOldWindowsKept, "old-windows-kept"},
    {Mutation::kServerWaitsUnfenced, "server-waits-unfenced"},
    {Mutation::kAnsweredUndrained, "answered-undrained"},
    {Mutation::kForgetUndrained, "forget-undrained"},
    {Mutation::kForgetBelieved, "forget-believed"},
};

constexpr const char* kChecks[] = {"COUNT",  "FENCE", "ORDER", "RANGE", "GAP", "KEEP",
                                   "MEMORY", "PATH",  "END",   "CLOSE", "ONE"};
static_assert(std::size(kChecks) == static_cast<std::size_t>(Check::kNumber));

[[noreturn]] void refuse(std::string_view word, std::string_view wanted) {
  throw std::invalid_argument(std::string(word) + ": " + std::string(wanted));
}

std::uint64_t to_number(std::string_view word, std::string_view value, std::uint64_t most) {
  std::uint64_t number = 0;
  const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), number);
  if (error != std::errc() || end != value.data() + value.size() || number > most) {
    refuse(word, "a number from 0 to " + std::to_string(most) + " is needed");
  }
  return number;
}

bool to_bool(std::string_view word, std::string_view value) {
  if (value != "yes" && value != "no") refuse(word, "yes or no is needed");
  return value == "yes";
}

Mutation to_mutation(std::string_view word, std::string_view value) {
  for (const MutationName& each : kMutations) {
    if (value == each.name || value == std::to_string(static_cast<int>(each.mutation))) {
      return each.mutation;
    }
  }
  refuse(word, "no such mutation");
}

Release to_release(std::string_view word, std::string_view value) {
  if (value == "completion") return Release::kCompletion;
  if (value == "word") return Release::kPeerWord;
  if (value == "posted") return Release::kPosted;
  refuse(word, "completion, word or posted is needed");
}

std::uint32_t to_checks(std::string_view word, std::string_view value) {
  std::uint32_t checks = 0;
  while (!value.empty()) {
    const std::string_view one = value.substr(0, value.find(','));
    value.remove_prefix(one.size() == value.size() ? one.size() : one.size() + 1);
    std::uint32_t bit = 0;
    for (std::size_t i = 0; i < std::size(kChecks); ++i) {
      if (one == kChecks[i]) bit = 1u << i;
    }
    if (bit == 0) refuse(word, "no such invariant");
    checks |= bit;
  }
  return checks;
}

void set_closer(Options& options, std::string_view word, std::string_view value) {
  if (value != "client" && value != "server" && value != "both") {
    refuse(word, "client, server or both is needed");
  }
  options.closes[kClient] = value != "server";
  options.closes[kServer] = value != "client";
}

bool set_size(Options& options, std::string_view word, std::string_view key,
              std::string_view value) {
  struct Size {
    std::string_view key;
    int& size;
    std::uint64_t most;
  };
  const Size sizes[] = {{"to-server", options.units[kClient], 100},
                        {"to-client", options.units[kServer], 100},
                        {"window", options.window_units, kMaxWindowUnits},
                        {"windows", options.windows, kMaxWindows},
                        {"offered", options.offered, kMaxWindows},
                        {"dials", options.dials, kMaxPaths - 1},
                        {"failures", options.failures, 100}};
  for (const Size& each : sizes) {
    if (key != each.key) continue;
    each.size = static_cast<int>(to_number(word, value, each.most));
    return true;
  }
  return false;
}

void set(Options& options, std::string_view word, std::string_view key, std::string_view value) {
  constexpr std::uint64_t kMany = 4'000'000'000;
  if (set_size(options, word, key, value)) return;
  if (key == "release") {
    options.release = to_release(word, value);
  } else if (key == "completions-lost") {
    options.completions_lost = to_bool(word, value);
  } else if (key == "closer") {
    set_closer(options, word, value);
  } else if (key == "early") {
    options.closes_early = to_bool(word, value);
  } else if (key == "forgets") {
    options.forgets = to_bool(word, value);
  } else if (key == "goodbye-answered") {
    options.goodbye_answered = to_bool(word, value);
  } else if (key == "mutation") {
    options.mutation = to_mutation(word, value);
  } else if (key == "checks") {
    options.checks = to_checks(word, value);
  } else if (key == "walks") {
    options.walks = to_number(word, value, kMany);
  } else if (key == "steps") {
    options.walk_steps = to_number(word, value, kMany);
  } else if (key == "seed") {
    options.seed = to_number(word, value, kMany);
  } else if (key == "limit") {
    options.limit = to_number(word, value, kMany);
  } else {
    refuse(word, "no such option");
  }
}

}  // namespace

const char* name(Check what) { return kChecks[static_cast<int>(what)]; }

Options parse_options(int count, char** words) {
  Options options;
  for (int i = 0; i < count; ++i) {
    const std::string_view word = words[i];
    const auto equals = word.find('=');
    if (equals == word.npos) refuse(word, "name=value is needed");
    set(options, word, word.substr(0, equals), word.substr(equals + 1));
  }
  return options;
}

std::string usage() {
  std::string text =
      "usage: resume-model [name=value ...]\n"
      "  to-server=2 to-client=1   bytes that the client, the server writes\n"
      "  window=2 windows=2        bytes in a window; windows that an end has memory for\n"
      "  offered=1                 windows offered at the same time\n"
      "  dials=2 failures=2        attempts to resume; failures of the network and devices\n"
      "  release=completion        sent bytes are released by completion, word (of the peer) or\n"
      "                            when posted\n"
      "  completions-lost=no       a device may take completions along\n"
      "  closer=client             client, server, both\n"
      "  early=no                  close before the peer's last byte has come\n"
      "  forgets=no                a client that closes while lost asks to be forgotten\n"
      "  goodbye-answered=yes      no: a goodbye is proven by its completion\n"
      "  mutation=none             a rule to break, by name or number\n"
      "  checks=COUNT,...          only these invariants\n"
      "  limit=100000000           states of the search\n"
      "  walks=0 steps=2000 seed=1 random walks instead of the search\n"
      "invariants:";
  for (const char* each : kChecks) text += std::string(" ") + each;
  text += "\nmutations:\n";
  for (const MutationName& each : kMutations) {
    text += "  " + std::to_string(static_cast<int>(each.mutation)) + " " + std::string(each.name) +
            "\n";
  }
  return text;
}

}  // namespace resume_model
