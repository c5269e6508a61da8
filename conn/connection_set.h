#pragma once
// What conn/ keeps for one loop: its live connections, so that the loop's end reaches them, and the
// counters of each type. Used by the base and by transports; host programs do not need it.

#include <map>

#include "ae/event_loop.h"
#include "conn/connection.h"
#include "conn/connection_type.h"

namespace conn {

class ConnectionSet final : public ae::LoopLocal {
 public:
  /// The set of `loop`, made at first use.
  static ConnectionSet& of(ae::EventLoop& loop);
  ConnectionSet() = default;
  ~ConnectionSet() override;

  void add(Connection& connection) noexcept;
  /// The address stays valid as long as the loop.
  LoopCounters& counters(const ConnectionType& type) { return counters_[&type]; }

  /// Ends every connection of `type`, as the loop's end would. For a transport whose own per-loop
  /// state may go before this set does: the loop destroys its locals in reverse order of creation.
  void abandon(const ConnectionType& type) noexcept;

 private:
  Connection* head_ = nullptr;
  std::map<const ConnectionType*, LoopCounters> counters_;  // a map, for its stable addresses
};

}  // namespace conn
