// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The connection below a TLS connection. The class Below hosts its Carrier (the transport's part,
// which moves bytes). It is also the Wire through which the TLS engine sends and receives
// ciphertext, and it passes the Carrier's events on to the TLS connection.

#include <memory>
#include <string>

#include "ae/abi.h"
#include "conn/connection.h"
#include "conn/core/connection_base.h"
#include "conn/tls/engine/wire.h"

namespace conn { inline namespace AECONN_ABI { namespace tls {

/// Owns the connection below TLS, of any transport: take() gives it the Carrier (the transport's
/// part), whose events it handles. In a forked child all reads and writes of ciphertext fail: TLS
/// numbers its records; parent and child would encrypt different data with the same numbers.
class Below final : public ConnectionBase, public Wire {
 public:
  /// Receives the events of the connection below: implemented by the TLS connection above it.
  class User {
   public:
    /// Called when connect() has succeeded or failed; state() says which.
    virtual void below_connected() = 0;
    /// Called when ciphertext can be read; only after it was requested with watch().
    virtual void below_readable() = 0;
    /// Called when the layer below TLS accepts bytes again; only after it was requested with
    /// watch().
    virtual void below_writable() = 0;

   protected:
    explicit User(const Carrier& above) noexcept : above_(above) {}
    virtual ~User() = default;

   private:
    friend class Below;
    // Carrier of the TLS connection. Its host (the connection) is notified when the connection
    // below TLS fails or has closed.
    const Carrier& above_;
  };

  explicit Below(User* user = nullptr) noexcept : user_(user) {}
  Below(const Below&) = delete;
  Below& operator=(const Below&) = delete;
  ~Below() override;

  /// Takes over the Carrier and the state of `connection`, whose handlers are removed. Throws like
  /// ConnectionCore::hand_over(): Error if output waits, or std::bad_alloc.
  void take(ConnectionPtr connection);
  /// The Carrier of the connection below TLS; null if there is none or close() was called.
  Carrier* open() const noexcept { return closing() ? nullptr : carrier_.get(); }
  /// Whether there is a connection below TLS whose Carrier (the transport's part) is still needed:
  /// it is in use, or lingers after close().
  bool exists() const noexcept { return carrier_ != nullptr && ending_ != Ending::kReleased; }
  Carrier& carrier() const noexcept { return *carrier_; }
  using ConnectionBase::gone;

  void connect(const Endpoint& to);  ///< starts to connect the Carrier; throws std::bad_alloc
  /// Connects the Carrier, blocking until `deadline` at most. Returns whether it is connected; if
  /// not, failure() has the reason.
  bool connect_blocking(const Endpoint& to, ae::TimePoint deadline);

  // --- reading and writing bytes -----------------------------------------------------------------
  ssize_t receive(void* buffer, std::size_t size) override;
  ssize_t transmit(const void* buffer, std::size_t size) override;
  ssize_t transmit_record(std::uint8_t type, const void* buffer, std::size_t size) override;
  /// For kernel TLS: writes plain text, which the socket encrypts. Returns what writev(2) would
  /// return.
  ssize_t write_plain(const iovec* vectors, int count);
  /// Whether bytes that were read from the connection before take() took it over are still unread;
  /// no event announces them.
  bool has_early_input() const noexcept { return !early_.empty(); }
  /// Whether the last write_plain() took only a part of the bytes, so that the next write must wait
  /// for an event.
  bool full() const noexcept { return full_; }
  void try_again() noexcept { full_ = false; }
  /// Whether read events are requested and nothing else is needed: no write waits for an event, and
  /// the peer has not gone.
  bool is_quiet() const noexcept {
    return state_ == State::kConnected && wanted_.read && !wanted_.write && !full_ && !peer_gone_ &&
           !inherited();
  }

  // --- events of the Carrier ---------------------------------------------------------------------
  /// Requests read and write events of the Carrier, as `wanted` says. Also requests a report of the
  /// peer's end if the connection above waits for that. Throws std::bad_alloc.
  void watch(ae::Mask wanted);

  // Move the Carrier to another loop, like the functions of Carrier with the same names. If there
  // is no Carrier, can_move() returns false; leave() and join() return true, because there is
  // nothing to do.
  bool can_move() const noexcept;
  bool leave(ae::EventLoop* to);
  bool join(ae::EventLoop& loop);

  // --- closing -----------------------------------------------------------------------------------
  void shutdown_both();
  /// Closes the Carrier; once it is done, the closing TLS connection above is released.
  void close(bool abort) noexcept;
  /// Marks the Carrier as aborted, for a TLS connection that is destroyed without close().
  void abort_at_once() noexcept { aborts_ = true; }
  /// Like Carrier::abandon(): frees what depends on the loop, which is being destroyed.
  void abandon() noexcept;
  ae::Duration end_linger() const noexcept;
  bool drain(ae::TimePoint until) noexcept;

  // Overrides of CarrierHost, called by the Carrier.
  bool wants_close() const noexcept override;
  void set_origin(Origin origin) override;
  void path_changed() noexcept override;
  Alive run_connect_handler() override;
  Alive run_read_handler() override;
  Alive run_write_handler() override;
  void references_done(std::size_t, std::error_code) noexcept override {}

 private:
  void state_changed(State from) noexcept override;
  void peer_gone_changed() noexcept override;
  void released() noexcept override;
  const Origin* origin() const noexcept override { return origin_.get(); }
  CarrierHost* above() const noexcept { return user_ ? &user_->above_.host() : nullptr; }
  bool cut_off() const noexcept;

  User* const user_;
  // Bytes that were read from the connection before take() took it over. receive() returns them
  // before it reads the Carrier.
  std::string early_;
  std::unique_ptr<const Origin> origin_;
  bool watches_close_ = false;  // what wants_close() returned at the last watch()
  bool full_ = false;
};

}}}  // namespace conn::tls
