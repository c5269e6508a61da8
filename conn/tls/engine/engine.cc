// SPDX-License-Identifier: BSD-3-Clause
#include "conn/tls/engine/engine.h"

#include <openssl/x509_vfy.h>

#include <algorithm>
#include <cerrno>
#include <climits>

namespace conn { inline namespace AECONN_ABI { namespace tls {
namespace {

// Limits of one call: records read (kReads), attempts of look() (kLooks) and bytes read from the
// wire beyond what was asked for (kBudget). A peer that sends messages, or records of single bytes,
// must not keep the loop busy.
constexpr int kReads = 256;
constexpr int kLooks = 16;
constexpr std::size_t kBudget = 4 * Engine::kRecord;
// RFC 8446 lets a peer send KeyUpdate and tickets at any time. A peer that sends more than this
// many per MiB of data only wastes our time.
constexpr std::uint64_t kMessages = 64, kMessagesPer = 1 << 20;

// Control commands that OpenSSL sends to the BIO of a kernel TLS socket. bio.h lists the numbers
// only in a comment.
constexpr int kSetKeys = 72, kNextIsControl = 74, kControlIsOver = 75;

int index_of_engine() {
  static const int index = SSL_get_ex_new_index(0, nullptr, nullptr, nullptr, nullptr);
  return index;
}

/// Whether the error means that a certificate is missing, or is an alert about our certificate.
bool is_about_certificates(unsigned long error) {
  if (ERR_GET_LIB(error) != ERR_LIB_SSL) return false;
  if (ERR_GET_REASON(error) == SSL_R_PEER_DID_NOT_RETURN_A_CERTIFICATE) return true;
  switch (ERR_GET_REASON(error) - SSL_AD_REASON_OFFSET) {
    case SSL_AD_BAD_CERTIFICATE:
    case SSL_AD_UNSUPPORTED_CERTIFICATE:
    case SSL_AD_CERTIFICATE_REVOKED:
    case SSL_AD_CERTIFICATE_EXPIRED:
    case SSL_AD_CERTIFICATE_UNKNOWN:
    case SSL_AD_UNKNOWN_CA:
    case SSL_AD_ACCESS_DENIED:
    case SSL_AD_CERTIFICATE_REQUIRED:
      return true;
    default:
      return false;
  }
}

/// Takes the error about the connection from OpenSSL's queue. Errors of a cipher or a signature
/// precede it; since OpenSSL 3.2 a further error, that the record layer failed, follows it.
unsigned long take_reason() {
  const unsigned long first = ERR_get_error();
  unsigned long error = first;
  while (error != 0 && ERR_GET_LIB(error) != ERR_LIB_SSL) error = ERR_get_error();
  return error != 0 ? error : first;
}

/// Whether the error is typical of a first record that is not TLS.
bool is_plain_text(unsigned long error) {
  if (ERR_GET_LIB(error) != ERR_LIB_SSL) return false;
  switch (ERR_GET_REASON(error)) {
    case SSL_R_WRONG_VERSION_NUMBER:
    case SSL_R_HTTP_REQUEST:
    case SSL_R_HTTPS_PROXY_REQUEST:
    case SSL_R_PACKET_LENGTH_TOO_LONG:
    case SSL_R_BAD_RECORD_TYPE:
      return true;
    default:
      return false;
  }
}

}  // namespace

// --- the BIO between OpenSSL and the wire --------------------------------------------------------

/// BIO_meth_new(3). A BIO's data is its Engine.
class EngineBio {
 public:
  static BIO* make(Engine& engine) {
    static BIO_METHOD* const method = make_method();  // never freed: connections may outlive main()
    BIO* bio = BIO_new(method);
    if (bio == nullptr) throw std::bad_alloc();
    BIO_set_data(bio, &engine);
    BIO_set_init(bio, 1);
    return bio;
  }

 private:
  static BIO_METHOD* make_method() {
    BioMethodPtr method(BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "aeconn"));
    if (!method) throw std::bad_alloc();
    BIO_meth_set_write(method.get(), &EngineBio::write);
    BIO_meth_set_read(method.get(), &EngineBio::read);
    BIO_meth_set_ctrl(method.get(), &EngineBio::control);
    return method.release();
  }

  static Engine& engine_of(BIO* bio) { return *static_cast<Engine*>(BIO_get_data(bio)); }

  static int read(BIO* bio, char* buffer, int size) {
    BIO_clear_retry_flags(bio);
    if (size <= 0) return 0;
    Engine& engine = engine_of(bio);
    const long n = engine.wire_read(buffer, static_cast<std::size_t>(size));
    if (n < 0 && !engine.wire_failed_) BIO_set_retry_read(bio);
    return static_cast<int>(n);
  }

  static int write(BIO* bio, const char* bytes, int size) {
    BIO_clear_retry_flags(bio);
    if (size <= 0) return 0;
    Engine& engine = engine_of(bio);
    const std::size_t n = engine.wire_write(bytes, static_cast<std::size_t>(size));
    if (n != 0) return static_cast<int>(n);
    // Data that the peer had sent can still be read, so the failure is hidden from OpenSSL; write()
    // checks for it.
    if (engine.wire_failed_ && engine.established_) return size;
    if (!engine.wire_failed_) BIO_set_retry_write(bio);
    return -1;
  }

  static long control(BIO* bio, int command, long number, void* pointer) {
    Engine& engine = engine_of(bio);
    switch (command) {
      case BIO_CTRL_FLUSH:
      case BIO_CTRL_DUP:
        return 1;
      case BIO_CTRL_EOF:
        return engine.wire_ended_ ? 1 : 0;
      case kSetKeys:
        // Bytes that are already encrypted must not be encrypted again by the kernel.
        if (engine.socket_ == nullptr || engine.has_unsent()) return 0;
        return BIO_ctrl(engine.socket_, command, number, pointer);
      case BIO_CTRL_GET_KTLS_SEND:
      case BIO_CTRL_GET_KTLS_RECV:
        return engine.socket_ == nullptr ? 0 : BIO_ctrl(engine.socket_, command, number, pointer);
      case kNextIsControl:
        engine.record_type_ = static_cast<std::uint8_t>(number);
        return 1;
      case kControlIsOver:
        engine.record_type_ = 0;
        return 1;
      default:
        return 0;
    }
  }
};

/// As BIO_read(3): 0 at end of stream, -1 if nothing is available or on failure.
long Engine::wire_read(char* buffer, std::size_t size) {
  if (drained_) {
    starved_ = true;
    return -1;
  }
  if (objection_ || budget_ == 0 || unsent() >= kMostUnsent) {
    paused_ = true;
    return -1;
  }
  if (socket_ != nullptr && BIO_get_ktls_recv(socket_)) {
    if (wire_.receive(nullptr, 0) < 0) {  // a forked child has no wire
      wire_failed(errno);
      return -1;
    }
    // The kernel returns one record at a time, with a header made for OpenSSL.
    const int n = BIO_read(socket_, buffer, static_cast<int>(std::min<std::size_t>(size, INT_MAX)));
    if (n > 0) {
      budget_ -= std::min(budget_, static_cast<std::size_t>(n));
      return n;
    }
    if (BIO_should_retry(socket_)) {
      starved_ = true;
      return -1;
    }
    if (n == 0) {
      wire_ended_ = true;
      return 0;
    }
    wire_failed(errno);
    return -1;
  }
  const ssize_t n = wire_.receive(buffer, size);
  if (n > 0) {
    budget_ -= std::min(budget_, static_cast<std::size_t>(n));
    // After a short read, another one would cost a system call and find nothing.
    drained_ = static_cast<std::size_t>(n) < size && !wire_failed_;
    return n;
  }
  if (n == 0) {
    wire_ended_ = true;
    return 0;
  }
  if (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR) {
    starved_ = true;
  } else {
    wire_failed(errno);
  }
  return -1;
}

ssize_t Engine::offer(std::uint8_t type, const char* bytes, std::size_t size) {
  const ssize_t n =
      type != 0 ? wire_.transmit_record(type, bytes, size) : wire_.transmit(bytes, size);
  if (n >= 0) return n;
  if (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR) return 0;
  wire_failed(errno);
  return -1;
}

/// Takes all bytes and returns `size`, or takes none and returns 0.
std::size_t Engine::wire_write(const char* bytes, std::size_t size) {
  if (wire_failed_) return 0;
  if (hold_) {
    if (!keep(bytes, size)) return 0;
    if (!established_) return size;  // more of the flight follows
    // The held-back flight is now sent together with these bytes.
    hold_ = false;
    const ssize_t sent = offer(0, unsent_.data(), unsent_.size());
    if (sent < 0) return 0;
    sent_ = static_cast<std::size_t>(sent);
    if (has_unsent()) return size;
    unsent_.clear();
    sent_ = 0;
    return size;
  }
  ssize_t n = 0;
  if (!has_unsent()) {
    n = offer(record_type_, bytes, size);
    if (n < 0) return 0;
    unsent_type_ = record_type_;
  } else if (unsent_type_ != record_type_ || unsent_type_ != 0) {
    return 0;  // records for the kernel are sent one by one: OpenSSL retries
  }
  record_type_ = 0;  // applies to one write, as in OpenSSL's socket BIO
  return keep(bytes + n, size - static_cast<std::size_t>(n)) ? size : 0;
}

bool Engine::keep(const char* bytes, std::size_t size) {
  try {
    unsent_.insert(unsent_.end(), bytes, bytes + size);
    return true;
  } catch (const std::bad_alloc&) {  // must not pass through OpenSSL's frames
    wire_failed(ENOMEM);
    return false;
  }
}

bool Engine::flush() {
  hold_ = false;
  while (has_unsent()) {
    const ssize_t n = offer(unsent_type_, unsent_.data() + sent_, unsent());
    if (n < 0) {
      unsent_.clear();
      sent_ = 0;
      fail(-1, !established_);
      return true;
    }
    if (n == 0) return false;
    sent_ += static_cast<std::size_t>(n);
  }
  unsent_.clear();
  sent_ = 0;
  pay_close_notify();
  return !has_unsent();
}

// --- birth and death -----------------------------------------------------------------------------

Engine::Engine(SSL_CTX* context, Role role, Wire& wire, int socket)
    : wire_(wire), ssl_(SSL_new(context)) {
  if (!ssl_ || SSL_set_ex_data(ssl_.get(), index_of_engine(), this) != 1) throw std::bad_alloc();
  SSL_set_msg_callback_arg(ssl_.get(), this);
  BIO* bio = EngineBio::make(*this);
  SSL_set_bio(ssl_.get(), bio, bio);
  if (socket >= 0) {
    socket_ = BIO_new_socket(socket, BIO_NOCLOSE);
    if (socket_ == nullptr) throw std::bad_alloc();
    SSL_set_options(ssl_.get(), SSL_OP_ENABLE_KTLS);
    // The kernel takes over at a record boundary, so nothing beyond it may have been read.
    SSL_set_read_ahead(ssl_.get(), 0);
  }
  if (role == Role::kServer) {
    SSL_set_accept_state(ssl_.get());
  } else {
    SSL_set_connect_state(ssl_.get());
  }
}

Engine::~Engine() {
  ssl_.reset();
  BIO_free(socket_);
}

Engine& Engine::of(const SSL* ssl) {
  return *static_cast<Engine*>(SSL_get_ex_data(ssl, index_of_engine()));
}

// --- handshake -----------------------------------------------------------------------------------

Engine::Step Engine::handshake() {
  if (failed()) return Step::kFailed;
  begin_reading(0);
  ERR_clear_error();  // errors of another connection must not be taken for ours
  hold_ = may_hold_ && spoke_ && unsent_.empty();
  spoke_ = true;
  const int result = SSL_do_handshake(ssl_.get());
  const int error = result == 1 ? SSL_ERROR_NONE : SSL_get_error(ssl_.get(), result);
  const bool held = hold_ && !unsent_.empty();
  hold_ = held && result == 1;
  if (result == 1) {
    established_ = true;
    kernel_sends_ = socket_ != nullptr && BIO_get_ktls_send(socket_);
    kernel_receives_ = socket_ != nullptr && BIO_get_ktls_recv(socket_);
    if (socket_ != nullptr && !kernel_receives_) SSL_set_read_ahead(ssl_.get(), 1);
    return Step::kDone;
  }
  switch (error) {
    case SSL_ERROR_WANT_READ:
    case SSL_ERROR_WANT_WRITE:
      if (held) (void)flush();
      return failed() ? Step::kFailed : Step::kWantRead;
    default:
      fail(result, true);
      if (held) (void)flush();  // the alert
      return Step::kFailed;
  }
}

// --- data ----------------------------------------------------------------------------------------

ssize_t Engine::read(void* buffer, std::size_t size) {
  std::size_t got = 0;
  maybe_more_ = false;
  begin_reading(size);
  if (failed()) budget_ = SIZE_MAX;  // last read: nothing more arrives
  for (int reads = 0; got < size && !reading_over_ && !ended_; ++reads) {
    if (reads >= kReads && !failed()) {
      maybe_more_ = true;
      break;
    }
    starved_ = paused_ = false;
    ERR_clear_error();
    const int n = SSL_read(ssl_.get(), static_cast<char*>(buffer) + got,
                           static_cast<int>(std::min<std::size_t>(size - got, INT_MAX)));
    if (n > 0) {
      got += static_cast<std::size_t>(n);
      plain_both_ways_ += static_cast<std::uint64_t>(n);
      if (SSL_has_pending(ssl_.get()) == 0) break;
      continue;
    }
    if (!goes_on(n)) break;
  }
  pay_close_notify();
  // The remaining bytes may be a whole record, which no event will announce, or part of one.
  if (!starved_ && !readable() && SSL_has_pending(ssl_.get()) != 0) (void)look(false);
  if (got > 0) return static_cast<ssize_t>(got);
  if (failed()) return -1;
  if (ended_) return 0;
  errno = EAGAIN;
  return -1;
}

/// After a read that returned no data: whether another read may return some.
bool Engine::goes_on(int result) {
  switch (SSL_get_error(ssl_.get(), result)) {
    case SSL_ERROR_WANT_READ:
    case SSL_ERROR_WANT_WRITE:
      if (objection_) {
        failure_ = std::move(objection_);
        reading_over_ = true;
        return false;
      }
      if (paused_) maybe_more_ = true;
      return !starved_ && !paused_ && !has_unsent();
    case SSL_ERROR_ZERO_RETURN:
      ended_ = true;
      return false;
    default:
      fail(result, false);
      reading_over_ = true;
      return false;
  }
}

bool Engine::readable() const { return maybe_more_ || surely_readable(); }

bool Engine::surely_readable() const { return failed() || ended_ || SSL_pending(ssl_.get()) > 0; }

bool Engine::look(bool ask_wire) {
  if (surely_readable() || (maybe_more_ && !ask_wire)) return true;
  maybe_more_ = false;
  begin_reading(0);
  drained_ = !ask_wire;
  for (int looks = 0; looks < kLooks; ++looks) {
    starved_ = paused_ = false;
    ERR_clear_error();
    char byte;
    const int n = SSL_peek(ssl_.get(), &byte, 1);
    if (n > 0) return true;
    if (!goes_on(n)) {
      pay_close_notify();
      return readable();
    }
  }
  maybe_more_ = true;
  return true;
}

/// Also called before a write, which may have to read but does not use data left unread.
void Engine::begin_reading(std::size_t size) {
  drained_ = starved_ = paused_ = false;
  budget_ = kBudget + size;
}

ssize_t Engine::write(const void* buffer, std::size_t size) {
  if (failed()) return -1;
  if (!hold_ && !flush()) {
    errno = EAGAIN;
    return -1;
  }
  if (failed()) return -1;
  begin_reading(0);
  ERR_clear_error();
  const int n =
      SSL_write(ssl_.get(), buffer, static_cast<int>(std::min<std::size_t>(size, kRecord)));
  if (n > 0 && !wire_failed_) {
    plain_both_ways_ += static_cast<std::uint64_t>(n);
    return n;
  }
  switch (wire_failed_ ? SSL_ERROR_SYSCALL : SSL_get_error(ssl_.get(), n)) {
    case SSL_ERROR_WANT_READ:
    case SSL_ERROR_WANT_WRITE:
      write_blocked_ = true;
      errno = EAGAIN;
      return -1;
    default:
      fail(n, false);
      return -1;
  }
}

bool Engine::write_needs_read() const {
  return (write_blocked_ || close_owed_) && !failed() && SSL_in_init(ssl_.get()) != 0;
}

void Engine::close_notify() {
  if (failed() || !established_) return;
  close_owed_ = true;
  pay_close_notify();
}

void Engine::pay_close_notify() {
  if (SSL_in_init(ssl_.get()) == 0) write_blocked_ = false;
  if (!close_owed_ || failed() || SSL_in_init(ssl_.get()) != 0) return;
  ERR_clear_error();
  (void)SSL_shutdown(ssl_.get());
  ERR_clear_error();
  if ((SSL_get_shutdown(ssl_.get()) & SSL_SENT_SHUTDOWN) != 0) close_owed_ = false;
}

void Engine::on_wire_failure() {
  wire_failed(errno);
  fail(-1, false);
}

void Engine::wire_failed(int err) noexcept {
  wire_failed_ = true;
  wire_errno_ = err != 0 ? err : EIO;
}

void Engine::release_buffers() {
  (void)SSL_free_buffers(ssl_.get());
  if (!hold_ && !has_unsent()) std::vector<char>().swap(unsent_);
}

// --- failures ------------------------------------------------------------------------------------

void Engine::on_bad_certificate(X509_STORE_CTX* store) {
  if (!bad_certificate_.empty()) return;
  const int error = X509_STORE_CTX_get_error(store);
  const int depth = X509_STORE_CTX_get_error_depth(store);
  const X509* certificate = X509_STORE_CTX_get_current_cert(store);
  bad_certificate_ = depth == 0 ? "the peer's certificate" : "a certificate of the peer's chain";
  if (certificate != nullptr) bad_certificate_ += " \"" + subject_of(certificate) + '"';
  bad_certificate_ += std::string(": ") + X509_verify_cert_error_string(error);
  if (error == X509_V_ERR_HOSTNAME_MISMATCH || error == X509_V_ERR_IP_ADDRESS_MISMATCH) {
    const std::string names = certificate == nullptr ? "" : names_of(certificate, 4);
    bad_certificate_ += " (wanted " + wanted_name +
                        (names.empty() ? "; it names none)" : "; it names " + names + ")");
  }
}

void Engine::on_message(bool outgoing, int content_type, int message) {
  if (outgoing || content_type != SSL3_RT_HANDSHAKE || !established_ || objection_) return;
  if (plain_both_ways_ - messages_from_ >= kMessagesPer) {
    messages_ = 0;
    messages_from_ = plain_both_ways_;
  }
  if (++messages_ > kMessages) {
    objection_ = {Errc::kTooManyMessages,
                  "the peer sends handshake messages (KeyUpdate, tickets) without end"};
  } else if (message == SSL3_MT_KEY_UPDATE && (kernel_sends_ || kernel_receives_)) {
    // OpenSSL 3.0 would change its own key and not the kernel's.
    objection_ = {Errc::kProtocol, "the peer changes its keys, which ktls=yes cannot follow"};
  }
}

/// Sends an alert to a client that does not speak TLS, since OpenSSL sends none. From it, a client
/// with a protocol of its own can tell its user that the server expects TLS.
void Engine::refuse_plain_text() {
  constexpr char kUnexpectedMessage[] = "\x15\x03\x01\x00\x02\x02\x0a";  // RFC 8446 6
  if (SSL_is_server(ssl_.get()) == 0 || SSL_get_state(ssl_.get()) != TLS_ST_BEFORE) return;
  (void)wire_write(kUnexpectedMessage, sizeof kUnexpectedMessage - 1);
}

/// Records the failure. If memory runs out only its text is lost; the code is always set.
void Engine::fail(int result, bool in_handshake) {
  if (failed()) return;
  reading_over_ = in_handshake;
  const unsigned long error = take_reason();
  const bool verification = !bad_certificate_.empty() || is_about_certificates(error);
  // End of stream came first; the failed write may be a reply to it.
  const bool truncated = wire_ended_ && !ended_ && !in_handshake;
  const bool by_wire = wire_failed_ && bad_certificate_.empty() && !truncated;
  Failure why = out_of_memory();
  why.code = in_handshake ? Errc::kHandshake : Errc::kProtocol;
  if (by_wire) {
    why.code = std::error_code(wire_errno_, std::generic_category());
  } else if (bad_certificate_.empty() && truncated) {
    why.code = Errc::kTruncated;
  } else if (verification) {
    why.code = Errc::kVerification;
  }
  try {
    why.text = printable(by_wire ? errno_text(wire_errno_) : words_of(error, result, in_handshake));
  } catch (const std::bad_alloc&) {
  }
  if (!by_wire && bad_certificate_.empty() && !wire_ended_ && in_handshake && is_plain_text(error))
    refuse_plain_text();
  ERR_clear_error();
  failure_ = std::move(why);
}

std::string Engine::words_of(unsigned long error, int result, bool in_handshake) const {
  if (!bad_certificate_.empty()) return bad_certificate_;
  if (wire_ended_ && in_handshake) return "the peer closed the connection in the middle of it";
  if (wire_ended_ && !ended_)
    return "the peer ended the stream without close_notify, so it may have been cut short";
  if (in_handshake && is_plain_text(error))
    return reason_text(error) + ": the peer does not speak TLS here";
  return error != 0 ? reason_text(error)
                    : "OpenSSL gives no reason (" +
                          std::to_string(SSL_get_error(ssl_.get(), result)) + ")";
}

}}}  // namespace conn::tls
