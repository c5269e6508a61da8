// SPDX-License-Identifier: BSD-3-Clause
#include "conn/setup_trace.h"

#include <chrono>

namespace conn { inline namespace AECONN_ABI {
namespace {

thread_local SetupTrace* current_trace = nullptr;

}  // namespace

SetupTrace::SetupTrace() : outer_(current_trace) { current_trace = this; }

SetupTrace::~SetupTrace() { current_trace = outer_; }

void SetupTrace::begin(std::string_view name) {
  if (current_trace == nullptr) return;
  current_trace->close(true);
  current_trace->steps_.push_back({name, {}, false});
  current_trace->began_ = std::chrono::steady_clock::now();
  current_trace->open_ = true;
}

void SetupTrace::end() noexcept {
  if (current_trace != nullptr) current_trace->close(true);
}

void SetupTrace::failed() noexcept {
  if (current_trace != nullptr) current_trace->close(false);
}

void SetupTrace::close(bool done) noexcept {
  if (!open_) return;
  open_ = false;
  steps_.back().took = std::chrono::steady_clock::now() - began_;
  steps_.back().done = done;
}

}}  // namespace conn
