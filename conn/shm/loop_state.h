// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// What shm keeps for one loop. A connection is hot while the loop looks at its words by itself, in
// every iteration and while it spins. Before the loop sleeps, each hot connection asks its peer to
// ring (arm()); once the loop is awake they all take that back (disarm()), so that one bell is
// enough for many peers. A connection without news becomes cold after some iterations: its peer
// has to ring, and it costs nothing until that happens.

#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "ae/abi.h"
#include "ae/event_loop.h"
#include "conn/connection_type.h"
#include "conn/kit/ready_list.h"

namespace conn { inline namespace AECONN_ABI { namespace shm {

/// A connection, as the loop sees it.
class HotItem {
 public:
  /// Looks for news without a system call; returns whether there are any. Runs no handler.
  virtual bool look_now() noexcept = 0;
  /// Asks the peer to ring, then looks once more. Returns false if that found news.
  virtual bool arm() noexcept = 0;
  /// Asks the peer not to ring.
  virtual void disarm() noexcept = 0;

 protected:
  virtual ~HotItem() = default;

 private:
  friend class LoopState;
  static constexpr std::size_t kCold = std::numeric_limits<std::size_t>::max();
  std::size_t place_ = kCold;  // index in LoopState::hot_; kCold: not in it
  unsigned idle_ = 0;          // number of successive looks that found no news
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
  /// Number of this iteration.
  std::uint64_t iteration_number() const noexcept { return iteration_; }
  /// Makes room for one more connection. Throws std::bad_alloc.
  void enter() {
    hot_.reserve(users_ + 1);
    ++users_;
  }
  void leave(HotItem& item) noexcept {
    cool(item);
    --users_;
  }
  /// Makes the item hot: the loop looks at it in each iteration, without a system call.
  void heat(HotItem& item) noexcept;
  /// Tells the hot connections that the loop is awake: they ask their peers not to ring.
  void wake() noexcept;
  /// Makes the item cold: the loop does not look at it any more. Does not ask its peer to ring;
  /// that is arm().
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
  std::size_t users_ = 0, next_ = 0;  // number of connections; index of the next one to look at
  std::uint64_t iteration_ = 1;
  bool armed_ = false;  // whether hot connections have asked their peers to ring
  ae::Spin spin_;
};

}}}  // namespace conn::shm
