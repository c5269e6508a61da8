// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// How a TLS connection ends: each direction by a close_notify message, then the connection below.
//
//   from          to            when
//   kOpen         kReadEnded    the peer's close_notify was read
//   kOpen         kWriteEnded   shutdown(): our close_notify is sent or due
//   kReadEnded, kWriteEnded
//                 kBothEnded    the other direction has ended too
//   kWriteEnded, kBothEnded
//                 kEndsBelow    shutdown_both()
//   kEndsBelow    kBelowEnded   the connection below has taken close_notify
//   each of these kLingering    close() with output that the connection below did not take
//   kLingering    kDeaf         no more input can arrive
//   each of these kClosed       all output was taken, linger is over, or abort()
//
//   in state      read()        write()   the connection below
//   kOpen         gives data    allowed
//   kReadEnded    ended         allowed
//   kWriteEnded   gives data    EPIPE
//   kBothEnded    ended         EPIPE
//   kEndsBelow    refused       EPIPE     is ended as soon as nothing is left to send
//   kBelowEnded   refused       EPIPE     has been ended, so that a peer that does not read notices
//   kLingering    -             -         takes output; its input is discarded
//   kDeaf         -             -         takes output
//   kClosed       -             -         is gone

#include <array>
#include <cstddef>
#include <cstdint>

#include "ae/abi.h"
#include "ae/event_loop.h"
#include "conn/spi/carrier.h"
#include "conn/tls/engine/engine.h"
#include "conn/tls/session.h"

namespace conn { inline namespace AECONN_ABI { namespace tls {

class Closing {
 public:
  enum class State : std::uint8_t {
    kOpen,
    kReadEnded,
    kWriteEnded,
    kBothEnded,
    kEndsBelow,
    kBelowEnded,
    kLingering,
    kDeaf,
    kClosed
  };

  static constexpr bool allowed(State from, State to) {
    using enum State;
    if (to == kClosed) return from != kClosed;
    switch (from) {  // there is no default, so that the compiler warns about a missing state
      case kOpen:
        return to == kReadEnded || to == kWriteEnded || to == kLingering;
      case kReadEnded:
        return to == kBothEnded || to == kLingering;
      case kWriteEnded:
        return to == kBothEnded || to == kEndsBelow || to == kLingering;
      case kBothEnded:
        return to == kEndsBelow || to == kLingering;
      case kEndsBelow:
        return to == kBelowEnded || to == kLingering;
      case kBelowEnded:
        return to == kLingering;
      case kLingering:
        return to == kDeaf;
      case kDeaf:
      case kClosed:
        return false;
    }
    return false;
  }

  explicit Closing(Session& session) noexcept : session_(session) {}
  Closing(const Closing&) = delete;
  Closing& operator=(const Closing&) = delete;

  State state() const noexcept { return state_; }
  bool read_ended() const noexcept {
    return state_ == State::kReadEnded || state_ == State::kBothEnded;
  }
  bool write_ended() const noexcept { return state_ >= State::kWriteEnded; }

  // --- while the program owns the connection -----------------------------------------------------
  // Record that one direction has ended (end_writing() also sends close_notify). Return whether
  // both directions have ended now.
  bool end_reading() noexcept;
  bool end_writing();
  /// Ends the connection below TLS as soon as close_notify has been sent. To be called after
  /// end_writing().
  void end_below_too();
  /// Must be called when output was passed to the connection below TLS. In state kEndsBelow, ends
  /// that connection if no output is left.
  void output_left() {
    if (state_ == State::kEndsBelow) end_below();
  }

  // --- after Carrier::close() --------------------------------------------------------------------
  /// Sends close_notify unless it was sent before or the connection is not established. Returns
  /// whether bytes are left to send: the caller must then call linger() and request the wanted()
  /// events.
  bool begin(bool established);
  /// Starts a timer with the time of option linger. When it expires, calls finish(host), unless the
  /// caller has called that before.
  void linger(ae::EventLoop& loop, CarrierHost& host);
  /// Returns the events of the connection below TLS that lingering needs.
  ae::Mask wanted() const noexcept;
  /// Reads and discards input, so that a peer that lingers too can deliver its own output. Returns
  /// whether the result of wanted() has changed.
  bool discard(std::array<char, Engine::kRecord>& scratch);
  /// Closes the connection below TLS, whose close() delivers what is left to send and then releases
  /// this connection. After abort() no close_notify was sent, which tells the peer that the stream
  /// was cut short.
  void finish(CarrierHost& host) noexcept;
  /// Removes the timer of linger() from `loop`. To be called before the connection leaves the loop,
  /// and when the loop ends.
  void leave(ae::EventLoop* loop) noexcept;

 private:
  void move_to(State next) noexcept;
  void end_below();

  Session& session_;
  State state_ = State::kOpen;
  ae::TimerId timer_ = 0;  // timer that linger() starts; 0: none
};

}}}  // namespace conn::tls
