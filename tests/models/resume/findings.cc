// SPDX-License-Identifier: BSD-3-Clause
#include "tests/models/resume/findings.h"

#include <iterator>

namespace resume_model {
namespace {

constexpr const char* kNames[] = {"path lost",
                                  "path given up though it works",
                                  "completions went with a device",
                                  "path never established",
                                  "dial",
                                  "attempt given up",
                                  "request lost",
                                  "request doubled",
                                  "request of old generation",
                                  "resume accepted",
                                  "resumed",
                                  "answer of old generation",
                                  "over",
                                  "gap refused",
                                  "counted while draining",
                                  "sent again",
                                  "late write",
                                  "write to a fenced queue pair",
                                  "read from a left window",
                                  "end of stream",
                                  "end of stream while lost",
                                  "closed",
                                  "closed while lost",
                                  "forgotten",
                                  "expired"};
static_assert(std::size(kNames) == static_cast<std::size_t>(Event::kNumber));

}  // namespace

const char* name(Event what) { return kNames[static_cast<int>(what)]; }

}  // namespace resume_model
