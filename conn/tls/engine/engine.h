// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// One TLS connection as a state machine without a descriptor: ciphertext is exchanged with a Wire
// (the interface to the connection below), which never blocks; plain text goes in and out by calls.
// It depends on no loop, clock or Connection, so tests and fuzzers drive it over memory.
//
// Ciphertext that the wire does not take is kept here (the records of one write, kMostGathered
// bytes at most, and the protocol's own replies up to kMostUnsent). So OpenSSL never has to retry a
// half-written record: bytes that write() took count as sent.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "ae/abi.h"
#include "conn/error.h"
#include "conn/tls/engine/channel.h"
#include "conn/tls/engine/errc.h"
#include "conn/tls/engine/openssl.h"
#include "conn/tls/engine/peer_check.h"
#include "conn/tls/engine/phases.h"
#include "conn/tls/engine/read_ahead_bytes.h"
#include "conn/tls/engine/role.h"
#include "conn/tls/engine/wire.h"

namespace conn { inline namespace AECONN_ABI { namespace tls {

class Engine {
 public:
  /// Maximum number of plaintext bytes in a TLS record.
  static constexpr std::size_t kRecord = 16384;
  /// If at least this many ciphertext bytes are unsent, nothing more is read from the wire
  /// (connection below TLS).
  static constexpr std::size_t kMostUnsent = Channel::kMostUnsent;

  /// Size in bytes of a room (buffer) for read() and gather(): the ciphertext of 256 KiB of data.
  /// gather() uses only a part of it.
  static constexpr std::size_t kRoom = 16 * (kRecord + 64);
  /// The largest number of ciphertext bytes that are gathered: those of 64 KiB of data and a little
  /// more. The engine keeps the bytes that the wire (connection below TLS) does not take.
  static constexpr std::size_t kMostGathered = Output::kMostGathered;

  /// `socket`: with kernel TLS the descriptor that `wire` uses, else -1. Throws std::bad_alloc.
  Engine(SSL_CTX* context, Role role, Wire& wire, int socket = -1);
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;
  ~Engine();

  // --- handshake ---------------------------------------------------------------------------------
  enum class Step { kDone, kWantRead, kFailed };
  Step handshake();
  /// Prepares a lent step: a step of the handshake that another thread runs. Reads what the wire
  /// (connection below TLS) has now, because the other thread must not use the wire. After that
  /// run_step() must be called on the other thread and then end_step() on this one; no other
  /// function may be called in between. Returns false if handshake() must be called instead: there
  /// is nothing to read, output is unsent, the handshake is over, or kernel TLS is possible (a step
  /// may then give keys to the socket). Throws std::bad_alloc.
  bool begin_lent_step();
  void run_step() noexcept;  ///< runs a handshake step; may be called on any thread
  Step end_step();           ///< sends what the step wrote; returns what handshake() would return
  /// Holds back the last flight of the handshake (tickets, or in TLS 1.2 its end) until the next
  /// write(), close_notify() or flush(), to send both together; until then output().holds() is
  /// true. No effect with kernel TLS.
  void hold_last_flight() noexcept { may_hold_ = !channel_.kernel.possible(); }

  // --- reading and writing data ------------------------------------------------------------------
  /// Reads decrypted data. Returns the number of bytes, 0 after the peer's close_notify, or -1:
  /// with errno EAGAIN, or with failed() true. If a write to the wire (connection below TLS)
  /// failed, data that the peer had sent is returned first, as far as the wire has it. If `room` is
  /// not empty, a read of more than one record fetches many records from the wire at once, into the
  /// room.
  ssize_t read(void* buffer, std::size_t size, std::span<char> room = {});
  /// Encrypts one record, of the first kRecord bytes at most, and hands it to the wire (connection
  /// below TLS). Returns the number of bytes in the record, fewer than kRecord if the peer asked
  /// for small records. Returns -1 with failed() true, or -1 with errno EAGAIN while
  /// output().unsent() is not 0 or write_needs_read() is true.
  ssize_t write(const void* buffer, std::size_t size);
  /// Makes the next write() put its record into `room` instead of sending it. The records in the
  /// room are sent together, when it is full or by send_gathered(). To be called before each
  /// write(); no effect while other output waits. Between gather() and send_gathered() only
  /// gather(), write() and output() may be called.
  void gather(std::span<char> room) noexcept { channel_.output.gather(room); }
  /// Writes the gathered TLS records to the connection below (the wire), and keeps what that does
  /// not take as unsent output. Returns false if the connection below or this engine has failed.
  bool send_gathered();
  /// Returns whether read() would return something other than EAGAIN, as far as is known (see
  /// only_maybe()). With `ask_wire` reads the wire (connection below TLS) if that is necessary to
  /// find out.
  bool look(bool ask_wire);
  /// Like look(), but decides without reading or decrypting anything.
  bool readable() const;
  /// Whether readable() is true only because read() or look() stopped early: read() may then return
  /// EAGAIN nevertheless.
  bool only_maybe() const { return maybe_more_ && !surely_readable(); }
  /// Whether the engine is established and nothing is left to do: write() is possible, nothing
  /// waits to be read or sent, and no direction has ended or failed.
  bool is_quiet() const {
    return progress_.established() && progress_.receiving() == Receiving::kOpen &&
           progress_.sending() == Sending::kOpen &&
           channel_.output.state() == Output::State::kThrough && !readable();
  }
  /// Whether a write or close_notify waits for the rest of a message of the peer (a ticket, a
  /// KeyUpdate). While such a message is incomplete TLS can send nothing.
  bool write_needs_read() const;
  /// Sends close_notify as soon as possible. write() must not be called afterwards.
  void close_notify();
  /// Passes to the wire (connection below TLS) the bytes that it did not take before. Returns true
  /// if no bytes are left to send.
  bool flush() {
    const bool through = channel_.output.state() == Output::State::kThrough;
    return (through && progress_.sending() == Sending::kOpen) || flush_rest();
  }
  /// Returns the ciphertext that the wire (connection below TLS) has not taken yet, or that is held
  /// back from it.
  const Output& output() const noexcept { return channel_.output; }
  /// Must be called when a write to the wire (connection below TLS) outside the engine (kernel TLS)
  /// has failed; errno must still hold the reason.
  void on_wire_failure();
  /// Frees buffers that an idle connection does not need; they are allocated again on demand.
  void release_buffers();

  // --- the state of the connection ---------------------------------------------------------------
  /// How far the handshake and both directions have come.
  const Progress& progress() const noexcept { return progress_; }
  bool failed() const noexcept { return static_cast<bool>(failure_); }
  /// Whether reading or writing ciphertext has failed.
  bool wire_failed() const noexcept { return channel_.wire.failed(); }
  const Failure& failure() const noexcept { return failure_; }
  const KernelTls& kernel() const noexcept { return channel_.kernel; }
  SSL* ssl() const noexcept { return ssl_.get(); }
  static Engine& of(const SSL* ssl);

  // --- called by OpenSSL's callbacks -------------------------------------------------------------
  /// Examines a TLS message that was received, or sent if `outgoing`. `message` is all of it, not
  /// empty.
  void on_message(bool outgoing, int content_type, std::span<const unsigned char> message) noexcept;
  PeerCheck peer;  ///< what is known of the peer's certificate and messages
  /// The key under which a client stores the TLS sessions of this server.
  std::string session_name;

 private:
  void fail(int result);
  int error_of(int result);
  bool goes_on(int result);
  void settle();
  void resume_sending();
  bool surely_readable() const;
  int look_once();
  bool flush_rest();

  Channel channel_;
  SslPtr ssl_;  // OpenSSL's object for this connection; reads and writes through channel_
  Progress progress_;
  bool may_hold_ = false;
  bool stepped_ = false;  // true if the last step completed the handshake
  // True if read() or look() stopped early, to leave time for other connections, so that there may
  // be more data.
  bool maybe_more_ = false;
  ReadAheadBytes ahead_;  // the data that look() has read and read() has not returned yet
  // The OpenSSL error that error_of() took from the queue of errors; 0: none.
  unsigned long reason_ = 0;
  Failure failure_;
};

}}}  // namespace conn::tls
