// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// QueuedLoop: what a transport keeps for one loop if its Carriers are QueuedCarriers, which compute
// when they are readable or writable instead of watching a descriptor.

#include <memory>
#include <variant>

#include "ae/abi.h"
#include "ae/event_loop.h"
#include "conn/connection_type.h"
#include "conn/core/connection_set.h"
#include "conn/kit/ready_list.h"

namespace conn { inline namespace AECONN_ABI {

/// The ReadyList of a transport's Carriers on one loop, and an `Own`: the transport's other
/// state for the loop. The loop owns this object. When the loop ends, each LoopEndWatcher is
/// notified, and then the transport's connections are abandoned; all members still exist at that
/// time.
template <class Own = std::monostate>
class QueuedLoop final : public ae::LoopLocal {
 public:
  /// Returns the QueuedLoop of `its_type` for `its_loop`. Creates it on first use, and may then
  /// throw std::bad_alloc.
  static QueuedLoop& of(const ConnectionType& its_type, ae::EventLoop& its_loop) {
    ConnectionSet& its_set = ConnectionSet::of(its_loop);  // created first, so destroyed last
    std::unique_ptr<ae::LoopLocal>& slot = its_loop.local(&its_type);
    if (!slot) slot.reset(new QueuedLoop(its_type, its_loop, its_set));
    return static_cast<QueuedLoop&>(*slot);
  }
  ~QueuedLoop() override {
    set.loop_ends();
    set.abandon(type);
    loop.remove_source(ready);
  }

  const ConnectionType& type;  ///< the transport
  ae::EventLoop& loop;         ///< the loop that owns this object
  ConnectionSet& set;          ///< the loop's connections of all types
  ReadyList ready{loop};       ///< the Carriers with handlers that are due; the loop runs them
  Own own;                     ///< the transport's other state for the loop

 private:
  QueuedLoop(const ConnectionType& its_type, ae::EventLoop& its_loop, ConnectionSet& its_set)
      : type(its_type), loop(its_loop), set(its_set), own() {
    loop.add_source(ready);
  }
};

}}  // namespace conn
