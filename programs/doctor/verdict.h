// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The doctor's verdict on one checked item.

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

namespace doctor {

enum class Level : std::uint8_t {
  kOk,
  kNote,    ///< works, but worth knowing
  kFailed,  ///< prevents connections
  kSkipped  ///< could not be checked, for a reason given in another row
};

struct Verdict {
  std::string row;  ///< what was checked: "modules", "rdma: connect"
  Level level = Level::kOk;
  std::string text{};                    ///< the facts, in one line
  std::string remedy{};                  ///< what to do, if anything can be done
  std::optional<double> microseconds{};  ///< duration of a timed step
};
using Verdicts = std::vector<Verdict>;

/// Returns the printed form of a verdict: "FAIL  modules: ...".
std::string line_of(const Verdict& verdict);
nlohmann::ordered_json json_of(const Verdict& verdict);
/// Returns the first verdict that failed; null if none did.
const Verdict* first_failure(const Verdicts& verdicts) noexcept;

}  // namespace doctor
