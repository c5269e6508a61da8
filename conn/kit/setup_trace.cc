// SPDX-License-Identifier: BSD-3-Clause
#include "conn/setup_trace.h"

#include <chrono>

namespace conn { inline namespace AECONN_ABI {
namespace {

thread_local SetupTrace* current = nullptr;

}  // namespace

SetupTrace::SetupTrace() : outer_(current) { current = this; }

SetupTrace::~SetupTrace() { current = outer_; }

void SetupTrace::begin(std::string_view name) {
  if (current == nullptr) return;
  current->close(true);
  current->steps_.push_back({name, {}, false});
  current->began_ = std::chrono::steady_clock::now();
  current->open_ = true;
}

void SetupTrace::end() noexcept {
  if (current != nullptr) current->close(true);
}

void SetupTrace::failed() noexcept {
  if (current != nullptr) current->close(false);
}

void SetupTrace::close(bool done) noexcept {
  if (!open_) return;
  open_ = false;
  steps_.back().took = std::chrono::steady_clock::now() - began_;
  steps_.back().done = done;
}

}}  // namespace conn
