// SPDX-License-Identifier: BSD-3-Clause
// Establishes a TLS connection: connects the layer below, then runs the handshake, in the loop or
// blocking.

#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>

#include "conn/kit/interruption.h"
#include "conn/setup_trace.h"
#include "conn/tls/carrier.h"
#include "conn/tls/type.h"

namespace conn { inline namespace AECONN_ABI { namespace tls {
namespace {

/// Kernel TLS is for TCP sockets only.
bool is_tcp_socket(int fd) {
  int protocol = 0;
  socklen_t size = sizeof protocol;
  return fd >= 0 && getsockopt(fd, SOL_SOCKET, SO_PROTOCOL, &protocol, &size) == 0 &&
         protocol == IPPROTO_TCP;
}

Failure mistake(const Error& error) {
  return {std::make_error_code(std::errc::invalid_argument), error.what()};
}

/// Returns make(), or out_of_memory() if there is no memory for it.
template <class Make>
Failure failure_of(Make make) noexcept {
  try {
    return make();
  } catch (const std::bad_alloc&) {
    return out_of_memory();
  }
}

}  // namespace

// --- beginning -----------------------------------------------------------------------------------

void TlsCarrier::begin(ConnectionPtr below, Role role, std::shared_ptr<const Context> context,
                       const std::string& name, HandshakeOwner* acceptor) {
  context_ = std::move(context);
  below_ = std::move(below);
  below_->clear_handlers();
  peer_name_ = name;
  make_engine(role);
  acceptor_ = acceptor;
  move_to(role == Role::kServer ? State::kAccepting : State::kConnecting);
  begin_clock(settings().handshake_timeout);
  start_handshake();
}

/// Prepares what connect() needs before connecting the layer below. False: the connection has
/// failed.
bool TlsCarrier::prepare(const Endpoint& to) {
  try {
    tls_type().check(to);
    target_ = tls_type().below_endpoint(to);
    context_ = tls_type().context_for(to.options);
    (void)context_->client();  // a missing file is reported before connecting
    // A path has no host name; the file system's permissions control access.
    peer_name_ =
        tls_type().peer_name(to.options, to.hosts.empty() ? "localhost" : to.hosts.front().name);
    below_ = tls_type().below_.create(*loop());
    return true;
  } catch (const Error& error) {
    fail(mistake(error));
    return false;
  }
}

void TlsCarrier::connect(const Endpoint& to) {
  if (!prepare(to)) {
    update_ready();
    return;
  }
  connect_by_ = std::chrono::steady_clock::now() + settings().connect_timeout;
  begin_clock(settings().connect_timeout);
  below_->connect(target_, [this](Connection&) { below_connected(); });
}

void TlsCarrier::below_connected() {
  if (state() != State::kConnecting) return;  // timed out before
  if (below_->state() != State::kConnected) {
    end_handshake();
    fail(failure_of([this] { return Failure{below_->error_code(), below_->last_error()}; }));
    update_ready();
    return;
  }
  try {
    SetupTrace::begin("TLS handshake");
    make_engine(Role::kClient);
    const ae::Duration left = connect_by_ - std::chrono::steady_clock::now();
    begin_clock(std::clamp(left, ae::Duration::zero(), settings().handshake_timeout));
    start_handshake();
  } catch (const Error& error) {
    end_handshake();
    fail(failure_of([&] { return mistake(error); }));
    update_ready();
  } catch (const std::bad_alloc&) {
    end_handshake();
    fail(out_of_memory());
    update_ready();
  }
}

void TlsCarrier::make_engine(Role role) {
  SSL_CTX* const context = role == Role::kServer ? context_->server() : context_->client();
  const int socket = settings().ktls && is_tcp_socket(below_->fd()) ? below_->fd() : -1;
  engine_ = std::make_unique<Engine>(context, role, static_cast<Wire&>(*this), socket);
  if (role == Role::kServer) engine_->hold_last_flight();
  if (role == Role::kClient) context_->prepare_client(*engine_, peer_name_, below_->peer_address());
}

void TlsCarrier::begin_clock(ae::Duration timeout) {
  if (timer_ != 0 && loop()->again(timer_, timeout)) return;
  timer_ = loop()->add_time_event(timeout, [this] {
    timer_ = 0;
    if (handshaking()) ++shared_->counters.handshake_timeouts;
    fail_handshake(failure_of([this] { return timeout_failure(); }));
    return ae::kNoMore;
  });
}

void TlsCarrier::start_handshake() {
  began_ = std::chrono::steady_clock::now();
  ++shared().counters.handshaking;
  if (SSL_is_server(engine_->ssl()) == 0) shared().steps().push(step_);  // the client sends first
  watch_below();
}

// --- going on ------------------------------------------------------------------------------------

std::size_t TlsCarrier::Step::run_ready() {
  carrier.step_waits_ = !carrier.shared_->another_step();
  if (carrier.step_waits_) {
    carrier.shared_->steps().push(*this);
    carrier.go_on();
    return 0;
  }
  carrier.step();
  return 1;
}

std::size_t TlsCarrier::Held::run_ready() {
  if (!carrier.engine_->holds()) return 0;
  (void)carrier.engine_->flush();
  if (carrier.engine_->failed() && carrier.state() == State::kConnected)
    (void)carrier.die("write to ");
  carrier.go_on();
  return 0;
}

void TlsCarrier::step() {
  Engine::Step result = Engine::Step::kFailed;
  Failure failure;
  try {
    result = engine_->handshake();
    if (result == Engine::Step::kWantRead) return watch_below();
    if (result == Engine::Step::kFailed) {
      failure = handshake_failure();
    } else if (const std::string expired = why_not_resumed(); !expired.empty()) {
      result = Engine::Step::kFailed;
      failure = {Errc::kVerification, "TLS handshake with " + peer_address() + ": " + expired};
    }
  } catch (const std::bad_alloc&) {
    result = Engine::Step::kFailed;
    failure = out_of_memory();
  }
  if (result == Engine::Step::kDone) {
    succeed();
  } else {
    fail_handshake(failure);
  }
}

void TlsCarrier::succeed() {
  end_handshake();
  if (state() == State::kConnecting) SetupTrace::end();
  move_to(State::kConnected);
  fresh_ = true;
  try {
    touch();
    // The first request may have come with the last handshake message; its reply is then sent
    // together with the tickets.
    if (engine_->holds()) shared_->held().push(held_);
    (void)engine_->look(false);
    watch_below();
  } catch (const std::bad_alloc&) {
    ++shared_->counters.handshake_failures;
    fail_handshake(out_of_memory());
    return;
  }
  ++shared_->counters.handshakes;
  if (SSL_session_reused(engine_->ssl()) == 1) ++shared_->counters.resumed;
  update_ready();
  // Last: the accept handler may close this connection or pass it to another thread.
  if (acceptor_ != nullptr) acceptor_->finished(*this);
}

/// Why a resumed session must be rejected; empty if it may be used. A session must not outlive the
/// certificate that was checked in the full handshake.
std::string TlsCarrier::why_not_resumed() const {
  SSL* const ssl = engine_->ssl();
  if (SSL_session_reused(ssl) != 1 || (SSL_get_verify_mode(ssl) & SSL_VERIFY_PEER) == 0) return {};
  const X509* certificate = SSL_get0_peer_certificate(ssl);
  if (certificate == nullptr || X509_cmp_current_time(X509_get0_notAfter(certificate)) >= 0)
    return {};
  return "the peer's certificate \"" + subject_of(certificate) +
         "\": certificate has expired, after the session that it resumes began";
}

void TlsCarrier::fail_handshake(const Failure& failure) {
  if (handshaking()) ++shared_->counters.handshake_failures;
  end_handshake();
  fail(failure_of([&] { return failure; }));
  if (!engine_) below_.reset();  // stop connecting
  if (acceptor_ != nullptr) {
    acceptor_->failed(*this, failure);
    return;
  }
  go_on();
}

void TlsCarrier::evict() {
  ++shared_->counters.evicted;
  fail_handshake(failure_of([this] {
    return Failure{Errc::kTimeout, "TLS handshake with " + peer_address() +
                                       ": it gave way to newer ones (max-handshakes)"};
  }));
}

Failure TlsCarrier::handshake_failure() const {
  const std::string with = "TLS handshake with " + peer_address() + ": ";
  const Failure& below = why_below();
  if (below && engine_->failure().code != Errc::kVerification) {
    return {below.code, with + below.text};
  }
  return {engine_->failure().code, with + engine_->failure().text};
}

Failure TlsCarrier::timeout_failure() const {
  Endpoint to = target_;  // as the user wrote it
  to.scheme = type().name();
  to.options = {};
  return {Errc::kTimeout, engine_ ? "TLS handshake with " + peer_address() + ": not over in time"
                                  : "connect to " + to.to_string() + ": no answer in time"};
}

void TlsCarrier::end_handshake() noexcept {
  if (handshaking() && shared_ != nullptr) --shared_->counters.handshaking;
  began_ = {};
  step_.unqueue();
  if (timer_ != 0) loop()->remove_time_event(timer_);
  timer_ = 0;
}

// --- blocking ------------------------------------------------------------------------------------

void TlsCarrier::connect_blocking(const Endpoint& to, ae::TimePoint deadline) {
  if (!prepare(to)) return;
  deadline = std::min(deadline, std::chrono::steady_clock::now() + settings().connect_timeout);
  const auto left = [&] { return deadline - std::chrono::steady_clock::now(); };
  if (!below_->connect_blocking(target_, left())) {
    fail({below_->error_code(), below_->last_error()});
    return;
  }
  SetupTrace::begin("TLS handshake");
  try {
    make_engine(Role::kClient);
  } catch (const Error& error) {
    fail(mistake(error));
    return;
  }
  if (left() > settings().handshake_timeout) {
    deadline = std::chrono::steady_clock::now() + settings().handshake_timeout;
  }
  for (;;) {
    const Engine::Step result = engine_->handshake();
    if (result == Engine::Step::kDone) break;
    if (result == Engine::Step::kFailed) {
      fail(handshake_failure());
      return;
    }
    if (Interruption::ends() || std::chrono::steady_clock::now() >= deadline) {
      fail(timeout_failure());
      return;
    }
    const bool writing = !engine_->flush();
    lower().wait_for(writing ? ae::kWritable : ae::kReadable, deadline);
  }
  if (const std::string expired = why_not_resumed(); !expired.empty()) {
    fail({Errc::kVerification, "TLS handshake with " + peer_address() + ": " + expired});
    return;
  }
  SetupTrace::end();
  move_to(State::kConnected);
  ++shared().counters.handshakes;
  if (SSL_session_reused(engine_->ssl()) == 1) ++shared().counters.resumed;
  (void)engine_->look(false);
  (void)flush(ae::TimePoint::min());  // send our last message now: the peer waits for it
  interest_changed();
}

}}}  // namespace conn::tls
