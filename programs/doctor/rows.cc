// SPDX-License-Identifier: BSD-3-Clause
#include "programs/doctor/rows.h"

#include <array>

namespace doctor {

std::span<const Row> rows() noexcept {
  static constexpr std::array<Row, 12> kRows{build,   libraries, modules,    device_files,
                                             devices, ports,     gids,       addresses,
                                             packets, marking,   processors, descriptors};
  return kRows;
}

}  // namespace doctor
