// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Establishes a TLS connection, from connect() or begin() until the handshake is over: connects the
// layer below, runs the handshake in steps from the loop, or blocking, under a time-out, and says
// why it failed. A connection has this object only meanwhile.
//
//   from         to           when
//   kConnecting  kRunning     the connection below is connected, and the engine exists
//   kRunning     kPostponed   the time for handshakes of this iteration is used up
//   kPostponed   kRunning     its turn has come
//
//   in stage     engine   time-out             input of the connection below
//   kConnecting  no       connect-timeout      is not wanted
//   kRunning     yes      handshake-timeout    queues the next step
//   kPostponed   yes      handshake-timeout    is left there: the next step is queued already

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

namespace conn { inline namespace AECONN_ABI { namespace tls {

class Handshake;
class LoopState;
class TlsType;

/// A connection whose handshake its acceptor owns. `handshake` is null once it is over, also after
/// the end of the loop.
struct OwnedHandshake {
  ConnectionPtr connection;
  Handshake* handshake = nullptr;
};

/// Owns connections while their handshakes run. Both functions may close the connection.
class HandshakeOwner {
 public:
  using Place = std::list<OwnedHandshake>::iterator;
  virtual void finished(Place place) = 0;
  virtual void failed(Place place, const Failure& failure) = 0;

 protected:
  virtual ~HandshakeOwner() = default;
};

class Handshake final : private ReadyItem {
 public:
  enum class Stage : std::uint8_t { kConnecting, kRunning, kPostponed };

  static constexpr bool allowed(Stage from, Stage to) {
    using enum Stage;
    switch (from) {  // no default: the compiler warns about a missing stage
      case kConnecting:
      case kPostponed:
        return to == kRunning;
      case kRunning:
        return to == kPostponed;
    }
    return false;
  }

  /// The connection that is to be established.
  class Client {
   public:
    /// It is over: established, or failed for this reason. Destroys the handshake.
    virtual void handshake_over(Failure failure) = 0;
    /// The result of wanted() may have changed.
    virtual void go_on() = 0;

   protected:
    ~Client() = default;
  };

  /// Whom to tell in the end, apart from the client.
  struct Keeper {
    HandshakeOwner* owner = nullptr;
    HandshakeOwner::Place place;
  };

  /// The loop stays the same until the end.
  Handshake(Client& client, Session& session, const TlsType& type, LoopState& shared) noexcept
      : client_(client), session_(session), type_(type), shared_(shared) {}
  ~Handshake() override;

  // One of these begins, once.
  /// Connects the layer below, then begins as a client. Completes from the loop, or fails at once.
  void connect(const Endpoint& to);
  /// As connect(), and waits until `deadline` at the latest. Does not tell the client, but returns
  /// the failure, or an empty one. Throws std::bad_alloc.
  Failure run(const Endpoint& to, ae::TimePoint deadline);
  /// The session has a connection below that is connected. `name` is what a client checks the
  /// certificate against. The caller then requests the wanted() events. Throws Error if the context
  /// cannot serve the role.
  void begin(Role role, const std::string& name, const Keeper& keeper);

  /// Events of the connection below that are needed.
  ae::Mask wanted() const noexcept;
  /// The connection below is connected, or that failed.
  void below_connected();
  /// An event of the connection below, or a write, may let it proceed: queues a step.
  void proceed();
  /// In a forked child it does not proceed.
  void leave_to_parent() noexcept { unqueue(); }

  void fail(Failure failure);
  /// Fails it to make room for another one (max-handshakes).
  void evict();
  ae::TimePoint began() const noexcept { return began_; }
  const Keeper& keeper() const noexcept { return keeper_; }
  /// The owner is gone.
  void forget_owner() noexcept { keeper_.owner = nullptr; }

 private:
  std::size_t run_ready() override;
  void move_to(Stage next) noexcept;
  Failure prepare(const Endpoint& to);
  void set_clock(ae::Duration timeout);
  void start(Role role);
  void step();
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
  ae::TimePoint connect_by_{};  // deadline of both layers
  ae::TimePoint began_{};       // start of the handshake proper; zero before
  ae::TimerId timer_ = 0;
  Endpoint target_;        // of connect(), for the layer below
  std::string peer_name_;  // name that a client checks the certificate against
};

}}}  // namespace conn::tls
