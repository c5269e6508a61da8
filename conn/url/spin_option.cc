// SPDX-License-Identifier: BSD-3-Clause
#include "conn/url/spin_option.h"

#include <algorithm>
#include <array>
#include <string>

#include "ae/once.h"
#include "conn/error.h"

namespace conn { inline namespace AECONN_ABI {

using std::chrono::microseconds;
using std::chrono::milliseconds;

namespace {

using Mode = ae::Spin::Mode;
constexpr std::array kWords{OptionWord{"no", Mode::kNo}, OptionWord{"auto", Mode::kAuto},
                            OptionWord{"fast", Mode::kFast}, OptionWord{"always", Mode::kAlways}};
static_assert(kWords.front().value == ae::Spin{}.mode);

constexpr auto kNames = [] {
  std::array<std::string_view, kWords.size()> all;
  for (std::size_t i = 0; i < all.size(); ++i) all[i] = kWords[i].word;
  return all;
}();

}  // namespace

std::span<const std::string_view> spin_words() noexcept { return kNames; }

std::vector<OptionRow> spin_rows() {
  constexpr ae::Duration kNone = ae::Duration::zero();
  constexpr OptionSide kBoth = OptionSide::kBoth;
  using Row = OptionRow;
  return {Row::duration("spin", kBoth, kNone, kNone, milliseconds(100),
                        "how the loop waits: docs/spin.md")
              .or_word(kWords),
          Row::duration("spin-max", kBoth, ae::Spin{}.most, microseconds(1), milliseconds(100),
                        "`auto` and `fast` spin no longer")
              .tuning()};
}

std::vector<FormerOption> former_spin_options() {
  constexpr std::string_view kMeasured = "leave it out, the loop measures it";
  return {FormerOption::gone("sleep-cost", kMeasured),
          FormerOption::gone("sleep-latency", kMeasured)};
}

ae::Spin spin_from(OptionReader& options) {
  ae::Spin spin;
  const std::string how = options.word("spin");
  if (const auto word = std::find_if(kWords.begin(), kWords.end(),
                                     [&](const auto& each) { return each.word == how; });
      word != kWords.end()) {
    spin.mode = word->value;
  } else if (how.find_first_of("0123456789") != std::string::npos) {
    spin.time = options.duration("spin");
    if (spin.time > ae::Duration::zero()) spin.mode = Mode::kFixed;
  } else {
    std::string all;
    for (const std::string_view each : kNames) all.append(all.empty() ? "" : ", ").append(each);
    throw Error("spin=" + how + ": use " + all + " or a time such as 20us");
  }
  spin.most = options.duration("spin-max");
  return spin;
}

const OptionTable& spin_options() {
  return ae::once([] { return OptionTable("spin", {{"", spin_rows()}}, former_spin_options()); });
}

ae::Spin parse_spin(std::string_view text) {
  const OptionTable& table = spin_options();
  const Options options = Options::parse("spin=" + std::string(text));
  table.only(options);
  OptionReader read(table, options);
  return spin_from(read);
}

}}  // namespace conn
