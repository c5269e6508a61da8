// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The connection below a TLS connection: the wire of its engine, and the events that are requested
// of it.

#include "ae/abi.h"
#include "ae/core/fork.h"
#include "conn/connection.h"
#include "conn/spi/carrier.h"
#include "conn/tls/engine/wire.h"

namespace conn { inline namespace AECONN_ABI { namespace tls {

/// A connection of any transport, or none before connecting and after the end. A forked child has
/// no wire: records are numbered, and parent and child would encrypt with the same numbers.
class Below final : public Wire {
 public:
  Below() = default;
  Below(const Below&) = delete;
  Below& operator=(const Below&) = delete;

  void take(ConnectionPtr connection) noexcept { connection_ = std::move(connection); }
  explicit operator bool() const noexcept { return connection_ != nullptr; }
  Connection* operator->() const noexcept { return connection_.get(); }
  Carrier& carrier() const noexcept;  ///< of the connection

  // --- bytes -------------------------------------------------------------------------------------
  ssize_t receive(void* buffer, std::size_t size) override;
  ssize_t transmit(const void* buffer, std::size_t size) override;
  ssize_t transmit_record(std::uint8_t type, const void* buffer, std::size_t size) override;
  /// Kernel TLS: writes plain text, which the socket encrypts. As writev(2).
  ssize_t write_plain(const iovec* vectors, int count);
  /// write_plain() was short: it waits for an event.
  bool full() const noexcept { return full_; }
  void try_again() noexcept { full_ = false; }

  // --- events ------------------------------------------------------------------------------------
  /// Requests these events, which call owner.below_readable() and owner.below_writable().
  template <class Owner>
  void watch(ae::Mask wanted, Owner& owner);
  /// Requests, or not, a call of owner.below_gone() when the end of the stream is known; once it
  /// is, when a failure is known.
  template <class Owner>
  void watch_close(bool wanted, Owner& owner);
  /// owner.below_gone() was called.
  void gone() noexcept { close_watch_ = CloseWatch::kGone; }
  /// Waits until it can read or write, as requested. If both are, either may come first.
  void wait(bool reading, bool writing, ae::TimePoint deadline);

  /// As Connection::rebind() or leave(), but while handlers are set. False with errno.
  bool move(ae::EventLoop* to);

  // --- the end -----------------------------------------------------------------------------------
  void close() noexcept { connection_.reset(); }  ///< delivers what it took
  void abort() noexcept;

 private:
  /// What the close handler of the connection waits for.
  enum class CloseWatch : std::uint8_t {
    kNothing,  ///< there is none
    kEnd,      ///< the end of the stream, or a failure
    kGone,     ///< there is none; the end is known, so only a failure would be new
    kFailure   ///< a failure
  };
  static constexpr bool is_set(CloseWatch watch) noexcept {
    return watch == CloseWatch::kEnd || watch == CloseWatch::kFailure;
  }

  ConnectionPtr connection_;
  ae::Mask watched_ = ae::kNone;
  CloseWatch close_watch_ = CloseWatch::kNothing;
  bool full_ = false;
  ae::MadeHere made_here_;
};

template <class Owner>
void Below::watch(ae::Mask wanted, Owner& owner) {
  if (wanted == watched_) return;
  const ae::Mask changed = (wanted | watched_) & ~(wanted & watched_);
  using Handler = Connection::Handler;
  if ((changed & ae::kReadable) != 0) {
    connection_->set_read_handler((wanted & ae::kReadable) != 0
                                      ? Handler([&owner](Connection&) { owner.below_readable(); })
                                      : Handler());
  }
  if ((changed & ae::kWritable) != 0) {
    connection_->set_write_handler((wanted & ae::kWritable) != 0
                                       ? Handler([&owner](Connection&) { owner.below_writable(); })
                                       : Handler());
  }
  watched_ = wanted;  // only now: the calls above may throw
}

template <class Owner>
void Below::watch_close(bool wanted, Owner& owner) {
  if (wanted == is_set(close_watch_)) return;
  const bool known = close_watch_ == CloseWatch::kGone || close_watch_ == CloseWatch::kFailure;
  using Handler = Connection::Handler;
  connection_->set_close_handler(
      wanted ? Handler([&owner](Connection&) { owner.below_gone(); }) : Handler(),
      known ? CloseOn::kFailure : CloseOn::kEnd);
  if (known) {
    close_watch_ = wanted ? CloseWatch::kFailure : CloseWatch::kGone;
  } else {
    close_watch_ = wanted ? CloseWatch::kEnd : CloseWatch::kNothing;
  }
}

}}}  // namespace conn::tls
