// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// make_connection(): how a transport creates a connection together with its Carrier.

#include <cstddef>
#include <memory>
#include <new>
#include <utility>

#include "ae/abi.h"
#include "ae/event_loop.h"
#include "conn/connection.h"
#include "conn/core/connection_block.h"
#include "conn/core/connection_core.h"

namespace conn { inline namespace AECONN_ABI {

/// Creates a connection in state kNone on `loop`, and its Carrier: a `C` that is constructed with
/// `args`. There is no other way to create either. Throws std::bad_alloc, and any exception of the
/// Carrier's constructor.
template <class C, class... Args>
std::pair<ConnectionPtr, C&> make_connection(ae::EventLoop& loop, Args&&... args) {
  static_assert(alignof(C) <= alignof(std::max_align_t));
  ConnectionBlock& block = ConnectionBlock::allocate(sizeof(C));
  C* made = nullptr;
  try {
    made = ::new (block.carrier()) C(std::forward<Args>(args)...);
  } catch (...) {
    block.part_gone();
    block.part_gone();
    throw;
  }
  std::unique_ptr<Carrier> carrier(made);
  try {
    return {ConnectionPtr(::new (block.core()) ConnectionCore(std::move(carrier), loop)), *made};
  } catch (...) {
    block.part_gone();
    throw;
  }
}

}}  // namespace conn
