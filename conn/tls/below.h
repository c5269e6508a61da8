// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// What a TLS connection is carried by: the host of the carrier below it, which is the wire of its
// engine and passes its events on.

#include <memory>
#include <string>

#include "ae/abi.h"
#include "conn/connection.h"
#include "conn/core/connection_base.h"
#include "conn/tls/engine/wire.h"

namespace conn { inline namespace AECONN_ABI { namespace tls {

/// The host of a carrier of any transport, from take() on. A forked child has no wire: records are
/// numbered, and parent and child would encrypt with the same numbers.
class Below final : public ConnectionBase, public Wire {
 public:
  /// What is above.
  class User {
   public:
    virtual void below_connected() = 0;  ///< connect() is over: see state()
    virtual void below_readable() = 0;   ///< if it was requested
    virtual void below_writable() = 0;   ///< if it was requested

   protected:
    explicit User(const Carrier& above) noexcept : above_(above) {}
    virtual ~User() = default;

   private:
    friend class Below;
    const Carrier& above_;  // its connection learns of the end, and is released if it closes
  };

  explicit Below(User* user = nullptr) noexcept : user_(user) {}
  Below(const Below&) = delete;
  Below& operator=(const Below&) = delete;
  ~Below() override;

  /// Continues what `connection` was, whose handlers are removed. As ConnectionCore::hand_over().
  void take(ConnectionPtr connection);
  /// Whether it has a carrier that was not closed.
  explicit operator bool() const noexcept { return carrier_ != nullptr && !closing(); }
  Carrier* open() const noexcept { return closing() ? nullptr : carrier_.get(); }  ///< or null
  /// Whether there is a carrier that still does something: until it has closed.
  bool exists() const noexcept { return carrier_ != nullptr && ending_ != Ending::kReleased; }
  Carrier& carrier() const noexcept { return *carrier_; }
  using ConnectionBase::gone;

  void connect(const Endpoint& to);  ///< throws std::bad_alloc
  /// False with failure().
  bool connect_blocking(const Endpoint& to, ae::TimePoint deadline);

  // --- bytes -------------------------------------------------------------------------------------
  ssize_t receive(void* buffer, std::size_t size) override;
  ssize_t transmit(const void* buffer, std::size_t size) override;
  ssize_t transmit_record(std::uint8_t type, const void* buffer, std::size_t size) override;
  /// Kernel TLS: writes plain text, which the socket encrypts. As writev(2).
  ssize_t write_plain(const iovec* vectors, int count);
  /// Whether it holds input that no event announces: the connection had been read ahead.
  bool has_early_input() const noexcept { return !early_.empty(); }
  /// write_plain() was short: it waits for an event.
  bool full() const noexcept { return full_; }
  void try_again() noexcept { full_ = false; }

  // --- events ------------------------------------------------------------------------------------
  /// Requests these events, and to learn of the peer's end if the connection above waits for that.
  /// Throws std::bad_alloc.
  void watch(ae::Mask wanted);
  /// Waits until it can read or write, as requested. If both are, either may come first.
  void wait(bool reading, bool writing, ae::TimePoint deadline);

  // As those of Carrier, where there is one that was not closed.
  bool leave(ae::EventLoop* to);
  bool join(ae::EventLoop& loop);

  // --- the end -----------------------------------------------------------------------------------
  void shutdown_both();
  void close(bool abort) noexcept;  ///< releases the connection above, at once or later
  /// Its loop will not call close().
  void abort_at_once() noexcept { aborts_ = true; }
  void abandon() noexcept;  ///< as Carrier::abandon()
  ae::Duration end_linger() const noexcept;
  bool drain(ae::TimePoint until) noexcept;

  // From CarrierHost, for the carrier.
  bool wants_close() const noexcept override;
  void set_origin(Origin origin) override;
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
  ssize_t write_all(const iovec* vectors, int count, std::size_t size);

  User* const user_;
  std::string early_;  // input that comes before what the carrier has
  std::unique_ptr<const Origin> origin_;
  bool watches_close_ = false;  // of the last watch()
  bool full_ = false;
};

}}}  // namespace conn::tls
