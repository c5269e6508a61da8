// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The state that a TLS type keeps for one loop: handshakes that can proceed, handlers that are due,
// counters, and the connections whose buffers are released when idle.

#include <array>
#include <span>

#include "ae/abi.h"
#include "ae/event_loop.h"
#include "conn/core/connection_set.h"
#include "conn/kit/ready_list.h"
#include "conn/tls/engine/engine.h"
#include "conn/tls/step_threads.h"

namespace conn { inline namespace AECONN_ABI { namespace tls {

struct Counters {
  std::uint64_t handshakes = 0, resumed = 0, handshake_failures = 0, handshake_timeouts = 0;
  /// Handshakes ended early to make room for others (option max-handshakes).
  std::uint64_t evicted = 0;
  /// How often changed files were read again (reload=auto), and how often that has failed.
  std::uint64_t reloads = 0, reload_failures = 0;
  /// Steps of handshakes that threads have run (option handshake-threads).
  std::uint64_t thread_steps = 0;
  std::uint64_t handshaking = 0;  ///< number of handshakes running now
  /// Plaintext bytes copied so that several pieces of data share one record.
  std::uint64_t bytes_gathered = 0;
  /// Connections failed because the peer sent too many handshake messages without data.
  std::uint64_t message_floods = 0;
};

/// Base of a connection's entry in the loop's list of recently used connections. Each of them has
/// buffers that the loop releases, by cool(), once the connection is idle.
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
  /// True if the connection was used since the loop last looked for idle ones.
  bool in_use = false;

 protected:
  friend class LoopState;
  virtual void cool() {}

 private:
  Warm* prev_ = this;
  Warm* next_ = this;
};

class LoopState final : public ae::LoopLocal, public ae::Source {
 public:
  static LoopState& of(const ConnectionType& type, ae::EventLoop& loop);
  /// Returns the state that the TLS type `type` keeps for `loop`; null if there is none yet.
  static LoopState* find(const ConnectionType& type, ae::EventLoop& loop);
  LoopState(const ConnectionType& type, ae::EventLoop& loop, ConnectionSet& set);
  ~LoopState() override;

  ae::EventLoop& loop() const noexcept { return loop_; }
  /// Connections whose read or write handlers are due.
  ReadyList& ready() noexcept { return ready_; }
  ReadyList& steps() noexcept { return steps_; }  ///< handshakes whose next step is due
  /// Connections whose held-back handshake messages are sent before the loop sleeps.
  ReadyList& held() noexcept { return held_; }
  /// Returns whether another handshake may proceed in this iteration. The time for handshakes is
  /// limited, so that a flood of them leaves time for established connections.
  bool another_step() noexcept;

  /// The threads that run steps of handshakes (option handshake-threads).
  StepThreads& threads() noexcept { return threads_; }

  void warm(Warm& connection) noexcept {
    connection.in_use = true;
    if (!connection.linked()) start_sweeping(connection);
  }

  /// Returns a buffer for assembling one record. All connections of the loop share it, so its
  /// contents are valid only during one call.
  std::array<char, Engine::kRecord>& scratch() noexcept { return scratch_; }
  /// Returns a buffer for the ciphertext of many records. All connections of the loop share it, so
  /// its contents are valid only during one call.
  std::span<char> room() noexcept { return room_; }
  Counters counters;

  bool has_pending() const override { return ready_.has_pending() || steps_.has_pending(); }
  std::size_t process_pending() override;
  void flush() override {
    held_.process_all();
    if (!has_pending() && held_.empty() && steps_end_ == ae::TimePoint{}) rest();
  }

 private:
  struct Head final : Warm {};
  void start_sweeping(Warm& connection) noexcept;
  ae::Duration sweep();

  const ConnectionType& type_;
  ae::EventLoop& loop_;
  ConnectionSet& set_;
  StepThreads threads_{loop_};
  ReadyList ready_{loop_, *this}, steps_{loop_, *this}, held_{loop_, *this};
  // The time from which no further handshake step runs in this iteration; zero before the
  // iteration's first step.
  ae::TimePoint steps_end_{};
  Head warm_;
  // Position of a sweep (search for idle connections) in the list of recently used connections:
  // those before this entry are still to be looked at.
  Head swept_;
  ae::TimerId sweeper_ = 0;
  std::array<char, Engine::kRecord> scratch_;
  std::array<char, Engine::kRoom> room_;
};

}}}  // namespace conn::tls
