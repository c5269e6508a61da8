#include "conn/spin_option.h"

#include <string>

#include "conn/error.h"

namespace conn {

using std::chrono::microseconds;
using std::chrono::milliseconds;

ae::Spin spin_from(const Options& options) {
  constexpr ae::Duration kNone = ae::Duration::zero();
  ae::Spin spin;
  const std::string how = options.text("spin", "no");
  const bool is_time = how.find_first_of("0123456789") != std::string::npos;
  if (how == "auto") {
    spin.mode = ae::Spin::Mode::kAuto;
  } else if (how == "fast") {
    spin.mode = ae::Spin::Mode::kFast;
  } else if (how == "always") {
    spin.mode = ae::Spin::Mode::kAlways;
  } else if (is_time) {
    spin.time = options.duration("spin", kNone, kNone, milliseconds(100));
    if (spin.time > kNone) spin.mode = ae::Spin::Mode::kFixed;
  } else if (how != "no") {
    throw Error("spin=" + how + ": use no, auto, fast, always or a time such as 20us");
  }
  spin.most = options.duration("spin-max", spin.most, microseconds(1), milliseconds(100));
  const auto cost = [&](std::string_view key) {  // 0: found out
    return options.text(key, "auto") == "auto"
               ? kNone
               : options.duration(key, kNone, kNone, milliseconds(1));
  };
  spin.sleep_cost = cost("sleep-cost");
  spin.sleep_latency = cost("sleep-latency");
  return spin;
}

ae::Spin parse_spin(std::string_view text) {
  const Options options = Options::parse("spin=" + std::string(text));
  options.only("spin", {"spin", "spin-max", "sleep-cost", "sleep-latency"});
  return spin_from(options);
}

}  // namespace conn
