// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// What shm keeps for one loop. A connection is hot while the loop itself looks for its peer's
// changes in the shared memory, as it iterates and while it spins. Before the loop sleeps, each hot
// connection asks its peer to send a bell (a byte that wakes the loop) at the next change (arm()).
// The first bell wakes the loop, and all hot connections take their requests back (disarm()), so
// that other peers need not send theirs. A connection without changes becomes cold after some
// iterations: its peer has to send a bell, and the connection costs nothing until then.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "ae/abi.h"
#include "ae/event_loop.h"
#include "conn/connection_type.h"
#include "conn/kit/ready_list.h"

namespace conn { inline namespace AECONN_ABI { namespace shm {

/// A connection whose shared memory the loop can look at.
class HotItem {
 public:
  /// Looks in the shared memory, without a system call, for changes by the peer. Returns whether
  /// there are any that a handler waits for. Runs no handler.
  virtual bool look_now() noexcept = 0;
  /// Asks the peer to wake the loop once it has done what a handler waits for. Returns false if the
  /// loop must not sleep, for example because the peer has done it already.
  virtual bool arm() noexcept = 0;
  /// Takes back the request of arm() that the peer wake the loop.
  virtual void disarm() noexcept = 0;

 protected:
  virtual ~HotItem() = default;

 private:
  friend class LoopState;
  static constexpr std::size_t kCold = std::numeric_limits<std::size_t>::max();
  std::size_t place_ = kCold;  // index in LoopState::hot_; kCold: not in it
  unsigned idle_ = 0;          // number of successive looks that found no change by the peer
};

struct Counters {
  std::uint64_t hellos = 0, hello_failures = 0, peer_errors = 0;
  std::uint64_t bells_sent = 0, bells_had = 0, wakes_in_vain = 0, ring_bytes = 0;
};

class LoopState final : public ae::LoopLocal, public ae::Source {
 public:
  /// Returns the state of `type` on `loop`, created on first use. Throws std::bad_alloc.
  static LoopState& of(const ConnectionType& type, ae::EventLoop& loop);
  LoopState(const ConnectionType& type, ae::EventLoop& loop);
  ~LoopState() override;

  ae::EventLoop& loop() noexcept { return loop_; }
  ReadyList& ready() noexcept { return ready_; }
  /// Number of the loop's present iteration.
  std::uint64_t iteration_number() const noexcept { return iteration_; }
  /// Counts one more connection, and reserves its place in the list of connections whose memory the
  /// loop looks at. Throws std::bad_alloc.
  void enter() {
    // reserve() alone would make room for just one more, and so copy the list for each connection.
    if (hot_.capacity() <= users_) hot_.reserve(std::max(users_ + 1, 2 * hot_.capacity()));
    ++users_;
  }
  void leave(HotItem& item) noexcept {
    cool(item);
    --users_;
  }
  /// Makes the item hot: the loop itself looks at it as it iterates, without a system call.
  void heat(HotItem& item) noexcept;
  /// Calls disarm() of the hot connections, because the loop is awake: no peer needs to wake it. No
  /// effect if arm() was not called.
  void wake() noexcept;
  /// Makes the item cold: the loop does not look at it any more. To be called only after arm() has
  /// asked the peer to wake the loop, or when the loop stops watching the connection.
  void cool(HotItem& item) noexcept;
  void on_spin_wish(const ae::Spin& spin) noexcept { spin_ = ae::Spin::both(spin_, spin); }

  bool has_pending() const override { return !ready_.empty(); }
  std::size_t process_pending() override;
  bool arm() override;
  const ae::Spin* spin() const override;
  bool has_pending_now() override;

  Counters counters;

 private:
  void look_at_some(bool may_cool) noexcept;

  const ConnectionType& type_;
  ae::EventLoop& loop_;
  ReadyList ready_{loop_};
  std::vector<HotItem*> hot_;
  std::size_t users_ = 0, next_ = 0;  // number of connections; index in hot_ of the next to look at
  std::uint64_t iteration_ = 1;
  bool armed_ = false;  // true if the connections of hot_ have asked their peers to wake the loop
  ae::Spin spin_;
};

}}}  // namespace conn::shm
