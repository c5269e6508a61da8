// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Establishes a TLS connection: connects the layer below, then runs the handshake, either in steps
// from the loop or blocking, within a time-out, and says why it failed. A connection has this
// object only until the handshake is over.
//
//   from         to           when
//   kConnecting  kRunning     the connection below is connected, and the engine exists
//   kRunning     kPostponed   the time for handshakes of this iteration is used up
//   kPostponed   kRunning     a later iteration has time for it
//   kRunning     kLent        a thread runs the next step (option handshake-threads)
//   kLent        kRunning     the thread has run the step, or the handshake has to end
//
//   in stage     engine   time-out             input of the connection below
//   kConnecting  no       connect-timeout      is not wanted
//   kRunning     yes      handshake-timeout    queues the next step
//   kPostponed   yes      handshake-timeout    is left there: the next step is queued already
//   kLent        used by  handshake-timeout    is left there
//                the thread

#include <cstdint>
#include <list>
#include <memory>
#include <string>

#include "ae/abi.h"
#include "ae/event_loop.h"
#include "conn/connection.h"
#include "conn/endpoint.h"
#include "conn/error.h"
#include "conn/kit/ready_list.h"
#include "conn/tls/engine/engine.h"
#include "conn/tls/session.h"
#include "conn/tls/step_threads.h"

namespace conn { inline namespace AECONN_ABI { namespace tls {

class Handshake;
class LoopState;
class TlsType;

/// A connection whose handshake is owned by an acceptor. `handshake` is null once the handshake has
/// ended or the loop was destroyed.
struct OwnedHandshake {
  ConnectionPtr connection;
  Handshake* handshake = nullptr;
};

/// Owns connections while their handshakes run. Its functions are called when the handshake of the
/// connection at `place` has succeeded or failed; both may close that connection.
class HandshakeOwner {
 public:
  using Place = std::list<OwnedHandshake>::iterator;
  virtual void finished(Place place) = 0;
  virtual void failed(Place place, const Failure& failure) = 0;

 protected:
  virtual ~HandshakeOwner() = default;
};

class Handshake final : private ReadyItem, private ThreadStep {
 public:
  enum class Stage : std::uint8_t { kConnecting, kRunning, kPostponed, kLent };

  static constexpr bool allowed(Stage from, Stage to) {
    using enum Stage;
    switch (from) {  // there is no default, so that the compiler warns about a missing stage
      case kConnecting:
      case kPostponed:
      case kLent:
        return to == kRunning;
      case kRunning:
        return to == kPostponed || to == kLent;
    }
    return false;
  }

  /// The connection that the handshake establishes.
  class Client {
   public:
    /// Called when the handshake is over. An empty Failure means that the connection is
    /// established. Destroys the Handshake.
    virtual void handshake_over(Failure failure) = 0;
    /// Called when the result of wanted() may have changed, so that the events are requested anew.
    virtual void go_on() = 0;

   protected:
    ~Client() = default;
  };

  /// The owner to be notified of the result in addition to the client; null if there is none.
  /// `place` is the connection's entry in the owner's list.
  struct Keeper {
    HandshakeOwner* owner = nullptr;
    HandshakeOwner::Place place;
  };

  /// The loop of `shared` must stay the connection's loop until the handshake is over.
  Handshake(Client& client, Session& session, const TlsType& type, LoopState& shared) noexcept
      : client_(client), session_(session), type_(type), shared_(shared) {}
  ~Handshake() override;

  // Each of the next three functions starts the handshake. Exactly one of them must be called,
  // once.
  void connect(const Endpoint& to);
  /// Like connect(), but blocks until the attempt has ended, at most until `deadline`. Returns the
  /// failure instead of reporting it to the Client; an empty Failure means success. Throws
  /// std::bad_alloc.
  Failure run(const Endpoint& to, ae::TimePoint deadline);
  /// Starts the handshake on a session whose connection below TLS is connected. A client checks the
  /// peer's certificate against `name`. The caller must then request the wanted() events. Throws
  /// Error if the context cannot serve the role.
  void begin(Role role, const std::string& name, const Keeper& keeper);

  /// Returns the events of the connection below TLS that the handshake needs.
  ae::Mask wanted() const noexcept;
  /// Must be called when the connection below TLS has become connected or has failed.
  void below_connected();
  /// Queues a step of the handshake. Called after an event of the connection below TLS or a write.
  void proceed();
  /// Removes the queued step, in a forked child: the parent continues the handshake.
  void leave_to_parent() noexcept { unqueue(); }

  void fail(Failure failure);
  /// Fails the handshake to make room for another one (option max-handshakes).
  void evict();
  ae::TimePoint began() const noexcept { return began_; }
  const Keeper& keeper() const noexcept { return keeper_; }
  /// Forgets the owner, which is being destroyed and must not be notified of the result.
  void forget_owner() noexcept { keeper_.owner = nullptr; }

 private:
  std::size_t run_ready() override;
  void run_step() noexcept override { lent_->run_step(); }
  void step_over() noexcept override;
  void move_to(Stage next) noexcept;
  Failure prepare(const Endpoint& to);
  void set_clock(ae::Duration timeout);
  void start(Role role);
  void step();
  bool lend_step();
  Engine::Step take_back();
  void recall() noexcept;
  std::string with_peer() const;
  std::string why_not_resumed() const;
  Failure result_of(Engine::Step step) const;
  Failure timeout_failure() const;

  Client& client_;
  Session& session_;
  const TlsType& type_;
  LoopState& shared_;
  Keeper keeper_;
  Stage stage_ = Stage::kConnecting;
  std::unique_ptr<Engine> lent_;  // the session's engine while a thread runs a step; else null
  // Deadline for connecting the layer below TLS and the handshake together.
  ae::TimePoint connect_by_{};
  // Time at which the TLS handshake began, after the layer below had connected; zero before that.
  ae::TimePoint began_{};
  ae::TimerId timer_ = 0;
  // The endpoint to which the layer below TLS is connected, with that layer's scheme and options.
  Endpoint target_;
  std::string peer_name_;  // name that a client checks the certificate against
};

}}}  // namespace conn::tls
