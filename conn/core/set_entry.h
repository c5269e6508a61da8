// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// SetEntry: a connection's entry in the list of one type's connections, which a ConnectionSet
// keeps. The list does not own the connections, and a connection can leave it without knowing which
// list it is in.

#include "ae/abi.h"

namespace conn { inline namespace AECONN_ABI {

class SetEntry {
 public:
  SetEntry(const SetEntry&) = delete;
  SetEntry& operator=(const SetEntry&) = delete;
  bool listed() const noexcept { return link_ != nullptr; }
  /// The entry after this one; null: there is none, or this one is in no list.
  SetEntry* next() const noexcept { return next_; }
  /// Becomes the first entry of the list that begins at `head`, which must not move. This entry
  /// must be in no list.
  void link(SetEntry*& head) noexcept {
    next_ = head;
    link_ = &head;
    if (next_ != nullptr) next_->link_ = &next_;
    head = this;
  }
  /// Leaves its list; no effect if it is in none.
  void unlink() noexcept {
    if (link_ == nullptr) return;
    *link_ = next_;
    if (next_ != nullptr) next_->link_ = link_;
    link_ = nullptr;
    next_ = nullptr;
  }

 protected:
  SetEntry() = default;
  ~SetEntry() { unlink(); }

 private:
  SetEntry* next_ = nullptr;
  // The pointer to this entry: the list's head, or next_ of the entry before.
  SetEntry** link_ = nullptr;
};

}}  // namespace conn
