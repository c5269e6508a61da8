// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// One TLS connection as a machine without a descriptor: ciphertext comes from and goes to a Wire,
// which never blocks; plain text goes in and out by calls. It knows no loop, no clock and no
// connection, so tests and fuzzers drive it over memory.
//
// What the wire does not take is kept here (one record, and answers of the protocol's own up to
// kMostUnsent), so OpenSSL never has a half-written record to be retried: what write() took is as
// good as sent.

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "ae/abi.h"
#include "conn/error.h"
#include "conn/tls/engine/errc.h"
#include "conn/tls/engine/openssl.h"
#include "conn/tls/engine/role.h"

namespace conn { inline namespace AECONN_ABI { namespace tls {

/// Where the ciphertext goes. Both mean what read(2) and write(2) on a non-blocking socket mean.
class Wire {
 public:
  virtual ssize_t receive(void* buffer, std::size_t size) = 0;
  virtual ssize_t transmit(const void* buffer, std::size_t size) = 0;
  /// Only with kernel TLS: a record that is not data, for the kernel to encrypt.
  virtual ssize_t transmit_record(std::uint8_t type, const void* buffer, std::size_t size) = 0;

 protected:
  ~Wire() = default;
};

class Engine {
 public:
  static constexpr std::size_t kRecord = 16384;  ///< plain bytes of the largest record
  /// With this much unsent nothing more is read: it would only call for more answers.
  static constexpr std::size_t kMostUnsent = 2 * kRecord;

  /// For kernel TLS `socket` is the descriptor under the wire, else -1. Throws std::bad_alloc.
  Engine(SSL_CTX* context, Role role, Wire& wire, int socket = -1);
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;
  ~Engine();

  // --- handshake ---------------------------------------------------------------------------------
  enum class Step { kDone, kWantRead, kFailed };
  Step handshake();
  /// What a handshake says last (tickets, or in TLS 1.2 its end) then waits for company: for the
  /// next write(), close_notify() or flush(). Not with kernel TLS.
  void hold_last_flight() noexcept { may_hold_ = socket_ == nullptr; }
  /// Something waits so.
  bool holds() const noexcept { return hold_ && !unsent_.empty(); }

  // --- data --------------------------------------------------------------------------------------
  /// As read(2): bytes; 0 after close_notify; -1 with EAGAIN, or with failed() true. Where a write
  /// to the wire failed, what the peer had sent comes first, as far as the wire has it.
  ssize_t read(void* buffer, std::size_t size);
  /// Encrypts one record, of the first kRecord bytes at most, and hands it to the wire. The bytes
  /// it took, fewer if the peer asked for small records; -1 with EAGAIN while unsent() is not 0 or
  /// write_needs_read(), or with failed() true.
  ssize_t write(const void* buffer, std::size_t size);
  /// Whether read() would not say EAGAIN, as far as it is known (only_maybe()). With `ask_wire` the
  /// wire is read if need be.
  bool look(bool ask_wire);
  /// The same, as far as it is known without looking.
  bool readable() const;
  /// readable() says only that nobody has looked: read() may say EAGAIN after all.
  bool only_maybe() const { return maybe_more_ && !surely_readable(); }
  /// In the middle of a message of the peer's (a ticket, a KeyUpdate) TLS can send nothing.
  bool write_needs_read() const;
  /// Sends close_notify, as soon as that is possible; write() is over then.
  void close_notify();
  /// Offers the wire what it did not take before. True if nothing is left.
  bool flush();
  /// What the wire did not take.
  std::size_t unsent() const noexcept { return hold_ ? 0 : unsent_.size() - sent_; }
  /// Somebody else wrote to the wire (kernel TLS) and failed.
  void on_wire_failure();
  /// Gives the buffers back that an idle connection does not need.
  void release_buffers();

  // --- facts -------------------------------------------------------------------------------------
  bool failed() const noexcept { return static_cast<bool>(failure_); }
  /// read() gives nothing more, also of what came before the failure.
  bool reading_over() const noexcept { return reading_over_; }
  /// The wire failed: it knows why.
  bool wire_failed() const noexcept { return wire_failed_; }
  const Failure& failure() const noexcept { return failure_; }
  bool ended() const noexcept { return ended_; }  ///< close_notify has come
  bool kernel_sends() const noexcept { return kernel_sends_; }
  bool kernel_receives() const noexcept { return kernel_receives_; }
  SSL* ssl() const noexcept { return ssl_.get(); }
  static Engine& of(const SSL* ssl);

  // --- from OpenSSL's callbacks ------------------------------------------------------------------
  void on_bad_certificate(X509_STORE_CTX* store);
  void on_message(bool outgoing, int content_type, int message);
  std::string wanted_name;   ///< whom a client expects, for sentences
  std::string session_name;  ///< what a client's sessions are kept under

 private:
  friend class EngineBio;
  void fail(int result, bool in_handshake);
  std::string words_of(unsigned long error, int result, bool in_handshake) const;
  bool goes_on(int result);
  void refuse_plain_text();
  void begin_reading(std::size_t size);
  void pay_close_notify();
  void wire_failed(int err) noexcept;
  bool surely_readable() const;
  bool has_unsent() const noexcept { return unsent() != 0; }
  long wire_read(char* buffer, std::size_t size);
  std::size_t wire_write(const char* bytes, std::size_t size);
  bool keep(const char* bytes, std::size_t size);
  ssize_t offer(std::uint8_t type, const char* bytes, std::size_t size);

  Wire& wire_;
  BIO* socket_ = nullptr;  // knows how to give the keys to the kernel
  SslPtr ssl_;
  std::vector<char> unsent_;
  std::size_t sent_ = 0;          // of unsent_
  std::uint8_t record_type_ = 0;  // not 0: the next write is this record, for the kernel to wrap
  std::uint8_t unsent_type_ = 0;  // the same for unsent_
  bool may_hold_ = false;
  bool spoke_ = false;      // handshake() ran before
  bool hold_ = false;       // what is in unsent_ was not offered yet
  std::size_t budget_ = 0;  // bytes that this call may still take from the wire
  bool drained_ = false;    // the wire has nothing more for now
  bool starved_ = false;    // OpenSSL asked in vain since this was cleared
  bool paused_ = false;     // so it did, but of our own will
  bool wire_ended_ = false, wire_failed_ = false;
  int wire_errno_ = 0;
  bool ended_ = false;
  bool reading_over_ = false;  // it failed, and nothing of what came before can be read
  bool maybe_more_ = false;    // we stopped looking, for others' sake
  bool established_ = false;
  bool kernel_sends_ = false, kernel_receives_ = false;
  std::uint64_t messages_ = 0;         // of the handshake protocol, since messages_from_
  std::uint64_t plain_both_ways_ = 0;  // bytes read and written
  std::uint64_t messages_from_ = 0;    // plain_both_ways_ when messages_ was 0
  Failure objection_;                  // to what a message says; ends the connection
  bool write_blocked_ = false;         // write() found a message unfinished
  bool close_owed_ = false;            // so did close_notify()
  std::string bad_certificate_;
  Failure failure_;
};

}}}  // namespace conn::tls
