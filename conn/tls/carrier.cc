// SPDX-License-Identifier: BSD-3-Clause
#include "conn/tls/carrier.h"

#include <linux/tls.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "conn/core/connection_core.h"
#include "conn/kit/interruption.h"
#include "conn/tls/peer_user.h"
#include "conn/tls/type.h"

#ifndef SOL_TLS
#define SOL_TLS 282  // from linux/socket.h; libc headers may lack it
#endif

namespace conn { inline namespace AECONN_ABI { namespace tls {
namespace {

// Carrier::wait_for() waits for one direction, since a transport may have no descriptor. If both
// are needed, each is waited for in turn, for this long.
constexpr ae::Duration kTurn = std::chrono::milliseconds(1);

}  // namespace

TlsCarrier::TlsCarrier(const TlsType& type, LoopState& shared)
    : QueuedCarrier(type, shared.ready()), shared_(&shared) {}

Carrier& TlsCarrier::lower() const noexcept { return ConnectionCore::of(*below_).carrier(); }

const TlsType& TlsCarrier::tls_type() const noexcept { return static_cast<const TlsType&>(type()); }

// --- the wire ------------------------------------------------------------------------------------
// A forked child has no wire: records are numbered, and parent and child would encrypt with the
// same numbers.

ssize_t TlsCarrier::receive(void* buffer, std::size_t size) {
  if (inherited()) return errno = ECANCELED, -1;
  try {
    return below_->read(buffer, size);
  } catch (const std::bad_alloc&) {  // must not pass through OpenSSL's frames
    errno = ENOMEM;
    return -1;
  }
}

ssize_t TlsCarrier::transmit(const void* buffer, std::size_t size) {
  if (inherited()) return errno = ECANCELED, -1;
  try {
    return below_->write(buffer, size);
  } catch (const std::bad_alloc&) {
    errno = ENOMEM;
    return -1;
  }
}

/// See "Sending TLS control messages" in Linux, Documentation/networking/tls.rst.
ssize_t TlsCarrier::transmit_record(std::uint8_t type, const void* buffer, std::size_t size) {
  if (inherited()) return errno = ECANCELED, -1;
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof type)> control{};
  iovec vector{const_cast<void*>(buffer), size};
  msghdr message{};
  message.msg_iov = &vector;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  cmsghdr* header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_TLS;
  header->cmsg_type = TLS_SET_RECORD_TYPE;
  header->cmsg_len = CMSG_LEN(sizeof type);
  std::memcpy(CMSG_DATA(header), &type, sizeof type);
  return ::sendmsg(below_->fd(), &message, MSG_NOSIGNAL | MSG_DONTWAIT);
}

/// Returns the loop's state, which is looked up again after a move to another loop.
LoopState& TlsCarrier::shared() {
  if (shared_ == nullptr) {
    shared_ = &LoopState::of(tls_type(), *loop());
    attach_list(shared_->ready());
  }
  return *shared_;
}

void TlsCarrier::touch() {
  if (shared_ != nullptr) shared_->warm(*this);
}

// --- readiness -----------------------------------------------------------------------------------

bool TlsCarrier::readable() const {
  return read_ended_ || (engine_->readable() && engine_->unsent() < Engine::kMostUnsent);
}

/// The wire may hold data that no event announces: read it before running a handler.
bool TlsCarrier::ready_to_read() {
  if (read_ended_ || !engine_->only_maybe()) return true;
  return !stalled() && engine_->look(true) && !engine_->only_maybe();
}

bool TlsCarrier::writable() const {
  return write_ended_ || (engine_->unsent() == 0 && !below_full_ && !engine_->write_needs_read());
}

/// Whether reading must wait until the peer has taken more of our output.
bool TlsCarrier::stalled() { return engine_->unsent() >= Engine::kMostUnsent && !engine_->flush(); }

void TlsCarrier::interest_changed() {
  (void)shared();
  if (inherited()) {
    step_.unqueue();
    held_.unqueue();
  }
  watch_below();
  update_ready();
}

/// As interest_changed(), for places where no caller could retry: if memory runs out, the
/// connection fails.
void TlsCarrier::go_on() {
  try {
    watch_below();
  } catch (const std::bad_alloc&) {
    if (handshaking()) return fail_handshake(out_of_memory());
    fail(out_of_memory());
  }
  update_ready();
}

/// Requests from the connection below the events that this connection can act on.
void TlsCarrier::watch_below() {
  if (!below_) return;
  ae::Mask wanted = ae::kNone;
  if (inherited()) {  // a forked child has no wire
  } else if (handshaking()) {
    if (!step_waits_) wanted = wanted | ae::kReadable;
    if (engine_->unsent() > 0) wanted = wanted | ae::kWritable;
  } else if (engine_ && !(closing() ? engine_->wire_failed() : engine_->failed())) {
    const bool reads = state() == State::kConnected && !engine_->ended() &&
                       (host().wants_read() || fresh_ || engine_->write_needs_read()) &&
                       engine_->unsent() < Engine::kMostUnsent;
    if (closing() ? !input_finished_ : reads) wanted = wanted | ae::kReadable;
    if (engine_->unsent() > 0 || (below_full_ && host().wants_write()))
      wanted = wanted | ae::kWritable;
  }
  const ae::Mask changed =
      wanted == watched_ ? ae::kNone : (wanted | watched_) & ~(wanted & watched_);
  if ((changed & ae::kReadable) != 0) {
    below_->set_read_handler((wanted & ae::kReadable) != 0
                                 ? Handler([this](Connection&) { below_readable(); })
                                 : Handler());
  }
  if ((changed & ae::kWritable) != 0) {
    below_->set_write_handler((wanted & ae::kWritable) != 0
                                  ? Handler([this](Connection&) { below_writable(); })
                                  : Handler());
  }
  watched_ = wanted;  // only now: the calls above may throw
  const bool stands = engine_ && state() == State::kConnected;
  if (stands && (engine_->ended() || engine_->failed())) host().peer_gone();
  if (const bool closes = stands && host().wants_close(); closes != watches_close_) {
    below_->set_close_handler(closes ? Handler([this](Connection&) { below_gone(); }) : Handler(),
                              below_gone_ ? CloseOn::kFailure : CloseOn::kEnd);
    watches_close_ = closes;
  }
}

void TlsCarrier::below_gone() {
  watches_close_ = false;
  below_gone_ = true;
  host().peer_gone();
  go_on();  // keeps watching for a failure
}

void TlsCarrier::below_readable() {
  if (handshaking()) {
    shared_->steps().push(step_);
    return;
  }
  if (closing()) {
    discard();
    return;
  }
  if (state() != State::kConnected) return;
  if (std::exchange(fresh_, false) && !host().wants_read()) {
    go_on();
    return;
  }
  touch();
  struct Then {  // runs even if the handler throws
    TlsCarrier& carrier;
    ~Then() {
      if (!carrier.closing()) carrier.go_on();
    }
  } then{*this};
  // Calls the handler directly, bypassing the ready list: the common case needs no second pass of
  // the loop. With a barrier the list is used, because it keeps the order.
  const bool straight = host().wants_read() && !host().connect_due() &&
                        !(host().wants_write() && host().barrier() == Barrier::kYes);
  if (!stalled() && engine_->look(true) && straight && !engine_->only_maybe())
    (void)host().run_read_handler();
}

/// Discards input while our output lingers: a peer that lingers too must be able to deliver its own
/// output.
void TlsCarrier::discard() {
  auto& scratch = shared().scratch();
  for (int i = 0; i < 16; ++i) {
    const ssize_t n = below_->read(scratch.data(), scratch.size());
    if (n > 0) continue;
    if (n < 0 && errno == EAGAIN) return;
    input_finished_ = true;  // end of stream, or an error that the next flush() reports
    go_on();
    return;
  }
}

void TlsCarrier::below_writable() {
  below_full_ = false;
  const bool flushed = engine_->flush();
  end_below();
  if (closing()) {
    if (flushed) finish_close();
    return;
  }
  if (handshaking()) {
    shared().steps().push(step_);  // the handshake may have waited for this write
  } else if (engine_->failed() && state() == State::kConnected) {
    (void)die("write to ");
  } else if (flushed && state() == State::kConnected) {
    (void)engine_->look(false);  // reading may have paused because of unsent bytes
  }
  go_on();
}

// --- data ----------------------------------------------------------------------------------------

ssize_t TlsCarrier::read(void* buffer, std::size_t size) {
  if (state() == State::kError) {
    const ssize_t n = engine_->read(buffer, size);
    return n > 0 ? n : host().no_more_unread();
  }
  if (stalled()) {
    watch_below();
    errno = EAGAIN;
    return -1;
  }
  touch();
  const ssize_t n = engine_->read(buffer, size);
  int err = errno;
  if (n == 0) {
    read_ended_ = true;
    if (write_ended_ && state() == State::kConnected) move_to(State::kClosed);
  } else if (n < 0 && engine_->failed()) {
    err = die("read from ");
  }
  go_on();
  errno = err;
  return n;
}

ssize_t TlsCarrier::writev(const iovec* vectors, int count) {
  if (write_ended_) {
    errno = EPIPE;
    return -1;
  }
  touch();
  ssize_t n;
  if (engine_->kernel().sends()) {
    n = pass_to_kernel(vectors, count);
  } else if (count == 1) {
    n = encrypt(static_cast<const char*>(vectors->iov_base), vectors->iov_len);
  } else {
    n = encrypt_gathered(vectors, count);
  }
  if (n > 0 && engine_->unsent() == 0 && !below_full_) return n;
  int err = errno;
  if (n < 0 && engine_->failed()) err = die("write to ");
  go_on();
  errno = err;
  return n;
}

/// Encrypts record by record until all is taken or the connection below takes no more.
ssize_t TlsCarrier::encrypt(const char* bytes, std::size_t size) {
  std::size_t taken = 0;
  do {
    const ssize_t n = engine_->write(bytes + taken, size - taken);
    if (n < 0) return taken > 0 ? static_cast<ssize_t>(taken) : -1;
    taken += static_cast<std::size_t>(n);
  } while (taken < size && engine_->unsent() == 0);
  return static_cast<ssize_t>(taken);
}

/// Copies pieces into a shared record if that saves a record, since each record costs the peer and
/// us as much as a full one. Other pieces are encrypted in place.
ssize_t TlsCarrier::encrypt_gathered(const iovec* vectors, int count) {
  auto& scratch = shared().scratch();
  constexpr std::size_t kRecord = Engine::kRecord;
  const auto records = [](std::size_t size) { return (size + kRecord - 1) / kRecord; };
  std::size_t left = 0;
  for (int i = 0; i < count; ++i) left += vectors[i].iov_len;
  std::size_t taken = 0;
  std::size_t offset = 0;  // into the first vector
  const auto advance = [&](std::size_t size) {
    while (count > 0 && size >= vectors->iov_len - offset) {
      size -= vectors->iov_len - offset;
      ++vectors;
      --count;
      offset = 0;
    }
    offset += size;
  };
  for (advance(0); count > 0;) {  // advance(0) skips empty vectors
    const char* record = static_cast<const char*>(vectors->iov_base) + offset;
    std::size_t size = std::min(vectors->iov_len - offset, kRecord);
    const auto more = [&] { return size < kRecord && 1 + records(left - size) != records(left); };
    if (more()) {
      std::memcpy(scratch.data(), record, size);
      for (int i = 1; i < count && more(); ++i) {
        const std::size_t piece = std::min(vectors[i].iov_len, kRecord - size);
        if (piece > 0) std::memcpy(scratch.data() + size, vectors[i].iov_base, piece);
        size += piece;
      }
      record = scratch.data();
      shared().counters.bytes_gathered += size;
    }
    const ssize_t n = engine_->write(record, size);
    if (n < 0) return taken > 0 ? static_cast<ssize_t>(taken) : -1;
    taken += static_cast<std::size_t>(n);
    left -= static_cast<std::size_t>(n);
    advance(static_cast<std::size_t>(n));
    if (engine_->unsent() != 0) break;
  }
  return static_cast<ssize_t>(taken);
}

/// Kernel TLS: writes plain text to the socket, which encrypts it.
ssize_t TlsCarrier::pass_to_kernel(const iovec* vectors, int count) {
  if (inherited()) {  // record numbers belong to the parent
    errno = ECANCELED;
    engine_->on_wire_failure();
    errno = ECANCELED;
    return -1;
  }
  if (!engine_->flush()) {
    errno = EAGAIN;
    return -1;
  }
  const ssize_t n = below_->writev(vectors, count);
  std::size_t asked = 0;
  for (int i = 0; i < count; ++i) asked += vectors[i].iov_len;
  below_full_ = n < 0 ? errno == EAGAIN : static_cast<std::size_t>(n) < asked;
  if (n < 0 && errno != EAGAIN) engine_->on_wire_failure();
  return n;
}

/// Marks the connection as failed; returns the errno to report with -1. If a write found the
/// failure, data that the peer sent before it can still be read.
int TlsCarrier::die(const char* what) {
  const Failure& own = engine_->failure();
  const Failure& below = why_below();
  const bool is_below = below && own.code != Errc::kTruncated;
  Failure why = out_of_memory();
  why.code = is_below ? below.code : own.code;
  try {
    if (own.code == Errc::kTooManyMessages) ++shared().counters.message_floods;
    why = is_below ? below : Failure(own.code, what + peer_address() + ": " + own.text);
  } catch (const std::bad_alloc&) {  // only the text is lost
  }
  fail(std::move(why));
  if (!engine_->reading_over()) host().keep_unread();
  const std::error_condition condition = host().failure().code.default_error_condition();
  return condition.category() == std::generic_category() ? condition.value() : EIO;
}

/// The failure of the layer below; empty if it did not cause the end. Uses why_ended(): a failed
/// connection below reports its failure only after earlier input has been read, and once this
/// connection has failed nothing reads it.
const Failure& TlsCarrier::why_below() const noexcept {
  static const Failure none;
  return engine_->wire_failed() ? below_->why_ended() : none;
}

/// While this connection has not failed, reports what the connection below knows.
const Failure& TlsCarrier::why_ended() const noexcept {
  const bool stands = below_ && state() == State::kConnected && !handshaking();
  return stands ? below_->why_ended() : Carrier::why_ended();
}

int TlsCarrier::shutdown() {
  if (!write_ended_) {
    write_ended_ = true;
    engine_->close_notify();
  }
  if (read_ended_) move_to(State::kClosed);
  go_on();
  return 0;
}

int TlsCarrier::shutdown_both() {
  ends_below_ = true;
  if (Carrier::shutdown_both() != 0) return -1;
  (void)engine_->flush();
  end_below();
  return 0;
}

/// Ends the connection below after shutdown_both(): a peer that does not read notices the end only
/// there.
void TlsCarrier::end_below() {
  if (!ends_below_ || closing() || engine_->unsent() > 0) return;
  ends_below_ = false;
  (void)below_->shutdown_both();
}

bool TlsCarrier::wait_for(ae::Mask direction, ae::TimePoint deadline) {
  const auto satisfied = [&] {
    const bool flushed = engine_->flush();
    if (direction == ae::kReadable) return !stalled() && engine_->look(true);
    if (engine_->write_needs_read()) (void)engine_->look(true);
    return flushed && !below_full_ && !engine_->write_needs_read();
  };
  bool ready;
  while (!(ready = satisfied()) && !engine_->failed()) {
    const bool last = Interruption::ends() || std::chrono::steady_clock::now() >= deadline;
    const bool reading = direction == ae::kReadable || engine_->write_needs_read();
    wait_below(reading, engine_->unsent() > 0 || below_full_, deadline);
    below_full_ = false;
    if (last) {
      ready = satisfied();
      break;
    }
  }
  watch_below();
  update_ready();
  return ready || engine_->failed();
}

/// Waits until the connection below can read or write, as requested. Both may be needed: the peer
/// may answer only after it got our unsent bytes, and may read only after it has sent.
void TlsCarrier::wait_below(bool reading, bool writing, ae::TimePoint deadline) {
  if (!reading || !writing) {
    lower().wait_for(reading ? ae::kReadable : ae::kWritable, deadline);
    return;
  }
  const ae::TimePoint soon = std::min(deadline, std::chrono::steady_clock::now() + kTurn);
  lower().wait_for(ae::kReadable, soon);
  lower().wait_for(ae::kWritable, std::min(deadline, std::chrono::steady_clock::now() + kTurn));
}

bool TlsCarrier::flush(ae::TimePoint until) noexcept {
  if (!engine_ || !below_ || handshaking()) return true;
  try {
    while (!engine_->flush()) {
      if (Interruption::ends() || std::chrono::steady_clock::now() >= until) break;
      lower().wait_for(ae::kWritable, until);
    }
    if (!closing()) {
      watch_below();
      update_ready();
    }
  } catch (const std::bad_alloc&) {  // the loop continues the work
  }
  const bool below = lower().flush(until);
  return engine_->unsent() == 0 && below;
}

// --- the end -------------------------------------------------------------------------------------

void TlsCarrier::leave_loop() noexcept {
  end_handshake();
  unqueue();
  step_.unqueue();
  held_.unqueue();
  Warm::unlink();
  if (timer_ != 0) loop()->remove_time_event(timer_);
  timer_ = 0;
}

void TlsCarrier::close() noexcept {
  leave_loop();
  if (aborts()) {
    cut();
    host().release();
    return;
  }
  try {
    if (engine_ && state() == State::kConnected && !write_ended_) engine_->close_notify();
    const bool all_sent = !engine_ || engine_->wire_failed() || engine_->flush();
    if (!all_sent && settings().linger > ae::Duration::zero()) {
      watch_below();
      timer_ = loop()->add_time_event(settings().linger, [this] {
        timer_ = 0;
        finish_close();
        return ae::kNoMore;
      });
      return;
    }
  } catch (const std::bad_alloc&) {  // no memory for close_notify or for lingering
  }
  finish_close();
}

/// Aborts without close_notify; the peer recognizes the cut by its absence.
void TlsCarrier::cut() noexcept {
  if (below_) below_.release()->abort();
}

void TlsCarrier::finish_close() noexcept {
  if (timer_ != 0) loop()->remove_time_event(timer_);
  timer_ = 0;
  // After its close_notify the peer sends nothing that could provoke a reset.
  if (below_ && engine_ && engine_->ended()) lower().expect_no_more();
  below_.reset();  // its close() delivers the rest
  host().release();
}

bool TlsCarrier::drain(ae::TimePoint until) noexcept {
  if (!engine_ || !below_ || handshaking()) return true;
  (void)flush(until);
  if (engine_->unsent() != 0) return false;
  if (closing()) finish_close();  // the connection below delivers the rest
  return true;
}

ae::Duration TlsCarrier::end_linger() const noexcept {
  if (!context_) return ae::Duration::zero();
  return std::min(settings().linger, settings().end_linger);
}

void TlsCarrier::abandon() noexcept {
  leave_loop();
  if (below_) below_->clear_handlers();  // it may outlive this object for a while
  detach_list();
  shared_ = nullptr;
}

bool TlsCarrier::leave(ae::EventLoop* to) {
  if (engine_) (void)engine_->flush();
  // The connection below arrives after this one, whose object its handlers use there.
  if (below_ && !ConnectionCore::of(*below_).move(to)) return false;
  leave_loop();
  detach_list();
  shared_ = nullptr;
  return true;
}

bool TlsCarrier::join(ae::EventLoop& loop) { return !below_ || below_->join(loop); }

// --- facts ---------------------------------------------------------------------------------------

std::optional<bool> TlsCarrier::is_local() const {
  return below_ ? below_->is_local() : std::nullopt;
}

std::vector<std::pair<std::string, std::string>> TlsCarrier::info() const {
  std::vector<std::pair<std::string, std::string>> facts;
  const auto add = [&](const char* key, const char* value) {
    if (value != nullptr && *value != '\0') facts.emplace_back(key, printable(value));
  };
  if (engine_ && (state() == State::kConnected || state() == State::kClosed)) {
    SSL* const ssl = engine_->ssl();
    add("tls", SSL_get_version(ssl));
    add("cipher", SSL_get_cipher_name(ssl));
    add("group", SSL_group_to_name(ssl, static_cast<int>(SSL_get_negotiated_group(ssl))));
    add("resumed", SSL_session_reused(ssl) == 1 ? "yes" : "no");
    add("server-name", SSL_get_servername(ssl, TLSEXT_NAMETYPE_host_name));
    const unsigned char* alpn = nullptr;
    unsigned size = 0;
    SSL_get0_alpn_selected(ssl, &alpn, &size);
    add("alpn", std::string(reinterpret_cast<const char*>(alpn), size).c_str());
    add("ktls", engine_->kernel().sends() ? engine_->kernel().receives() ? "send,receive" : "send"
                : engine_->kernel().receives() ? "receive"
                                               : "no");
  }
  if (below_) {
    for (auto& fact : below_->info()) facts.push_back(std::move(fact));
  }
  return facts;
}

std::string TlsCarrier::path() const {
  std::string line = "tls";
  if (engine_) {
    const SSL* const ssl = engine_->ssl();
    line.append(" ").append(SSL_get_version(ssl)).append(" ").append(SSL_get_cipher_name(ssl));
    if (engine_->kernel().sends() || engine_->kernel().receives()) line.append(" ktls");
    if (engine_->kernel().sends() != engine_->kernel().receives())
      line.append(engine_->kernel().sends() ? " send" : " receive");
  }
  return below_ ? line.append(" over ").append(below_->path()) : line;
}

std::string TlsCarrier::peer_certificate() const {
  X509* certificate = engine_ ? SSL_get0_peer_certificate(engine_->ssl()) : nullptr;
  return certificate == nullptr ? std::string() : to_pem(certificate);
}

std::string TlsCarrier::peer_user() const {
  return engine_ ? peer_user_of(engine_->ssl(), settings().peer_user) : std::string();
}

}}}  // namespace conn::tls
