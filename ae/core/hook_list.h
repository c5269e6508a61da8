// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// A list of hooks (functions that a loop calls before or after its sleeps), which run in the order
// of registration. A hook may add and remove hooks, including itself.

#include <algorithm>
#include <cstddef>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "ae/abi.h"
#include "ae/core/handler_slot.h"
#include "ae/event_loop.h"

namespace ae { inline namespace AECONN_ABI {

class HookList {
 public:
  void add(HookId id, std::function<void()> fn) {
    hooks_.push_back(std::make_unique<Hook>());
    hooks_.back()->id = id;
    hooks_.back()->slot.set(std::move(fn));
  }

  /// Removes the hook `id`. Returns false if it is not in this list.
  bool remove(HookId id) {
    const auto at = std::find_if(hooks_.begin(), hooks_.end(),
                                 [id](const auto& hook) { return hook->id == id; });
    if (at == hooks_.end()) return false;
    (*at)->id = kRemoved;
    has_removed_ = true;
    // This is the last use of `at`: the handler's destructor, which runs here, may call this list
    // again and change it.
    (*at)->slot.clear();
    if (running_ == 0) drop_removed();
    return true;
  }

  bool empty() const noexcept { return hooks_.empty(); }

  /// Runs the hooks. A hook that another hook adds meanwhile first runs in the next call; one that
  /// is removed meanwhile does not run.
  void run() {
    if (!empty()) run_all();
  }

  /// Removes all hooks from the list. Must not be called while hooks run.
  void clear() {
    while (!hooks_.empty()) remove(hooks_.back()->id);
  }

 private:
  static constexpr HookId kRemoved = 0;

  struct Hook {
    HookId id = kRemoved;
    HandlerSlot<void()> slot;
  };
  // Exists while the hooks run. A hook that is removed meanwhile stays in the list, marked
  // kRemoved, so that indices stay valid and a running handler is not moved.
  struct Running {
    explicit Running(HookList& of) : list(of) { ++list.running_; }
    Running(const Running&) = delete;
    Running& operator=(const Running&) = delete;
    ~Running() {
      if (--list.running_ == 0 && list.has_removed_) list.drop_removed();
    }
    HookList& list;
  };

  // Not inlined, so that an iteration without hooks does not have to save the registers that this
  // function needs.
  [[gnu::noinline]] void run_all() {
    const Running guard(*this);
    const std::size_t count = hooks_.size();
    for (std::size_t i = 0; i < count; ++i) hooks_[i]->slot.run();
  }

  void drop_removed() {
    std::erase_if(hooks_, [](const auto& hook) { return hook->id == kRemoved; });
    has_removed_ = false;
  }

  std::vector<std::unique_ptr<Hook>> hooks_;
  int running_ = 0;
  bool has_removed_ = false;
};

}}  // namespace ae
