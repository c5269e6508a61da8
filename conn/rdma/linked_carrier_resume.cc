// SPDX-License-Identifier: BSD-3-Clause
// How a connection with a session loses its path, and goes on over another one (docs/resume.md).
//
//   end_path() -> lose_path()       the queue pair is stopped: nothing more is counted but what the
//                                   device still reports of it
//   reap() -> leave_path()          the device has reported all; bytes are copied out of the path's
//                                   memory, and its objects are destroyed
//   dial_again()                    connecting end: a request for a new path, until one is answered
//   on_resume_request() -> accept_again()
//                                   accepting end: the peer's request
//   on_set_up() -> resend()         both ends: the bytes that the peer has not counted go first
//
// What close() does without a path is in linked_carrier_forget.cc.

#include <fmt/format.h>
#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <new>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "conn/kit/retry_after.h"
#include "conn/rdma/device/reject_reason.h"
#include "conn/rdma/linked_carrier.h"
#include "conn/rdma/protocol/resume_message.h"

namespace conn { inline namespace AECONN_ABI { namespace rdma {
namespace {

ae::TimePoint clock_now() { return std::chrono::steady_clock::now(); }

// How many times the device is asked for the last reports of a queue pair before the first pause.
constexpr int kSpins = 1000;

std::uint32_t milliseconds(ae::Duration duration) {
  return static_cast<std::uint32_t>(
      std::chrono::duration_cast<std::chrono::milliseconds>(duration).count());
}

// Returns a failure with the text that `text` returns, or without one if there is no memory for it.
template <class Text>
Failure failure_of(std::error_code code, const Text& text) noexcept {
  Failure failure;
  failure.code = code;
  try {
    failure.text = text();
  } catch (const std::exception&) {
  }
  return failure;
}

Failure gap() noexcept {
  return failure_of(std::make_error_code(std::errc::connection_reset), [] {
    return std::string("the path was lost, and bytes that the peer misses are gone with it");
  });
}

// Adds to the reason of the loss that no new path was found.
Failure given_up(const Session& session, ae::TimePoint now) noexcept {
  return failure_of(session.why().code, [&] {
    return fmt::format("{}; no new path in {} ms", session.why().text,
                       milliseconds(now - session.lost_at()));
  });
}

}  // namespace

// --- sessions ------------------------------------------------------------------------------------

void LinkedCarrier::renew_stream() {
  if (session_ != nullptr && session_->lost())
    return link_.stream.begin_path(session_->confirmed(), clock_now());
  session_.reset();  // left by an attempt to connect that failed after the peer's answer
  link_.renew_stream(host().id());
}

SetupUser::Request LinkedCarrier::request(Hello hello) {
  if (session_ != nullptr && session_->lost()) {
    // Setup calls this again for each address that it tries in an attempt, and when it tries one
    // address twice. Each request has a new generation.
    ResumeMessage message{.hello = hello,
                          .generation = session_->next_generation(),
                          .session = session_->id(),
                          .received = link_.stream.inbound().line().total()};
    ask_to_forget(message);
    const ResumeBytes bytes =
        seal_request(message, session_->key(), bound_address(link_.id().local()));
    std::copy(bytes.end() - 16, bytes.end(), session_->request_mac.begin());
    return Request(bytes);
  }
  if (target_ != nullptr) {
    if (link_.path.iwarp())
      throw VerbsError(Failure{std::make_error_code(std::errc::not_supported),
                               fmt::format("resume=yes: {} is an iWARP device, whose completions "
                                           "do not prove that the peer has the bytes",
                                           link_.context()->name())});
    hello.flags |= Hello::kResumes;
    hello.resume_ms = milliseconds(link_.settings().resume_time);
  }
  return Request(encode(hello, HelloKind::kRequest));
}

std::optional<Hello> LinkedCarrier::take_answer(std::span<const std::byte> data) {
  const auto keep_bytes = [this] {
    link_.sender.keep_until_confirmed(&link_.domain()->local(), link_.settings().limit());
  };
  if (session_ != nullptr && session_->lost()) {
    if (session_->asked_to_forget)
      throw VerbsError(Failure{std::make_error_code(std::errc::protocol_error),
                               "whoever answers there does not forget the session"});
    const std::optional<ResumeMessage> answer = decode_resume(data);
    if (!answer || answer->session != session_->id() ||
        answer->generation != session_->generation() ||
        !verify_answer(data, session_->key(), session_->request_mac))
      throw VerbsError(Failure{std::make_error_code(std::errc::protocol_error),
                               "whoever answers there does not know this session"});
    if (!session_->take_count(answer->received))
      throw VerbsError(Failure{gap().code, std::string(text_of(Refused::kGap))});
    link_.stream.go_on(session_->confirmed(), answer->hello);
    keep_bytes();
    return answer->hello;
  }
  const std::optional<Hello> hello = decode_hello(data, HelloKind::kAnswer);
  if (!hello) return hello;
  link_.stream.on_hello(*hello);
  if (target_ == nullptr || (hello->flags & Hello::kResumes) == 0) return hello;
  keep_bytes();
  link_.stream.set_resumes();
  session_ = std::make_unique<Session>(
      hello->grant, std::min<ae::Duration>(link_.settings().resume_time,
                                           std::chrono::milliseconds(hello->resume_ms)));
  return hello;
}

SetupUser::Request LinkedCarrier::answer_hello(const std::optional<Hello>& asked, Hello& ours) {
  const Settings& settings = link_.settings();
  if (asked && settings.resume && (asked->flags & Hello::kResumes) != 0 && !link_.path.iwarp()) {
    auto [grant, entry] =
        SessionTable::of_process().add({&link_.state().loop(), link_.state().shared_cm(), this});
    link_.sender.keep_until_confirmed(&link_.domain()->local(), settings.limit());
    link_.stream.set_resumes();
    session_ = std::make_unique<Session>(
        grant,
        std::min<ae::Duration>(settings.resume_time, std::chrono::milliseconds(asked->resume_ms)));
    session_->entry = std::move(entry);
    ours.flags |= Hello::kResumes | Hello::kForgets;
    ours.resume_ms = milliseconds(settings.resume_time);
    ours.grant = grant;
  }
  return Request(encode(ours, HelloKind::kAnswer));
}

void LinkedCarrier::end_session() noexcept {
  if (session_ == nullptr) return;
  if (session_->lost() && !moving_) --link_.state().statistics().lost;
  session_->end();
}

// --- the loss of the path ------------------------------------------------------------------------

void LinkedCarrier::end_path(Failure failure) noexcept {
  if (link_.stage.ended() || link_.stage.phase() == Phase::kLost) return;
  if (session_ != nullptr && session_->lost()) return on_attempt_failed(std::move(failure));
  if (!lose_path(failure)) end_with(std::move(failure));
}

// Stops the queue pair, and has reap() leave the path. Returns false if the connection cannot go on
// over another one: it was not handed to the program yet, or is being aborted.
bool LinkedCarrier::lose_path(Failure& failure) noexcept {
  if (session_ == nullptr || !link_.stage.open() || listener_ != nullptr || inherited() ||
      link_.stream.outbound().end().aborted() || link_.stream.failure() != nullptr)
    return false;
  LoopState& state = link_.state();
  if (state.statistics().lost >= kMostLost) return false;
  const ae::TimePoint now = clock_now();
  // This end waits longer if it accepts: the connecting end may learn of the loss later, by its
  // keepalives at the latest.
  const ae::Duration later = link_.role() == Role::kServer
                                 ? 4 * link_.settings().keepalive + link_.patience()
                                 : ae::Duration::zero();
  name_peer(failure);
  session_->lose(link_.stage.phase(), std::move(failure), now, later);
  if (session_->resumes_as() == Phase::kClosing) session_->give_up_at(close_deadline_);
  ++state.statistics().lost;
  deadline_.clear(loop());
  pace_.clear(loop());
  link_.stage.move(Phase::kLost);
  state.remove(*this);
  link_.stop_and_report();
  // Nothing is sent through a port without a link: Soft-RoCE's queue pair for connection management
  // does not recover from a message that has no route.
  if (link_.id() && link_.context() != nullptr) link_.ask_port();
  const bool tells = link_.stage.handshake() == Handshake::kKnown && link_.can_disconnect();
  if (tells && link_.id()) (void)rdma_disconnect(link_.id().get());
  state.want_reap(*this);
  state.look_at(*this, now + TickWheel::kWidth);
  host().path_changed();
  update_ready();
  return true;
}

// Copies the bytes of both directions out of the path's memory, and destroys its objects.
void LinkedCarrier::leave_path() {
  link_.destroy_queue_pair();  // handles the last completions
  Stream& stream = link_.stream;
  const StagingQueue& queue = link_.sender.queue();
  std::vector<std::byte> bytes(queue.held());
  std::unique_ptr<std::byte[]> unread;
  StreamReceiver& inbound = stream.inbound();
  // Bytes that were copied when an earlier path was lost stay where they are.
  const bool to_copy = inbound.unread_bytes() != inbound.left_over();
  if (to_copy) unread = std::make_unique<std::byte[]>(inbound.unread_bytes());
  const std::uint64_t posted = stream.outbound().peer_windows().total();
  queue.copy_held(bytes.data());
  session_->keep(posted - queue.in_flight(), posted, std::move(bytes));
  if (to_copy) {
    inbound.leave_windows(unread.get());
    keep_left_over(std::move(unread));
  } else {
    inbound.drop_windows();
  }
  link_.sender.drop_all();
  tell_references();
  link_.release(reader_.viewed());
  link_.state().forget(*this);
}

bool LinkedCarrier::leave_path_now() {
  if (link_.sender.queue().reserving()) return false;
  (void)end_view();
  if (!session_->lost()) {
    Failure why{std::make_error_code(std::errc::operation_canceled), "moves to another loop"};
    if (!lose_path(why)) return false;
    session_->prefer_same_address();
  } else if (link_.stage.phase() != Phase::kLost) {
    give_up_attempt();
  }
  setup_.reset();
  if (!link_.id() && link_.queue_pair() == nullptr) return true;
  const ae::TimePoint until = clock_now() + Session::kQuietPatience;
  for (int i = 0; !link_.quiet(); ++i) {
    link_.drain();
    link_.context()->on_async_event();
    if (link_.quiet() || clock_now() >= until) break;
    if (i >= kSpins) (void)::poll(nullptr, 0, 1);
  }
  leave_path();
  return true;
}

void LinkedCarrier::keep_left_over(std::unique_ptr<std::byte[]> unread) {
  // Of the copies that are replaced while the program has a view, the view can show only the first.
  if (session_ != nullptr && reader_.viewed() && session_->viewed == nullptr)
    session_->viewed = std::move(left_over_);
  left_over_ = std::move(unread);
}

bool LinkedCarrier::end_view() noexcept {
  const bool waited = reader_.end_view();
  if (session_ != nullptr) session_->viewed.reset();
  link_.release_kept(false);
  return waited;
}

void LinkedCarrier::on_window_read() {
  if (link_.stream.inbound().left_over() == 0) left_over_.reset();
  after_input();
}

void LinkedCarrier::go_on_without_path() {
  LoopState& state = link_.state();
  const ae::TimePoint now = clock_now();
  if (link_.stage.phase() != Phase::kLost) {
    // Timers do not run in blocking operations, so the deadline of an attempt is checked here.
    if (setup_ && now >= setup_->address_deadline()) setup_->on_deadline();
    if (link_.stage.connecting() && closing() && now >= session_->until())
      return on_attempt_failed(session_->why());
    if (session_->lost() && !link_.stage.ended()) state.look_at(*this, now + kAttemptTick);
    return;
  }
  try {
    setup_.reset();
    if (link_.id() || link_.queue_pair() != nullptr) {
      const bool settled = link_.quiet() || now >= session_->left_by();
      // Memory that the program has reserved belongs to the path, so the path must stay.
      if (!settled || link_.sender.queue().reserving()) {
        if (now >= session_->until()) return end_with(given_up(*session_, now));
        return state.look_at(*this, now + TickWheel::kWidth);
      }
      leave_path();
      if (link_.stage.ended()) return;
    }
    if (now >= session_->until()) return end_with(given_up(*session_, now));
    if (link_.role() == Role::kServer) {
      if (session_->request != nullptr) return accept_again(std::move(session_->request));
      session_->set_next(session_->until());
    } else if (now >= session_->next_at()) {
      return dial_again();
    }
    state.look_at(*this, session_->next_at());
  } catch (const std::exception&) {
    end_with(out_of_memory());
  }
}

// --- a new path ----------------------------------------------------------------------------------

void LinkedCarrier::dial_again() {
  link_.stage.move(Phase::kResolving);
  // An address that is silent takes half of an attempt, and a port without a link, or a lost
  // device, ends it: each attempt begins with another address, the first not with that of the lost
  // path.
  const std::size_t first = session_->begin_attempt();
  renew_stream();
  set_up(*target_, std::min(session_->until(), clock_now() + Session::kAttempt), first);
  if (!deadline_.set(setup_->time_left(), Deadline::Of::kAddress)) throw std::bad_alloc();
  link_.state().look_at(*this, clock_now() + kAttemptTick);
  if (link_.state().pumping())
    // The loop, which does not run now, would deliver the answer of a look-up. So this call blocks
    // until the answer is there, but no longer than a tick, since the blocking operation and the
    // loop's other connections wait meanwhile.
    setup_->look_up_all(clock_now() + kAttemptTick);
  else
    setup_->look_up_next();
}

// Stops what an attempt has made; reap() destroys it.
void LinkedCarrier::give_up_attempt() noexcept {
  deadline_.clear(loop());
  if (link_.stage.phase() != Phase::kLost) link_.stage.move(Phase::kLost);
  link_.stop();
  session_->on_stopped(clock_now());
}

// May be called from functions of setup_, so setup_ is destroyed later.
void LinkedCarrier::on_attempt_failed(Failure why) noexcept {
  give_up_attempt();
  LoopState& state = link_.state();
  const ae::TimePoint now = clock_now();
  if (link_.role() == Role::kClient) {
    Refused refused = setup_ != nullptr ? setup_->refused() : Refused::kNone;
    if (session_->peer_misses_bytes()) refused = Refused::kGap;
    // Another address may know the session.
    const bool several = setup_ != nullptr && setup_->addresses() > 1;
    const bool nobody = why.retry_after.count() == 0 &&
                        (refused != Refused::kNone || why.code == std::errc::connection_refused);
    if (refused == Refused::kGap) return end_with(gap());
    if (refused != Refused::kNone && (!several || session_->asked_to_forget))
      return end_with(failure_of(session_->why().code, [this] {
        return session_->why().text + "; the peer has ended it";
      }));
    if (!session_->plan_next(now, nobody)) return end_with(given_up(*session_, now));
    if (why.retry_after.count() != 0) session_->set_next(now + why.retry_after);
  } else {
    session_->set_next(session_->until());
  }
  state.want_reap(*this);
}

void LinkedCarrier::on_resume_request(std::unique_ptr<RdmaPending> request,
                                      const ResumeMessage& message) {
  if (inherited() || link_.stage.ended() || listener_ != nullptr)
    return request->refuse(text_of(Refused::kOver));
  if (!session_->take_generation(message.generation)) return;
  session_->request = std::move(request);  // the newest one counts
  switch (link_.stage.phase()) {
    case Phase::kLost:
      break;
    case Phase::kAccepting:
      give_up_attempt();
      break;
    default: {
      Failure why{std::make_error_code(std::errc::connection_reset), "the peer lost the path"};
      if (lose_path(why)) break;
      session_->request->refuse(text_of(Refused::kOver));
      session_->request.reset();
      return;
    }
  }
  link_.state().want_reap(*this);
}

void LinkedCarrier::accept_again(std::unique_ptr<RdmaPending> request) {
  const ResumeMessage asked = *decode_resume(request->private_data());
  if (asked.reason == ResumeReason::kForget) return forget(*request, asked);
  if (!session_->take_count(asked.received)) {
    request->refuse(text_of(Refused::kGap));
    return end_with(gap());
  }
  std::array<std::byte, 16> mac = asked.mac;
  link_.id() = std::move(request->id());
  link_.id()->context = static_cast<CmUser*>(this);
  link_.path.set_ends(link_.id().local(), link_.id().peer());
  try {
    accept_path({asked.hello, [&](Hello& ours) {
                   link_.sender.keep_until_confirmed(&link_.domain()->local(),
                                                     link_.settings().limit());
                   ours.flags |= Hello::kForgets;
                   const ResumeBytes bytes =
                       seal_answer({.hello = ours,
                                    .generation = asked.generation,
                                    .session = session_->id(),
                                    .received = link_.stream.inbound().line().total()},
                                   session_->key(), mac);
                   return Request(bytes);
                 }});
    if (!deadline_.set(link_.settings().accept_timeout, Deadline::Of::kAccept))
      throw std::bad_alloc();
    link_.state().look_at(*this, clock_now() + kAttemptTick);
  } catch (const std::exception& error) {
    // The peer tries again; meanwhile there may be memory, or the device may be back.
    if (link_.stage.phase() == Phase::kLost && link_.id()) reject(link_.id().get(), error.what());
    give_up_attempt();
    session_->set_next(session_->until());
    link_.state().want_reap(*this);
  }
}

// --- our bytes -----------------------------------------------------------------------------------

std::size_t LinkedCarrier::room_for_unsent() const noexcept {
  const std::size_t held = session_->unsent().size() + link_.sender.queue().buffered();
  return link_.sender.buffer_size() - std::min<std::size_t>(held, link_.sender.buffer_size());
}

bool LinkedCarrier::has_room_for_unsent() const noexcept {
  return session_->resumes_as() != Phase::kOpen ||
         room_for_unsent() >= std::max(1u, link_.sender.buffer_size() / 4);
}

ssize_t LinkedCarrier::write_unsent(const iovec* vectors, int count) {
  if (session_->resumes_as() != Phase::kOpen) {
    errno = EPIPE;
    return -1;
  }
  std::size_t left = room_for_unsent(), done = 0;
  try {
    for (int i = 0; i < count && left != 0; ++i) {
      const std::size_t size = std::min(left, vectors[i].iov_len);
      session_->unsent().append(static_cast<const std::byte*>(vectors[i].iov_base), size);
      done += size;
      left -= size;
    }
  } catch (const std::bad_alloc&) {  // takes no more for now
  }
  if (done == 0) {
    errno = EAGAIN;
    return -1;
  }
  if (link_.stage.phase() == Phase::kResending) link_.state().want_flush(*this);
  return static_cast<ssize_t>(done);
}

void LinkedCarrier::resend() {
  Unsent& unsent = session_->unsent();
  while (!unsent.empty()) {
    const std::span<const std::byte> bytes = unsent.bytes();
    const std::size_t n =
        link_.sender.queue().append(bytes.data(), bytes.size(), link_.settings().limit());
    if (n == 0) return wait_for_memory(1);
    unsent.drop(n);
    link_.state().statistics().bytes_resent += n;
  }
  link_.stage.move(session_->resumes_as());
  link_.state().want_flush(*this);
  update_ready();
}

}}}  // namespace conn::rdma
