// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// What a TLS type keeps for one loop.

#include <array>

#include "ae/abi.h"
#include "ae/event_loop.h"
#include "conn/core/connection_set.h"
#include "conn/kit/ready_list.h"
#include "conn/tls/engine/engine.h"

namespace conn { inline namespace AECONN_ABI { namespace tls {

class TlsConnection;
class Acceptor;

struct Counters {
  std::uint64_t handshakes = 0, resumed = 0, handshake_failures = 0, handshake_timeouts = 0;
  std::uint64_t evicted = 0;         ///< handshakes that made room for others (max-handshakes)
  std::uint64_t handshaking = 0;     ///< now
  std::uint64_t bytes_gathered = 0;  ///< plain ones, copied so that pieces share a record
  std::uint64_t message_floods = 0;  ///< connections that ended for messages without data
};

/// A connection with buffers that an idle one does not need stands in this list.
class Warm {
 public:
  Warm() = default;
  Warm(const Warm&) = delete;
  Warm& operator=(const Warm&) = delete;
  virtual ~Warm() { unlink(); }
  bool linked() const noexcept { return next_ != this; }
  void unlink() noexcept {
    prev_->next_ = next_;
    next_->prev_ = prev_;
    prev_ = next_ = this;
  }
  void link_before(Warm& head) noexcept {
    prev_ = head.prev_;
    next_ = &head;
    prev_->next_ = this;
    head.prev_ = this;
  }
  Warm* next() const noexcept { return next_; }
  bool in_use = false;  ///< since the last sweep

 protected:
  friend class LoopState;
  virtual void cool() {}

 private:
  Warm* prev_ = this;
  Warm* next_ = this;
};

class LoopState final : public ae::LoopLocal, public ae::Source {
 public:
  static LoopState& of(const TlsType& type, ae::EventLoop& loop);
  /// Null if there is none yet.
  static LoopState* find(const TlsType& type, ae::EventLoop& loop);
  LoopState(const TlsType& type, ae::EventLoop& loop, ConnectionSet& set);
  ~LoopState() override;

  ae::EventLoop& loop() const noexcept { return loop_; }
  ReadyList& ready() noexcept { return ready_; }  ///< handlers that are due
  ReadyList& steps() noexcept { return steps_; }  ///< handshakes that can go on
  ReadyList& held() noexcept { return held_; }    ///< to be flushed before the loop sleeps
  /// Whether another handshake may go on in this iteration: a flood of them leaves the loop to the
  /// connections that are established.
  bool another_step() noexcept;

  void warm(Warm& connection) noexcept {
    connection.in_use = true;
    if (!connection.linked()) start_sweeping(connection);
  }

  /// Room to gather a record in; for one call at a time.
  std::array<char, Engine::kRecord>& scratch() noexcept { return scratch_; }
  Counters counters;

  void add(Acceptor& acceptor) noexcept;

  bool has_pending() const override { return ready_.has_pending() || steps_.has_pending(); }
  std::size_t process_pending() override;
  void flush() override { held_.process_all(); }

 private:
  struct Head final : Warm {};
  void start_sweeping(Warm& connection) noexcept;
  ae::Duration sweep();

  const TlsType& type_;
  ae::EventLoop& loop_;
  ConnectionSet& set_;
  ReadyList ready_{loop_}, steps_{loop_}, held_{loop_};
  ae::TimePoint steps_end_{};  // zero: none was made in this iteration
  Head warm_;
  ae::TimerId sweeper_ = 0;
  friend class Acceptor;
  Acceptor* acceptors_ = nullptr;
  std::array<char, Engine::kRecord> scratch_;
};

}}}  // namespace conn::tls
