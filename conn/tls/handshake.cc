// SPDX-License-Identifier: BSD-3-Clause
#include "conn/tls/handshake.h"

#include <algorithm>
#include <cassert>
#include <cerrno>
#include <new>
#include <utility>

#include "conn/kit/interruption.h"
#include "conn/setup_trace.h"
#include "conn/tls/loop_state.h"
#include "conn/tls/type.h"

namespace conn { inline namespace AECONN_ABI { namespace tls {
namespace {

/// Returns the result of make(), or out_of_memory() if it throws std::bad_alloc.
template <class Make>
Failure failure_of(Make make) noexcept {
  try {
    return make();
  } catch (const std::bad_alloc&) {
    return out_of_memory();
  }
}

/// Returns the time for connecting both layers, TLS and the one below: that of the endpoint if it
/// has one, else that of the type. Throws Error for a bad value.
ae::Duration connect_timeout(const Options& endpoint, const Settings& settings) {
  constexpr const char* kKey = "connect-timeout";
  return endpoint.has(kKey) ? OptionReader(tls_options(), endpoint).duration(kKey)
                            : settings.connect_timeout;
}

}  // namespace

Handshake::~Handshake() {
  recall();
  if (keeper_.owner != nullptr) keeper_.place->handshake = nullptr;
  if (began_ != ae::TimePoint{}) --shared_.counters.handshaking;
  if (timer_ != 0) shared_.loop().remove_time_event(timer_);
}

void Handshake::move_to(Stage next) noexcept {
  assert(allowed(stage_, next));
  stage_ = next;
}

// --- starting the handshake ----------------------------------------------------------------------

/// Reads the options, sets the deadline (connect_by_) and creates the connection below TLS, which
/// is not connected yet. Returns why that failed; an empty Failure means success.
Failure Handshake::prepare(const Endpoint& to) {
  try {
    target_ = type_.below_endpoint(to);
    std::shared_ptr<const Context> context = type_.context_for(to.options, shared_);
    // loads the client's files, so that a missing file is reported before connecting
    (void)context->client();
    // A Unix socket's path has no host name, so "localhost" is used; the file system's permissions
    // control access.
    peer_name_ =
        type_.peer_name(to.options, to.hosts.empty() ? "localhost" : to.hosts.front().name);
    connect_by_ =
        std::chrono::steady_clock::now() + connect_timeout(to.options, context->settings());
    session_.take(type_.below_.create(shared_.loop()), std::move(context));
    return {};
  } catch (const Error& error) {
    return Failure(error);
  }
}

void Handshake::connect(const Endpoint& to) {
  if (Failure why = prepare(to)) return fail(std::move(why));
  set_clock(std::max(connect_by_ - std::chrono::steady_clock::now(), ae::Duration::zero()));
  session_.below().connect(target_);
}

void Handshake::below_connected() {
  Failure why = failure_of([this]() -> Failure {
    Below& below = session_.below();
    if (below.state() != State::kConnected) return below.failure();
    try {
      SetupTrace::begin("TLS handshake");
      session_.make_engine(Role::kClient, peer_name_);
      const ae::Duration left = connect_by_ - std::chrono::steady_clock::now();
      const ae::Duration most = session_.settings().handshake_timeout;
      set_clock(std::clamp(left, ae::Duration::zero(), most));
      start(Role::kClient);
      return {};
    } catch (const Error& error) {
      return Failure(error);
    }
  });
  if (why) {
    client_.handshake_over(std::move(why));
  } else {
    client_.go_on();
  }
}

void Handshake::begin(Role role, const std::string& name, const Keeper& keeper) {
  session_.make_engine(role, name);
  keeper_ = keeper;
  set_clock(session_.settings().handshake_timeout);
  start(role);
}

void Handshake::set_clock(ae::Duration timeout) {
  if (timer_ != 0 && shared_.loop().again(timer_, timeout)) return;
  timer_ = shared_.loop().add_time_event(timeout, [this] {
    timer_ = 0;
    recall();
    if (began_ != ae::TimePoint{}) ++shared_.counters.handshake_timeouts;
    fail(failure_of([this] { return timeout_failure(); }));
    return ae::kNoMore;
  });
}

void Handshake::start(Role role) {
  shared_.threads().grow(session_.settings().handshake_threads);
  move_to(Stage::kRunning);
  began_ = std::chrono::steady_clock::now();
  ++shared_.counters.handshaking;
  // A client sends the first message. A server must first receive one, which may be there already.
  if (role == Role::kClient || session_.below().has_early_input()) proceed();
}

// --- the steps of the handshake ------------------------------------------------------------------

ae::Mask Handshake::wanted() const noexcept {
  ae::Mask wanted = ae::kNone;
  if (stage_ == Stage::kConnecting || stage_ == Stage::kLent) return wanted;
  if (stage_ == Stage::kRunning) wanted = wanted | ae::kReadable;
  if (session_.engine().output().unsent() > 0) wanted = wanted | ae::kWritable;
  return wanted;
}

void Handshake::proceed() {
  if (stage_ != Stage::kLent) shared_.steps().push(*this);
}

std::size_t Handshake::run_ready() {
  if (!shared_.another_step()) {
    if (stage_ == Stage::kRunning) move_to(Stage::kPostponed);
    shared_.steps().push(*this);
    client_.go_on();
    return 0;
  }
  if (stage_ == Stage::kPostponed) move_to(Stage::kRunning);
  step();
  return 1;
}

/// Continues the handshake: takes the result of the step that was given to a thread. If there is no
/// such step, gives the next one to a thread or, if that is not possible, runs it here.
void Handshake::step() {
  Engine::Step result = Engine::Step::kFailed;
  bool lent = false;
  Failure why = failure_of([&]() -> Failure {
    if (stage_ == Stage::kLent) {
      result = take_back();
    } else if (lend_step()) {
      lent = true;
      return {};
    } else {
      result = session_.engine().handshake();
    }
    return result_of(result);
  });
  if (why) return fail(std::move(why));
  if (!lent && result == Engine::Step::kDone) return client_.handshake_over({});
  // No event announces bytes that were read before TLS began, so the next step is queued here.
  if (!lent && session_.below().has_early_input()) proceed();
  client_.go_on();
}

/// Lends the engine to a thread, which runs the next step. Returns false, and lends nothing, if
/// there are no threads or the engine does not allow it, for example without input
/// (Engine::begin_lent_step()).
bool Handshake::lend_step() {
  if (session_.settings().handshake_threads == 0 || !session_.engine().begin_lent_step())
    return false;
  lent_ = session_.lend_engine();
  move_to(Stage::kLent);
  if (shared_.threads().push(*this)) {
    ++shared_.counters.thread_steps;
    return true;
  }
  lent_->run_step();  // there is no thread, as in a child of fork(): runs the step here
  step_over();
  return true;
}

void Handshake::step_over() noexcept { shared_.steps().push(*this); }

/// Takes the engine back after a thread has run a step, or before any thread has begun it. Returns
/// the result of the step.
Engine::Step Handshake::take_back() {
  session_.give_back(std::move(lent_));
  move_to(Stage::kRunning);
  return session_.engine().end_step();
}

/// If the engine is lent to a thread, takes it back, so that the handshake can end. If the thread
/// is running the step, waits for its end. In a child of fork() the thread does not exist, and
/// there is no wait.
void Handshake::recall() noexcept {
  if (stage_ != Stage::kLent) return;
  shared_.threads().withdraw(*this);
  unqueue();
  try {
    (void)take_back();
  } catch (const std::bad_alloc&) {  // lack of memory does not matter: the handshake ends anyway
  }
}

/// Ends the handshake with `failure`. Must be the last call in a function, because the client
/// destroys this object.
void Handshake::fail(Failure failure) {
  recall();
  if (began_ != ae::TimePoint{}) ++shared_.counters.handshake_failures;
  // stops the attempt to connect the layer below TLS
  if (stage_ == Stage::kConnecting) session_.below().close(false);
  client_.handshake_over(std::move(failure));
}

void Handshake::evict() {
  ++shared_.counters.evicted;
  fail(failure_of([this] {
    return Failure{Errc::kTimeout, with_peer() + "it gave way to newer ones (max-handshakes)"};
  }));
}

// --- error texts ---------------------------------------------------------------------------------

std::string Handshake::with_peer() const {
  return "TLS handshake with " + session_.below().carrier().facts().peer_address() + ": ";
}

/// Returns the failure of the handshake if the engine's last step had the result `step`; empty if
/// the handshake has not failed.
Failure Handshake::result_of(Engine::Step step) const {
  if (step == Engine::Step::kWantRead) return {};
  if (step == Engine::Step::kDone) {
    const std::string expired = why_not_resumed();
    return expired.empty() ? Failure() : Failure{Errc::kVerification, with_peer() + expired};
  }
  const Failure& own = session_.engine().failure();
  const Failure* const below = session_.why_below();
  // If the failure did not come from the connection below, that has failed only afterwards: the
  // peer was gone when an alert was sent to it.
  const bool only_after = own.code == Errc::kVerification || own.code == Errc::kHandshake;
  const Failure& cause = below != nullptr && !only_after ? *below : own;
  return {cause.code, with_peer() + cause.text};
}

/// Returns why a resumed session must be rejected; empty if it may be used. A session must not
/// outlive the certificate that was checked in the full handshake.
std::string Handshake::why_not_resumed() const {
  SSL* const ssl = session_.engine().ssl();
  if (SSL_session_reused(ssl) != 1 || (SSL_get_verify_mode(ssl) & SSL_VERIFY_PEER) == 0) return {};
  const X509* certificate = SSL_get0_peer_certificate(ssl);
  if (certificate == nullptr || X509_cmp_current_time(X509_get0_notAfter(certificate)) >= 0)
    return {};
  return "the peer's certificate \"" + subject_of(certificate) +
         "\": certificate has expired, after the session that it resumes began";
}

Failure Handshake::timeout_failure() const {
  if (session_.begun()) return {Errc::kTimeout, with_peer() + "not over in time"};
  Endpoint to = target_;  // becomes the endpoint that the user named, without options
  to.scheme = type_.name();
  to.options = {};
  return {Errc::kTimeout, "connect to " + to.to_string() + ": no answer in time"};
}

// --- the handshake of a blocking connect ---------------------------------------------------------

Failure Handshake::run(const Endpoint& to, ae::TimePoint deadline) {
  if (Failure why = prepare(to)) return why;
  Below& below = session_.below();
  const Settings& settings = session_.settings();
  const auto now = [] { return std::chrono::steady_clock::now(); };
  deadline = std::min(deadline, connect_by_);
  if (!below.connect_blocking(target_, deadline)) return below.failure();
  SetupTrace::begin("TLS handshake");
  try {
    session_.make_engine(Role::kClient, peer_name_);
  } catch (const Error& error) {
    return Failure(error);
  }
  Engine& engine = session_.engine();
  deadline = std::min(deadline, now() + settings.handshake_timeout);
  for (;;) {
    const Engine::Step step = engine.handshake();
    if (step != Engine::Step::kWantRead) return result_of(step);
    if (Interruption::ends())
      return errno_failure(EINTR, "TLS handshake with " + below.carrier().facts().peer_address());
    if (now() >= deadline) return timeout_failure();
    const bool writing = !engine.flush();
    below.carrier().wait_for(writing ? ae::kWritable : ae::kReadable, deadline);
  }
}

}}}  // namespace conn::tls
