// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// A list of objects that will be destroyed later, in the order in which they were added. Adding an
// object does not allocate and cannot fail, because each object contains its own list link.

#include <memory>
#include <utility>

#include "ae/abi.h"
#include "ae/event_loop.h"

namespace ae { inline namespace AECONN_ABI {

class DeferredList {
 public:
  DeferredList() = default;
  DeferredList(const DeferredList&) = delete;
  DeferredList& operator=(const DeferredList&) = delete;
  ~DeferredList() {
    while (!empty()) destroy_all();
  }

  bool empty() const noexcept { return head_ == nullptr; }

  void push(std::unique_ptr<Deferred> object) noexcept {
    if (!object) return;
    *tail_ = object.release();
    tail_ = &(*tail_)->next_;
  }

  /// Destroys the objects that are in the list now. Objects that their destructors add stay in the
  /// list until the next call. Not inlined, so that the code of an iteration stays small: most
  /// iterations have nothing to destroy.
  [[gnu::noinline]] void destroy_all() noexcept {
    Deferred* object = std::exchange(head_, nullptr);
    tail_ = &head_;
    while (object != nullptr) {
      Deferred* const next = object->next_;
      delete object;
      object = next;
    }
  }

 private:
  Deferred* head_ = nullptr;
  Deferred** tail_ = &head_;
};

}}  // namespace ae
