// SPDX-License-Identifier: BSD-3-Clause
#include "conn/kit/spin_option.h"

#include <string>

#include "conn/error.h"

namespace conn::inline AECONN_ABI {

using std::chrono::microseconds;
using std::chrono::milliseconds;

std::vector<OptionRow> spin_rows() {
  constexpr ae::Duration kNone = ae::Duration::zero();
  constexpr OptionSide kBoth = OptionSide::kBoth;
  using Row = OptionRow;
  return {Row::duration("spin", kBoth, kNone, kNone, milliseconds(100),
                        "how the loop waits: docs/spin.md")
              .or_word({"no", "auto", "fast", "always"}),
          Row::duration("spin-max", kBoth, ae::Spin{}.most, microseconds(1), milliseconds(100),
                        "`auto` and `fast` spin no longer"),
          Row::duration("sleep-cost", kBoth, kNone, kNone, milliseconds(1),
                        "CPU of a sleep; auto (and 0): measured")
              .or_word({"auto"}),
          Row::duration("sleep-latency", kBoth, kNone, kNone, milliseconds(1),
                        "how late a wake-up is; auto (and 0): from the cost")
              .or_word({"auto"})};
}

ae::Spin spin_from(OptionReader& options) {
  ae::Spin spin;
  const std::string how = options.word("spin");
  if (how == "auto") {
    spin.mode = ae::Spin::Mode::kAuto;
  } else if (how == "fast") {
    spin.mode = ae::Spin::Mode::kFast;
  } else if (how == "always") {
    spin.mode = ae::Spin::Mode::kAlways;
  } else if (how.find_first_of("0123456789") != std::string::npos) {
    spin.time = options.duration("spin");
    if (spin.time > ae::Duration::zero()) spin.mode = ae::Spin::Mode::kFixed;
  } else if (how != "no") {
    throw Error("spin=" + how + ": use no, auto, fast, always or a time such as 20us");
  }
  spin.most = options.duration("spin-max");
  spin.sleep_cost = options.duration("sleep-cost");  // 0: found out
  spin.sleep_latency = options.duration("sleep-latency");
  return spin;
}

ae::Spin parse_spin(std::string_view text) {
  static const OptionTable table("spin", {{"", spin_rows()}});
  const Options options = Options::parse("spin=" + std::string(text));
  table.only(options);
  OptionReader read(table, options);
  return spin_from(read);
}

}  // namespace conn::inline AECONN_ABI
