// SPDX-License-Identifier: BSD-3-Clause
#include "conn/tls/engine/engine.h"

#include <algorithm>
#include <cassert>
#include <cerrno>
#include <climits>
#include <cstring>
#include <utility>

#include "ae/once.h"
#include "conn/tls/engine/reasons.h"

namespace conn { inline namespace AECONN_ABI { namespace tls {
namespace {

// Limits of one call of the engine: records read (kReads), attempts of look() (kLooks) and bytes
// read from the wire (connection below TLS) beyond what was asked for (kBudget). A peer that sends
// messages, or records of single bytes, must not keep the loop busy.
constexpr int kReads = 256;
constexpr int kLooks = 16;
constexpr std::size_t kBudget = 4 * Engine::kRecord;

int index_of_engine() {
  return ae::once([] { return SSL_get_ex_new_index(0, nullptr, nullptr, nullptr, nullptr); });
}

/// Returns the fewest bytes that a record of data has beside the data: header and tag, in TLS 1.3
/// the type, and in TLS 1.2 with AES-GCM a nonce.
std::size_t least_overhead(const SSL* ssl) {
  if (SSL_version(ssl) >= TLS1_3_VERSION) return 5 + 1 + 16;
  const int cipher = SSL_CIPHER_get_cipher_nid(SSL_get_current_cipher(ssl));
  return cipher == NID_aes_128_gcm || cipher == NID_aes_256_gcm ? 5 + 8 + 16 : 5 + 16;
}

/// Sends an alert to a client that does not speak TLS, since OpenSSL sends none. A client that
/// speaks another protocol can recognize the alert, and tell its user that the server expects TLS.
void refuse_plain_text(const SSL* ssl, Output& output) {
  // A TLS record that contains the fatal alert unexpected_message (RFC 8446, section 6).
  constexpr char kUnexpectedMessage[] = "\x15\x03\x01\x00\x02\x02\x0a";
  if (SSL_is_server(ssl) == 0 || SSL_get_state(ssl) != TLS_ST_BEFORE) return;
  (void)output.put(kUnexpectedMessage, sizeof kUnexpectedMessage - 1);
}

}  // namespace

// --- construction and destruction ----------------------------------------------------------------

Engine::Engine(SSL_CTX* context, Role role, Wire& wire, int socket)
    : channel_(wire, socket), ssl_(SSL_new(context)) {
  if (!ssl_ || SSL_set_ex_data(ssl_.get(), index_of_engine(), this) != 1) throw std::bad_alloc();
  SSL_set_msg_callback_arg(ssl_.get(), this);
  BIO* bio = channel_.make_bio();
  SSL_set_bio(ssl_.get(), bio, bio);
  if (channel_.kernel.possible()) {
    SSL_set_options(ssl_.get(), SSL_OP_ENABLE_KTLS);
    // With kernel TLS the kernel takes over decryption at a record boundary, so OpenSSL must not
    // have read beyond that boundary.
    SSL_set_read_ahead(ssl_.get(), 0);
  }
  if (role == Role::kServer) {
    SSL_set_accept_state(ssl_.get());
  } else {
    SSL_set_connect_state(ssl_.get());
  }
}

Engine::~Engine() = default;

Engine& Engine::of(const SSL* ssl) {
  return *static_cast<Engine*>(SSL_get_ex_data(ssl, index_of_engine()));
}

// --- the handshake -------------------------------------------------------------------------------

Engine::Step Engine::handshake() {
  if (failed()) return Step::kFailed;
  if (may_hold_ && progress_.phase() == Phase::kShaking) channel_.output.collect();
  run_step();
  return end_step();
}

bool Engine::begin_lent_step() {
  if (failed() || progress_.established() || channel_.kernel.possible()) return false;
  // No output may be unsent: the handshake step would pass it to the wire (connection below TLS),
  // which the thread that runs the step must not use.
  if (channel_.output.state() != Output::State::kThrough) return false;
  if (!channel_.unused.lend()) return false;
  channel_.output.collect();
  return true;
}

void Engine::run_step() noexcept {
  channel_.supply.begin(kBudget);
  if (progress_.phase() == Phase::kNew) progress_.move_to(Phase::kShaking);
  // drops old errors: those of another connection must not be taken for errors of this one
  ERR_clear_error();
  const int result = SSL_do_handshake(ssl_.get());
  stepped_ = result == 1;
  if (stepped_) return;
  const int error = SSL_get_error(ssl_.get(), result);
  if (error != SSL_ERROR_WANT_READ && error != SSL_ERROR_WANT_WRITE) fail(result);
}

Engine::Step Engine::end_step() {
  channel_.unused.take_back();
  const bool collected = channel_.output.end_collecting(stepped_ && may_hold_);
  if (stepped_ && !progress_.established()) settle();
  // Sends the collected messages; after a failure, they include the TLS alert.
  if (collected && !channel_.output.holds()) (void)flush();
  if (stepped_) return Step::kDone;
  return failed() ? Step::kFailed : Step::kWantRead;
}

/// Called at the end of the handshake: finds out in which directions the kernel encrypts or
/// decrypts.
void Engine::settle() {
  progress_.move_to(Phase::kEstablished);
  channel_.hides_write_failures = true;
  channel_.kernel.settle();
  if (channel_.kernel.possible() && !channel_.kernel.receives()) SSL_set_read_ahead(ssl_.get(), 1);
  channel_.overhead = least_overhead(ssl_.get());
  (void)ahead_.room();
}

// --- reading and writing data --------------------------------------------------------------------

ssize_t Engine::read(void* buffer, std::size_t size, std::span<char> room) {
  Supply& supply = channel_.supply;
  maybe_more_ = channel_.unused.any();
  std::size_t got = 0;
  if (!ahead_.empty()) {
    got = ahead_.take(buffer, size);
    if (!ahead_.empty() || SSL_has_pending(ssl_.get()) == 0) {
      resume_sending();
      return static_cast<ssize_t>(got);
    }
  }
  // Limits how many bytes this call reads from the wire (connection below TLS), so that a fast peer
  // does not keep the loop busy. After a failure there is no limit: only what arrived before the
  // failure is left to read, and if the call ended early without data, that would be taken for the
  // end of the data.
  supply.begin(failed() ? SIZE_MAX : kBudget + size);
  channel_.stage(room);
  for (int reads = 0; got < size && progress_.receiving() == Receiving::kOpen; ++reads) {
    if (reads >= kReads && !failed()) {
      maybe_more_ = true;
      break;
    }
    supply.again();
    channel_.wanted = size - got;
    const int n = SSL_read(ssl_.get(), static_cast<char*>(buffer) + got,
                           static_cast<int>(std::min<std::size_t>(size - got, INT_MAX)));
    if (n > 0) {
      got += static_cast<std::size_t>(n);
      peer.count_data(static_cast<std::size_t>(n));
      if (SSL_has_pending(ssl_.get()) == 0 && !channel_.has_left()) break;
      continue;
    }
    if (!goes_on(n)) break;
  }
  // Bytes are left if the peer sends more records than one call may decrypt, or if the call had to
  // end early. They are kept for the next call.
  const std::span<const char> left = channel_.end_stage();
  if (!left.empty() && progress_.receiving() == Receiving::kOpen) {
    maybe_more_ = channel_.unused.put_back(left);
    if (!maybe_more_) {
      channel_.wire.fail(ENOMEM);
      fail(-1);
      progress_.move_to(Receiving::kOver);
    }
  }
  resume_sending();
  // Bytes that OpenSSL still holds may be a whole record, which no event of the wire (connection
  // below TLS) will announce, or a part of one. look() finds out which.
  if (!supply.emptied() && !readable() && SSL_has_pending(ssl_.get()) != 0) (void)look(false);
  if (got > 0) return static_cast<ssize_t>(got);
  if (failed()) return -1;
  if (progress_.ended()) return 0;
  errno = EAGAIN;
  return -1;
}

/// Called after SSL_read() or SSL_peek() has returned `result` and no data. Returns whether another
/// try may return data; records the end of the stream or a failure.
bool Engine::goes_on(int result) {
  const Supply& supply = channel_.supply;
  switch (error_of(result)) {
    case SSL_ERROR_WANT_READ:
    case SSL_ERROR_WANT_WRITE:
      if (peer.objects()) {
        failure_ = peer.objection();
        progress_.move_to(Receiving::kOver);
        return false;
      }
      if (supply.paused()) maybe_more_ = true;
      return !supply.emptied() && !supply.paused() && channel_.output.unsent() == 0;
    case SSL_ERROR_ZERO_RETURN:
      progress_.move_to(Receiving::kEnded);
      return false;
    default:
      fail(result);
      if (progress_.receiving() == Receiving::kOpen) progress_.move_to(Receiving::kOver);
      return false;
  }
}

/// Returns what SSL_get_error() would return for `result` if other code had left no errors in the
/// thread's error queue. Emptying that queue before each call of OpenSSL would cost more than
/// everything else that this class does for a message. So it is emptied here, after a call that
/// returned no data. If that call has failed, the last error in the queue is the reason; it is kept
/// in reason_ for fail().
int Engine::error_of(int result) {
  reason_ = take_last_reason();
  const int error = SSL_get_error(ssl_.get(), result);
  if (reason_ == 0) return error;
  const Supply& supply = channel_.supply;
  const bool waits = error == SSL_ERROR_WANT_READ ? supply.emptied() || supply.paused()
                                                  : error == SSL_ERROR_WANT_WRITE;
  // SSL_ERROR_ZERO_RETURN stands for close_notify or for a fatal alert, after which OpenSSL is no
  // longer in the established state.
  const bool ends = error == SSL_ERROR_ZERO_RETURN && SSL_in_init(ssl_.get()) == 0;
  if (waits || ends) {
    reason_ = 0;
    return error;
  }
  return SSL_ERROR_SSL;
}

bool Engine::readable() const { return maybe_more_ || surely_readable(); }

bool Engine::surely_readable() const {
  return !ahead_.empty() || failed() || progress_.ended() || SSL_pending(ssl_.get()) > 0;
}

bool Engine::look(bool ask_wire) {
  if (surely_readable() || (maybe_more_ && !ask_wire)) return true;
  maybe_more_ = channel_.unused.any();
  if (ask_wire) {
    channel_.supply.begin(kBudget);
  } else {
    channel_.supply.begin_drained();
  }
  for (int looks = 0; looks < kLooks; ++looks) {
    channel_.supply.again();
    const int n = look_once();
    if (n > 0) return true;
    if (!goes_on(n)) {
      resume_sending();
      return readable();
    }
  }
  maybe_more_ = true;
  return true;
}

/// Reads decrypted bytes into the buffer ahead_; returns what SSL_read() returns. Without memory
/// for the buffer it only finds out whether there are bytes to read.
int Engine::look_once() {
  const std::span<char> room = ahead_.room();
  if (room.empty()) {
    char byte;
    return SSL_peek(ssl_.get(), &byte, 1);
  }
  const int n = SSL_read(ssl_.get(), room.data(), static_cast<int>(room.size()));
  if (n <= 0) return n;
  ahead_.filled(static_cast<std::size_t>(n));
  peer.count_data(static_cast<std::size_t>(n));
  return n;
}

ssize_t Engine::write(const void* buffer, std::size_t size) {
  if (failed()) return -1;
  if (!channel_.output.holds() && !flush()) {
    errno = EAGAIN;
    return -1;
  }
  if (failed()) return -1;
  // Allows OpenSSL to read handshake messages, which writing may require. Data stays unread.
  channel_.supply.begin(kBudget);
  const int n =
      SSL_write(ssl_.get(), buffer, static_cast<int>(std::min<std::size_t>(size, kRecord)));
  if (n > 0 && !wire_failed()) {
    peer.count_data(static_cast<std::size_t>(n));
    return n;
  }
  switch (wire_failed() ? SSL_ERROR_SYSCALL : error_of(n)) {
    case SSL_ERROR_WANT_READ:
    case SSL_ERROR_WANT_WRITE:
      if (progress_.sending() == Sending::kOpen) progress_.move_to(Sending::kBlocked);
      errno = EAGAIN;
      return -1;
    default:
      fail(n);
      return -1;
  }
}

bool Engine::send_gathered() {
  if (!channel_.output.send_gathered()) fail(-1);
  return !failed();
}

bool Engine::write_needs_read() const {
  return (progress_.sending() == Sending::kBlocked || progress_.sending() == Sending::kCloseOwed) &&
         !failed() && SSL_in_init(ssl_.get()) != 0;
}

/// The slow part of flush(), for output that the wire (connection below TLS) did not take, and for
/// a write or close_notify that had to wait for the peer.
bool Engine::flush_rest() {
  switch (channel_.output.flush()) {
    case Output::Flushed::kFailed:
      fail(-1);
      return true;
    case Output::Flushed::kPartly:
      return false;
    case Output::Flushed::kAll:
      break;
  }
  resume_sending();
  return channel_.output.unsent() == 0;
}

void Engine::close_notify() {
  if (failed() || !progress_.established()) return;
  if (progress_.sending() == Sending::kOpen || progress_.sending() == Sending::kBlocked)
    progress_.move_to(Sending::kCloseOwed);
  resume_sending();
}

/// Continues a write or a close_notify that had to wait until a handshake message of the peer was
/// complete.
void Engine::resume_sending() {
  if (progress_.sending() == Sending::kOpen || progress_.sending() == Sending::kCloseSent) return;
  if (SSL_in_init(ssl_.get()) != 0) return;
  if (progress_.sending() == Sending::kBlocked) {
    progress_.move_to(Sending::kOpen);
    return;
  }
  if (failed()) return;
  ERR_clear_error();
  (void)SSL_shutdown(ssl_.get());
  ERR_clear_error();
  if ((SSL_get_shutdown(ssl_.get()) & SSL_SENT_SHUTDOWN) != 0)
    progress_.move_to(Sending::kCloseSent);
}

void Engine::on_wire_failure() {
  channel_.wire.fail(errno);
  fail(-1);
}

void Engine::release_buffers() {
  (void)SSL_free_buffers(ssl_.get());
  ahead_.release_memory();
  channel_.output.release_memory();
}

// --- messages after the handshake, and failures --------------------------------------------------

void Engine::on_message(bool outgoing, int content_type,
                        std::span<const unsigned char> message) noexcept {
  if (outgoing || content_type != SSL3_RT_HANDSHAKE || !progress_.established()) return;
  peer.on_message(message, channel_.kernel.sends());
  if (peer.objects()) channel_.supply.shut();
}

/// Records why OpenSSL or the wire (connection below TLS) failed. `result` is what the failed
/// OpenSSL function returned.
void Engine::fail(int result) {
  if (failed()) return;
  const CheckedWire& wire = channel_.wire;
  const bool in_handshake = !progress_.established();
  if (in_handshake) progress_.move_to(Receiving::kOver);
  const unsigned long error = in_handshake ? take_reason() : std::exchange(reason_, 0);
  Failure why = judge({.error = error,
                       .result = error != 0 ? 0 : SSL_get_error(ssl_.get(), result),
                       .in_handshake = in_handshake,
                       .peer_ended = progress_.ended(),
                       .wire = wire,
                       .bad_certificate = peer.bad_certificate()});
  if (in_handshake && !wire.failed() && !wire.ended() && peer.bad_certificate().empty() &&
      is_plain_text(error))
    refuse_plain_text(ssl_.get(), channel_.output);
  ERR_clear_error();
  failure_ = std::move(why);
}

}}}  // namespace conn::tls
