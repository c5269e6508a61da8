// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// What the doctor says of one thing it looked at.

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

namespace doctor {

enum class Level : std::uint8_t {
  kOk,
  kNote,    ///< works, and is worth to know
  kFailed,  ///< stops connections
  kSkipped  ///< could not be looked at, for a reason that stands in another row
};

struct Verdict {
  std::string row;  ///< "modules"; "rdma: connect"
  Level level = Level::kOk;
  std::string text{};                    ///< the facts, in one line
  std::string remedy{};                  ///< what to do, where something can be done
  std::optional<double> microseconds{};  ///< of a step that was timed
};
using Verdicts = std::vector<Verdict>;

/// "FAIL  modules: ...": what is printed of it.
std::string line_of(const Verdict& verdict);
nlohmann::ordered_json json_of(const Verdict& verdict);
/// Null if nothing failed.
const Verdict* first_failure(const Verdicts& verdicts) noexcept;

}  // namespace doctor
