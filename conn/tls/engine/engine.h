// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// One TLS connection as a state machine without a descriptor: ciphertext is exchanged with a Wire,
// which never blocks; plain text goes in and out by calls. It depends on no loop, clock or
// Connection, so tests and fuzzers drive it over memory.
//
// Ciphertext that the wire does not take is kept here (one record, and the protocol's own replies
// up to kMostUnsent). So OpenSSL never has to retry a half-written record: bytes that write() took
// count as sent.

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

/// Carries the ciphertext. receive() and transmit() have the semantics of read(2) and write(2) on a
/// non-blocking socket.
class Wire {
 public:
  virtual ssize_t receive(void* buffer, std::size_t size) = 0;
  virtual ssize_t transmit(const void* buffer, std::size_t size) = 0;
  /// Only with kernel TLS: sends a record that is not data, which the kernel encrypts.
  virtual ssize_t transmit_record(std::uint8_t type, const void* buffer, std::size_t size) = 0;

 protected:
  ~Wire() = default;
};

class Engine {
 public:
  static constexpr std::size_t kRecord = 16384;  ///< plaintext bytes of the largest record
  /// With this many bytes unsent nothing more is read: reading would only cause more replies.
  static constexpr std::size_t kMostUnsent = 2 * kRecord;

  /// `socket`: the descriptor under the wire, for kernel TLS; else -1. Throws std::bad_alloc.
  Engine(SSL_CTX* context, Role role, Wire& wire, int socket = -1);
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;
  ~Engine();

  // --- handshake ---------------------------------------------------------------------------------
  enum class Step { kDone, kWantRead, kFailed };
  Step handshake();
  /// Holds back the last flight of the handshake (tickets, or in TLS 1.2 its end) until the next
  /// write(), close_notify() or flush(), to send both together. No effect with kernel TLS.
  void hold_last_flight() noexcept { may_hold_ = socket_ == nullptr; }
  /// Whether a flight is held back.
  bool holds() const noexcept { return hold_ && !unsent_.empty(); }

  // --- data --------------------------------------------------------------------------------------
  /// As read(2): bytes; 0 after close_notify; -1 with EAGAIN, or with failed() true. If a write to
  /// the wire failed, data that the peer had sent is returned first, as far as the wire has it.
  ssize_t read(void* buffer, std::size_t size);
  /// Encrypts one record, of the first kRecord bytes at most, and hands it to the wire. Returns the
  /// number of bytes it took, fewer if the peer asked for small records; -1 with EAGAIN while
  /// unsent() is not 0 or write_needs_read(), or with failed() true.
  ssize_t write(const void* buffer, std::size_t size);
  /// Whether read() would not return EAGAIN, as far as is known (see only_maybe()). With `ask_wire`
  /// the wire is read if necessary.
  bool look(bool ask_wire);
  /// As look(), but from what is already known: reads nothing.
  bool readable() const;
  /// readable() is true only because looking stopped early: read() may still return EAGAIN.
  bool only_maybe() const { return maybe_more_ && !surely_readable(); }
  /// Whether a write or close_notify waits for the rest of a message of the peer (a ticket, a
  /// KeyUpdate): in the middle of one TLS can send nothing.
  bool write_needs_read() const;
  /// Sends close_notify as soon as that is possible. No write() may follow.
  void close_notify();
  /// Offers the wire the bytes it did not take before. True if none is left.
  bool flush();
  /// Number of bytes the wire did not take; bytes held back do not count.
  std::size_t unsent() const noexcept { return hold_ ? 0 : unsent_.size() - sent_; }
  /// A write to the wire outside the engine (kernel TLS) failed, with the reason in errno.
  void on_wire_failure();
  /// Frees the buffers that an idle connection does not need.
  void release_buffers();

  // --- facts -------------------------------------------------------------------------------------
  bool failed() const noexcept { return static_cast<bool>(failure_); }
  /// read() returns no more data, not even data received before the failure.
  bool reading_over() const noexcept { return reading_over_; }
  /// The wire failed; it has the reason.
  bool wire_failed() const noexcept { return wire_failed_; }
  const Failure& failure() const noexcept { return failure_; }
  bool ended() const noexcept { return ended_; }  ///< the peer's close_notify was received
  bool kernel_sends() const noexcept { return kernel_sends_; }
  bool kernel_receives() const noexcept { return kernel_receives_; }
  SSL* ssl() const noexcept { return ssl_.get(); }
  static Engine& of(const SSL* ssl);

  // --- from OpenSSL's callbacks ------------------------------------------------------------------
  void on_bad_certificate(X509_STORE_CTX* store);
  void on_message(bool outgoing, int content_type, int message);
  std::string wanted_name;   ///< the peer name a client expects, for messages
  std::string session_name;  ///< the key under which a client's sessions are kept

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
  BIO* socket_ = nullptr;  // socket BIO that passes the keys to the kernel
  SslPtr ssl_;
  std::vector<char> unsent_;
  std::size_t sent_ = 0;          // bytes of unsent_ that were sent
  std::uint8_t record_type_ = 0;  // not 0: type of the next record, which the kernel encrypts
  std::uint8_t unsent_type_ = 0;  // record_type_ of unsent_
  bool may_hold_ = false;
  bool spoke_ = false;      // handshake() ran before
  bool hold_ = false;       // unsent_ is held back: the wire has not been offered it yet
  std::size_t budget_ = 0;  // bytes that this call may still read from the wire
  bool drained_ = false;    // the wire has nothing more for now
  bool starved_ = false;    // OpenSSL asked for input and the wire had none
  bool paused_ = false;     // OpenSSL asked for input and it was withheld on purpose
  bool wire_ended_ = false, wire_failed_ = false;
  int wire_errno_ = 0;
  bool ended_ = false;
  bool reading_over_ = false;  // it failed, and earlier data can no longer be read
  bool maybe_more_ = false;    // looking stopped early, to leave time for other connections
  bool established_ = false;
  bool kernel_sends_ = false, kernel_receives_ = false;
  std::uint64_t messages_ = 0;         // handshake messages received since messages_from_
  std::uint64_t plain_both_ways_ = 0;  // plaintext bytes read and written
  std::uint64_t messages_from_ = 0;    // plain_both_ways_ when messages_ was 0
  Failure objection_;                  // why a received message ends the connection
  bool write_blocked_ = false;         // write() found a message of the peer unfinished
  bool close_owed_ = false;            // close_notify is still to be sent
  std::string bad_certificate_;
  Failure failure_;
};

}}}  // namespace conn::tls
