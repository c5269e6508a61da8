// SPDX-License-Identifier: BSD-3-Clause
#include "programs/doctor/verdict.h"

#include <fmt/format.h>

#include <algorithm>

namespace doctor {
namespace {

struct Words {
  const char *shown, *json;
};
Words words_of(Level level) noexcept {
  switch (level) {
    case Level::kOk:
      return {"ok", "ok"};
    case Level::kNote:
      return {"note", "note"};
    case Level::kFailed:
      return {"FAIL", "failed"};
    case Level::kSkipped:
      return {"-", "skipped"};
  }
  return {"?", "?"};
}

}  // namespace

std::string line_of(const Verdict& verdict) {
  return fmt::format("{:<5} {}: {}", words_of(verdict.level).shown, verdict.row, verdict.text);
}

nlohmann::ordered_json json_of(const Verdict& verdict) {
  nlohmann::ordered_json json{
      {"row", verdict.row}, {"verdict", words_of(verdict.level).json}, {"text", verdict.text}};
  if (!verdict.remedy.empty()) json["do"] = verdict.remedy;
  if (verdict.microseconds) json["us"] = *verdict.microseconds;
  return json;
}

const Verdict* first_failure(const Verdicts& verdicts) noexcept {
  const auto found = std::find_if(verdicts.begin(), verdicts.end(),
                                  [](const Verdict& each) { return each.level == Level::kFailed; });
  return found == verdicts.end() ? nullptr : &*found;
}

}  // namespace doctor
