// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Carries a connection by TLS on top of a connection of any other transport.

#include <list>
#include <memory>
#include <optional>

#include "ae/abi.h"
#include "conn/connection.h"
#include "conn/endpoint.h"
#include "conn/spi/queued_carrier.h"
#include "conn/tls/context.h"
#include "conn/tls/engine/engine.h"
#include "conn/tls/loop_state.h"

namespace conn { inline namespace AECONN_ABI { namespace tls {

class TlsCarrier;
class TlsType;

/// Owns connections while their handshakes run. Both functions may close the connection.
class HandshakeOwner {
 public:
  virtual void finished(TlsCarrier& carrier) = 0;
  virtual void failed(TlsCarrier& carrier, const Failure& failure) = 0;

 protected:
  virtual ~HandshakeOwner() = default;
};

class TlsCarrier final : public QueuedCarrier, private Wire, private Warm {
 public:
  TlsCarrier(const TlsType& type, LoopState& shared);
  ~TlsCarrier() override {
    if (aborts()) cut();
  }

  /// Begins the handshake on `below`, which must be connected. At the end it runs the connect
  /// handler or, if there is an acceptor, finished() or failed() of that. Throws Error if the
  /// context cannot serve the role.
  void begin(ConnectionPtr below, Role role, std::shared_ptr<const Context> context,
             const std::string& name, HandshakeOwner* acceptor);
  /// The acceptor has handed this connection over, or is gone.
  void forget_acceptor() noexcept { acceptor_ = nullptr; }
  ae::TimePoint began() const noexcept { return began_; }
  /// Fails the handshake to make room for another one (max-handshakes).
  void evict();
  std::list<ConnectionPtr>::iterator place;  ///< position in the acceptor's list

  int fd() const noexcept override { return below_ ? below_->fd() : -1; }
  std::string local_address() const override { return below_ ? below_->local_address() : ""; }
  std::string peer_address() const override { return below_ ? below_->peer_address() : ""; }
  std::optional<bool> is_local() const override;
  std::vector<std::pair<std::string, std::string>> info() const override;
  std::string peer_certificate() const override;
  std::string peer_user() const override;
  const Failure& why_ended() const noexcept override;

  void connect(const Endpoint& to) override;
  void connect_blocking(const Endpoint& to, ae::TimePoint deadline) override;
  ssize_t read(void* buffer, std::size_t size) override;
  ssize_t writev(const iovec* vectors, int count) override;
  bool sends_in_place(const Outgoing&) const noexcept override { return false; }
  void interest_changed() override;
  std::string path() const override;
  int shutdown() override;
  int shutdown_both() override;
  void close() noexcept override;
  bool wait_for(ae::Mask direction, ae::TimePoint deadline) override;
  bool flush(ae::TimePoint until) noexcept override;
  bool drain(ae::TimePoint until) noexcept override;
  ae::Duration linger() const noexcept override { return settings().linger; }
  ae::Duration end_linger() const noexcept override;
  void abandon() noexcept override;
  bool leave(ae::EventLoop* to) override;
  bool join(ae::EventLoop& loop) override;

 private:
  /// Queued in the loop's list of handshakes that can proceed.
  struct Step final : ReadyItem {
    explicit Step(TlsCarrier& its) : carrier(its) {}
    std::size_t run_ready() override;
    TlsCarrier& carrier;
  };

  /// Queued in the loop's list of connections whose last handshake flight is held back, to be sent
  /// together with the first data.
  struct Held final : ReadyItem {
    explicit Held(TlsCarrier& its) : carrier(its) {}
    std::size_t run_ready() override;
    TlsCarrier& carrier;
  };

  using Handler = Connection::Handler;
  const TlsType& tls_type() const noexcept;
  Carrier& lower() const noexcept;  ///< the carrier of the connection below
  LoopState& shared();
  const Settings& settings() const noexcept { return context_->settings(); }

  // --- the handshake: carrier_handshake.cc ---
  bool handshaking() const noexcept { return began_ != ae::TimePoint{}; }
  bool prepare(const Endpoint& to);
  void below_connected();
  void make_engine(Role role);
  void begin_clock(ae::Duration timeout);
  void start_handshake();
  void step();
  void succeed();
  void fail_handshake(const Failure& failure);
  std::string why_not_resumed() const;
  Failure handshake_failure() const;
  Failure timeout_failure() const;
  void end_handshake() noexcept;

  // --- data ---
  ssize_t receive(void* buffer, std::size_t size) override;
  ssize_t transmit(const void* buffer, std::size_t size) override;
  ssize_t transmit_record(std::uint8_t type, const void* buffer, std::size_t size) override;
  void touch();
  void cool() override { engine_->release_buffers(); }
  bool readable() const override;
  bool ready_to_read() override;
  bool writable() const override;
  bool stalled();
  void wait_below(bool reading, bool writing, ae::TimePoint deadline);
  void below_readable();
  void below_writable();
  void below_gone();
  void end_below();
  void discard();
  void watch_below();
  void go_on();
  int die(const char* what);
  const Failure& why_below() const noexcept;
  ssize_t encrypt(const char* bytes, std::size_t size);
  ssize_t encrypt_gathered(const iovec* vectors, int count);
  ssize_t pass_to_kernel(const iovec* vectors, int count);
  void cut() noexcept;
  void finish_close() noexcept;
  void leave_loop() noexcept;

  LoopState* shared_;                       // null while moving to another loop and after the end
  std::shared_ptr<const Context> context_;  // must outlive the engine
  ConnectionPtr below_;
  std::unique_ptr<Engine> engine_;
  HandshakeOwner* acceptor_ = nullptr;
  Step step_{*this};
  Held held_{*this};
  ae::TimePoint connect_by_ = ae::TimePoint::max();  // deadline of both layers
  ae::TimePoint began_{};                            // start of the handshake; zero when none runs
  ae::TimerId timer_ = 0;         // connect or handshake time-out; after close(), linger
  Endpoint target_;               // of connect(), for the layer below
  std::string peer_name_;         // name that a client checks the certificate against
  ae::Mask watched_ = ae::kNone;  // events requested from the connection below
  bool watches_close_ = false;    // a close handler is set on the connection below
  bool below_gone_ = false;       // its end is known: only a failure would be new
  bool read_ended_ = false;       // the peer's close_notify has been read
  bool write_ended_ = false;      // our close_notify has been sent or is due
  bool step_waits_ = false;       // for the next iteration: the time for handshakes is used up
  bool fresh_ = false;            // the handshake is over: a read handler is about to be set
  bool input_finished_ = false;   // while lingering: no more input can arrive
  bool below_full_ = false;       // kernel TLS: the socket did not take all that was written
  bool ends_below_ = false;       // shutdown_both(): after close_notify, end the one below too
};

}}}  // namespace conn::tls
