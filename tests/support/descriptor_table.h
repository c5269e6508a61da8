// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The table of descriptors in docs/limits.md, and what the process has open.

#include <sys/eventfd.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>
#include <utility>

#include "ae/event_loop.h"
#include "tests/support/pass_descriptors.h"

namespace testing {

/// Counts what is opened from its construction on.
class Opened {
 public:
  /// What was opened since the last call.
  int more() {
    const std::size_t now = count_descriptors();
    return static_cast<int>(now) - static_cast<int>(std::exchange(before_, now));
  }

 private:
  std::size_t before_ = count_descriptors();
};

/// The number in the row of the page's table that begins with `what`.
inline int told_of(const std::string& what) {
  const auto tree = std::filesystem::path(__FILE__).parent_path().parent_path().parent_path();
  std::ifstream page(tree / "docs" / "limits.md");
  const std::string begin = "| " + what + " | ";
  for (std::string line; std::getline(page, line);)
    if (line.starts_with(begin)) return std::stoi(line.substr(begin.size()));
  throw std::runtime_error("docs/limits.md has no row of descriptors for " + what);
}

/// Sleeps before one timer more often than the page's row for that allows without an alarm.
inline void outlast_sleeps(ae::EventLoop& loop) {
  const int ready = ::eventfd(1, EFD_CLOEXEC);
  int sleeps = 0;
  loop.add_file_event(ready, ae::kReadable, [&](int, ae::Mask) { ++sleeps; });
  const ae::TimerId timer = loop.add_time_event(std::chrono::hours(1), [] { return ae::kNoMore; });
  while (sleeps < 20) loop.process_events(ae::kFullIteration);
  loop.remove_time_event(timer);
  loop.remove_file_event(ready, ae::kReadable);
  ::close(ready);
}

}  // namespace testing
