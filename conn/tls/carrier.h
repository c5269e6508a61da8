// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// TlsCarrier moves the bytes of a TLS connection, on top of a connection of any other transport.
//
// Its parts: the Session moves bytes, the Handshake exists until the connection is established,
// Closing knows which directions have ended, LoopPlace is the connection's entry in the state that
// the loop keeps for TLS. TlsCarrier joins them and decides which handlers are due, which events of
// the connection below are needed and what a failure means.

#include <memory>
#include <optional>

#include "ae/abi.h"
#include "conn/connection.h"
#include "conn/endpoint.h"
#include "conn/spi/queued_carrier.h"
#include "conn/tls/closing.h"
#include "conn/tls/facts.h"
#include "conn/tls/handshake.h"
#include "conn/tls/loop_place.h"
#include "conn/tls/session.h"

namespace conn { inline namespace AECONN_ABI { namespace tls {

class TlsType;

class TlsCarrier final : public QueuedCarrier, public Handshake::Client, private Below::User {
 public:
  TlsCarrier(const TlsType& type, LoopState& shared);
  ~TlsCarrier() override {
    if (aborts()) session_.below().abort_at_once();
  }

  /// Starts the handshake on `below`, which must be connected. When it ends, the connect handler
  /// runs; if `keeper` has an owner, finished() or failed() of the owner is called instead. Returns
  /// the Handshake object. Throws Error if the context cannot serve the role.
  Handshake& begin(ConnectionPtr below, Role role, std::shared_ptr<const Context> context,
                   const std::string& name, const Handshake::Keeper& keeper);

  const CarrierFacts& facts() const noexcept override { return facts_; }
  const Failure& why_ended() const noexcept override;

  void connect(const Endpoint& to) override;
  void connect_blocking(const Endpoint& to, ae::TimePoint deadline) override;
  ssize_t read(void* buffer, std::size_t size) override;
  ssize_t write(const void* buffer, std::size_t size) override;
  ssize_t writev(const iovec* vectors, int count) override;
  bool sends_in_place(const Outgoing&) const noexcept override { return false; }
  void interest_changed() override;
  int shutdown() override;
  int shutdown_both() override;
  void close() noexcept override;
  bool wait_for(ae::Mask direction, ae::TimePoint deadline) override;
  bool flush(ae::TimePoint until) noexcept override;
  bool drain(ae::TimePoint until) noexcept override;
  ae::Duration linger() const noexcept override;
  ae::Duration end_linger() const noexcept override;
  ae::Duration idle_timeout() const noexcept override;
  void abandon() noexcept override;
  bool can_move() const noexcept override { return session_.below().can_move(); }
  bool leave(ae::EventLoop* to) override;
  bool join(ae::EventLoop& loop) override;

 private:
  /// Entry in the loop's list of connections whose last handshake flight is held back, to be sent
  /// together with the first data.
  struct Held final : ReadyItem {
    explicit Held(TlsCarrier& its) : carrier(its) {}
    std::size_t run_ready() override;
    TlsCarrier& carrier;
  };

  // Overrides of Below::User: events of the connection below TLS.
  void below_connected() override;
  void below_readable() override;
  void below_writable() override;

  // Overrides of Handshake::Client. go_on() calls interest_changed() and, if memory runs out in it,
  // fails the connection: it is called where nobody could try again.
  void handshake_over(Failure failure) override;
  void go_on() override;

  // Overrides of QueuedCarrier.
  bool readable() const override { return closing_.read_ended() || session_.readable(); }
  bool ready_to_read() override { return closing_.read_ended() || session_.ready_to_read(); }
  bool writable() const override { return closing_.write_ended() || session_.writable(); }

  bool is_quiet() const;
  bool refuses_write() noexcept;
  ssize_t wrote(ssize_t n);
  Handshake& new_handshake();
  int report_failure(const char* what);
  void leave_loop() noexcept;

  Session session_{this};
  const TlsFacts facts_{*this, session_};
  LoopPlace place_;
  Closing closing_{session_};
  std::unique_ptr<Handshake> handshake_;  // the running handshake; null before and after it
  Held held_{*this};
  // True once the program has written after it had read the peer's end of stream.
  bool wrote_after_end_ = false;
  // True from the end of the handshake until the first read event. Meanwhile read events stay
  // requested even without a read handler, because the program will probably set one soon.
  bool fresh_ = false;
};

}}}  // namespace conn::tls
