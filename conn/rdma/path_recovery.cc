// SPDX-License-Identifier: BSD-3-Clause
#include "conn/rdma/path_recovery.h"

#include <fmt/format.h>
#include <poll.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <functional>
#include <new>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "conn/kit/retry_after.h"
#include "conn/rdma/acceptance.h"
#include "conn/rdma/device/reject_reason.h"
#include "conn/rdma/loop/clock.h"
#include "conn/rdma/protocol/resume_message.h"
#include "conn/url/coded_failure.h"

namespace conn { inline namespace AECONN_ABI { namespace rdma {
namespace {

// Number of polls for the last completions of a queue pair before the first pause of 1 ms.
constexpr int kSpins = 1000;

std::uint32_t whole_ms(ae::Duration duration) {
  return static_cast<std::uint32_t>(
      std::chrono::duration_cast<std::chrono::milliseconds>(duration).count());
}

Failure gap() noexcept {
  return coded_failure(std::make_error_code(std::errc::connection_reset), [] {
    return std::string("the path was lost, and bytes that the peer misses are gone with it");
  });
}

// Returns the reason for the loss of the network path, with the addition that no new path was
// found.
Failure given_up(const Session& session, ae::TimePoint now) noexcept {
  return coded_failure(session.why().code, [&] {
    return fmt::format("{}; no new path in {} ms", session.why().text,
                       whole_ms(now - session.lost_at()));
  });
}

}  // namespace

PathRecovery::PathRecovery(const Around& around) noexcept
    : link_(around.link),
      deadline_(around.deadline),
      ending_(around.ending),
      posting_(around.posting),
      reader_(around.reader),
      setup_(around.setup),
      carrier_(around.carrier),
      book_(around.book),
      setup_user_(around.setup_user),
      user_(around.user) {}

PathRecovery::PathRecovery(const Around& around, const Endpoint& to) : PathRecovery(around) {
  target_ = std::make_unique<const Endpoint>(to);
}

// --- beginning and resuming a session ------------------------------------------------------------

void PathRecovery::begin_session(const Grant& grant, std::uint32_t peers_milliseconds) {
  link_.sender.keep_until_confirmed(&link_.domain()->local(), link_.settings().limit());
  link_.stream.set_resumes();
  session_ = std::make_unique<Session>(
      grant, std::min<ae::Duration>(link_.settings().resume_time,
                                    std::chrono::milliseconds(peers_milliseconds)));
}

void PathRecovery::renew_stream() {
  if (lost()) return link_.stream.begin_path(session_->confirmed(), clock_now());
  session_.reset();  // may be the session of a failed attempt to connect
  link_.renew_stream(host().id());
}

PrivateData PathRecovery::request(Hello hello) {
  if (lost()) {
    // Each request gets a new generation (the number by which the peer detects repetitions), also
    // if one attempt tries several addresses, or one address twice.
    ResumeMessage message{.hello = hello,
                          .generation = session_->next_generation(),
                          .session = session_->id(),
                          .received = link_.stream.inbound().line().total()};
    ask_to_forget(message);
    const ResumeBytes bytes = seal_request(message, session_->next_key(message.received),
                                           bound_address(link_.id().local()));
    std::copy(bytes.end() - 16, bytes.end(), session_->request_mac.begin());
    return PrivateData(bytes);
  }
  if (target_ != nullptr) {
    if (link_.path.iwarp())
      throw VerbsError(Failure{std::make_error_code(std::errc::not_supported),
                               fmt::format("resume=yes: {} is an iWARP device, whose completions "
                                           "do not prove that the peer has the bytes",
                                           link_.context()->name())});
    hello.flags |= Hello::kResumes;
    hello.resume_ms = whole_ms(link_.settings().resume_time);
  }
  return PrivateData(encode(hello, HelloKind::kRequest));
}

std::optional<Hello> PathRecovery::take_answer(std::span<const std::byte> data) {
  if (lost()) {
    if (session_->asked_to_forget)
      throw VerbsError(Failure{std::make_error_code(std::errc::protocol_error),
                               "whoever answers there does not forget the session"});
    const std::optional<ResumeMessage> answer = decode_resume(data);
    if (!answer || answer->session != session_->id() ||
        answer->generation != session_->generation() ||
        !verify_answer(data, session_->request_key(), session_->request_mac))
      throw VerbsError(Failure{std::make_error_code(std::errc::protocol_error),
                               "whoever answers there does not know this session"});
    if (!session_->take_count(answer->received))
      throw VerbsError(Failure{gap().code, std::string(text_of(Refused::kGap))});
    link_.stream.go_on(session_->confirmed(), answer->hello);
    link_.sender.keep_until_confirmed(&link_.domain()->local(), link_.settings().limit());
    return answer->hello;
  }
  const std::optional<Hello> hello = decode_hello(data, HelloKind::kAnswer);
  if (!hello) return hello;
  link_.stream.on_hello(*hello);
  if (target_ != nullptr && (hello->flags & Hello::kResumes) != 0)
    begin_session(hello->grant, hello->resume_ms);
  return hello;
}

PrivateData PathRecovery::grant(const Hello& asked, Hello& ours) {
  auto [grant, entry] = SessionTable::of_process().add({&state().loop(), state().cm(), this});
  begin_session(grant, asked.resume_ms);
  session_->entry = std::move(entry);
  ours.flags |= Hello::kResumes | Hello::kForgets;
  ours.resume_ms = whole_ms(link_.settings().resume_time);
  ours.grant = grant;
  return PrivateData(encode(ours, HelloKind::kAnswer));
}

void PathRecovery::end() noexcept {
  if (session_ == nullptr) return;
  if (session_->lost() && !moving_) --state().statistics().lost;
  session_->end();
}

// --- the loss of the network path ----------------------------------------------------------------

bool PathRecovery::lose_path(Failure& failure) noexcept {
  if (session_ == nullptr || !link_.stage.open() || host().inherited() ||
      link_.stream.outbound().end().aborted() || link_.stream.failure() != nullptr)
    return false;
  LoopState& loop = state();
  if (loop.statistics().lost >= kMostLost) return false;
  const ae::TimePoint now = clock_now();
  // The accepting side waits longer for a new network path: the connecting side, which must ask for
  // it, may detect the loss later, at the latest by its keepalives.
  const ae::Duration later = link_.role() == Role::kServer
                                 ? 4 * link_.settings().keepalive + link_.retry_time()
                                 : ae::Duration::zero();
  link_.path.name_peer(failure);
  session_->lose(link_.stage.phase(), std::move(failure), now, later);
  if (session_->resumes_as() == Phase::kClosing) session_->give_up_at(ending_.close_by());
  ++loop.statistics().lost;
  deadline_.clear(host().loop());
  posting_.clear_pace(host().loop());
  link_.stage.move(Phase::kLost);
  loop.remove(link_.user());
  link_.stop_and_report();
  // Queries the port first, because no disconnect may be sent through a port without a link: with
  // soft-RoCE this permanently breaks the device's queue pair for connection management.
  if (link_.id() && link_.context() != nullptr) link_.ask_port();
  const bool tells = link_.stage.handshake() == Handshake::kKnown && link_.can_disconnect();
  if (tells && link_.id()) (void)rdma_disconnect(link_.id().get());
  loop.want_reap(link_.user());
  loop.look_at(link_.user(), now + TickWheel::kWidth);
  host().path_changed();
  user_.on_progress();
  return true;
}

// Copies the unsent and the unread bytes out of the memory of the lost network path, and destroys
// its rdma_cm and verbs objects.
void PathRecovery::leave_path() {
  link_.destroy_queue_pair();  // handles the device's last completions first
  Stream& stream = link_.stream;
  const StagingQueue& queue = link_.sender.queue();
  std::vector<std::byte> bytes(queue.held());
  std::unique_ptr<std::byte[]> unread;
  StreamReceiver& inbound = stream.inbound();
  // Bytes that were copied when an earlier network path was lost are not copied again.
  const bool to_copy = inbound.unread_bytes() != inbound.left_over();
  if (to_copy) unread = std::make_unique<std::byte[]>(inbound.unread_bytes());
  const std::uint64_t posted = stream.outbound().peer_windows().total();
  queue.copy_held(bytes.data());
  session_->keep(posted - queue.in_flight(), posted, std::move(bytes));
  if (to_copy) {
    inbound.leave_windows(unread.get());
    keep_viewed(reader_.exchange_copy(std::move(unread)));
  } else {
    inbound.drop_windows();
  }
  link_.sender.drop_all();
  posting_.tell_references(host());
  link_.release(reader_.viewed());
  state().forget(link_.user());
}

void PathRecovery::keep_viewed(std::unique_ptr<std::byte[]> copy) noexcept {
  // Of the copies that are replaced while the program has a view (from peek()), only the first one
  // is kept: the view was made before that replacement, so it cannot show a later copy.
  if (session_ != nullptr && reader_.viewed() && session_->viewed == nullptr)
    session_->viewed = std::move(copy);
}

void PathRecovery::go_on() {
  const ae::TimePoint now = clock_now();
  const auto look_at = [this](ae::TimePoint at) { state().look_at(link_.user(), at); };
  if (link_.stage.phase() != Phase::kLost) {
    // Timers do not run in blocking operations, so the deadline of the attempt is also checked
    // here.
    if (setup_ && now >= setup_->address_deadline()) setup_->on_deadline();
    const bool attempts = link_.stage.connecting() || link_.stage.phase() == Phase::kAccepting;
    if (attempts && host().closing() && now >= session_->until())
      return on_attempt_failed(session_->why());
    if (session_->lost() && !link_.stage.ended()) look_at(now + kAttemptTick);
    return;
  }
  try {
    setup_.reset();
    if (link_.id() || link_.queue_pair() != nullptr) {
      const bool settled = link_.quiet() || now >= session_->left_by();
      // While the program has reserved memory of the lost network path, that memory must not be
      // freed.
      if (!settled || link_.sender.queue().reserving()) {
        if (now >= session_->until()) return user_.end_with(given_up(*session_, now));
        return look_at(now + TickWheel::kWidth);
      }
      leave_path();
      // The last completions of the path may have ended the connection, and leave_path() has
      // dropped the request to tear it down.
      if (link_.stage.ended()) return state().want_reap(link_.user());
    }
    if (now >= session_->until()) return user_.end_with(given_up(*session_, now));
    if (link_.role() == Role::kServer) {
      if (session_->request != nullptr) return accept_again(std::move(session_->request));
      session_->set_next(session_->until());
    } else if (now >= session_->next_at()) {
      return dial_again();
    }
    look_at(session_->next_at());
  } catch (const std::exception&) {
    user_.end_with(out_of_memory());
  }
}

// --- finding a new path --------------------------------------------------------------------------

void PathRecovery::dial_again() {
  link_.stage.move(Phase::kResolving);
  // Each attempt to find a new network path begins with another address of the URL, the first
  // attempt not with that of the lost path. Otherwise the last addresses might never be tried,
  // because an address that does not answer uses up half the time of an attempt.
  const std::size_t first = session_->begin_attempt();
  renew_stream();
  const Setup::Around around{link_, deadline_, host(), setup_user_, this, book_};
  setup_ = std::make_unique<Setup>(
      around, *target_, std::min(session_->until(), clock_now() + Session::kAttempt), first);
  if (!deadline_.set(setup_->time_left(), Deadline::Of::kAddress)) throw std::bad_alloc();
  state().look_at(link_.user(), clock_now() + kAttemptTick);
  if (state().pumping())
    // The loop does not run now, so it cannot deliver the result of a name look-up, and
    // look_up_all() blocks for it. It blocks at most for the time kAttemptTick, because other
    // connections of the loop wait meanwhile.
    setup_->look_up_all(clock_now() + kAttemptTick);
  else
    setup_->look_up_next();
}

// Stops the queue pair of a failed attempt to find a new network path. The loop destroys its
// objects later (reap()).
void PathRecovery::give_up_attempt() noexcept {
  deadline_.clear(host().loop());
  if (link_.stage.phase() != Phase::kLost) link_.stage.move(Phase::kLost);
  link_.stop();
  session_->on_stopped(clock_now());
}

void PathRecovery::on_attempt_failed(Failure why) noexcept {
  give_up_attempt();
  const ae::TimePoint now = clock_now();
  if (link_.role() == Role::kClient) {
    Refused refused = setup_ != nullptr ? setup_->refused() : Refused::kNone;
    if (session_->peer_misses_bytes()) refused = Refused::kGap;
    const bool nobody = setup_ != nullptr && setup_->nobody();
    if (refused == Refused::kGap) return user_.end_with(gap());
    const bool other_key = refused == Refused::kUnknown &&
                           session_->may_know_other_key(link_.stream.inbound().line().total());
    if (refused != Refused::kNone && !other_key)
      return user_.end_with(coded_failure(session_->why().code, [this] {
        return session_->why().text + "; the peer has ended it";
      }));
    if (!session_->plan_next(now, nobody)) return user_.end_with(given_up(*session_, now));
    if (why.retry_after.count() != 0) session_->set_next(now + why.retry_after);
  } else {
    session_->set_next(session_->until());
  }
  state().want_reap(link_.user());
}

void PathRecovery::on_resume_request(std::unique_ptr<RdmaPending> request,
                                     const ResumeMessage& message) {
  if (host().inherited() || link_.stage.ended()) return request->refuse(text_of(Refused::kOver));
  // The request repeats an earlier one, so it is only destroyed.
  if (message.generation <= session_->generation()) return;
  if (!session_->find_key(request->private_data(), bound_address(request->id().peer()),
                          link_.stream.inbound().line().total()))
    return request->refuse(text_of(Refused::kUnknown));
  // The key is in our answer to the first request. So the peer has received that answer, and the
  // connection is established, though rdma_cm has not reported it yet.
  if (link_.stage.phase() == Phase::kAccepting && !lost()) {
    try {
      setup_user_.on_set_up();
    } catch (const std::exception&) {
      user_.end_with(out_of_memory());
    }
  }
  if (link_.stage.ended()) return request->refuse(text_of(Refused::kOver));
  (void)session_->take_generation(message.generation);
  session_->request = std::move(request);  // drops an older unanswered request
  switch (link_.stage.phase()) {
    case Phase::kLost:
      break;
    case Phase::kAccepting:
      give_up_attempt();
      break;
    default: {
      Failure why = coded_failure(std::make_error_code(std::errc::connection_reset),
                                  [] { return "the peer lost the path"; });
      if (lose_path(why)) break;
      session_->request->refuse(text_of(Refused::kOver));
      session_->request.reset();
      return;
    }
  }
  state().want_reap(link_.user());
}

void PathRecovery::accept_again(std::unique_ptr<RdmaPending> request) {
  const ResumeMessage asked = *decode_resume(request->private_data());
  if (asked.reason == ResumeReason::kForget) return forget(*request, asked);
  // The deadline needs memory, and is set first: later failures would have to undo more, and once
  // rdma_accept() was called, the request could not be rejected.
  if (!deadline_.set(link_.settings().accept_timeout, Deadline::Of::kAccept)) {
    request->refuse("out of memory");
    session_->set_next(session_->until());
    return state().want_reap(link_.user());
  }
  if (!session_->take_count(asked.received)) {
    request->refuse(text_of(Refused::kGap));
    return user_.end_with(gap());
  }
  std::array<std::byte, 16> mac = asked.mac;
  link_.id() = std::move(request->id());
  link_.id()->context = static_cast<CmUser*>(&link_.user());
  link_.path.set_ends(link_.id().local(), link_.id().peer());
  try {
    const auto begin = [&] {
      renew_stream();
      link_.stream.go_on(session_->confirmed(), asked.hello);
    };
    const auto answer = [&](Hello& ours) {
      posting_.on_accepting();
      link_.sender.keep_until_confirmed(&link_.domain()->local(), link_.settings().limit());
      ours.flags |= Hello::kForgets;
      const ResumeBytes bytes = seal_answer({.hello = ours,
                                             .generation = asked.generation,
                                             .session = session_->id(),
                                             .received = link_.stream.inbound().line().total()},
                                            session_->request_key(), mac);
      return PrivateData(bytes);
    };
    // By reference, so that no memory is needed before begin() makes the stream fit the count that
    // the peer has told: a failure in between would make the next request look like a gap.
    accept_request(link_, {asked.hello, std::ref(begin), std::ref(answer)});
    state().look_at(link_.user(), clock_now() + kAttemptTick);
  } catch (const std::exception& error) {
    // The session continues, because the peer will ask again, and by then there may be memory.
    if (link_.stage.phase() == Phase::kLost && link_.id()) reject(link_.id().get(), error.what());
    give_up_attempt();
    session_->set_next(session_->until());
    state().want_reap(link_.user());
  }
}

bool PathRecovery::on_new_path() {
  session_->on_path();
  ++state().statistics().resumes;
  --state().statistics().lost;
  deadline_.clear(host().loop());  // cancels the deadline of the handshake
  if (session_->resumes_as() == Phase::kClosing &&
      !deadline_.set(ending_.close_by() - clock_now(), Deadline::Of::kLinger))
    return false;
  host().path_changed();
  resend();
  state().want_flush(link_.user());
  return true;
}

// --- writing and resending unsent bytes ----------------------------------------------------------

std::size_t PathRecovery::room() const noexcept {
  const std::size_t held = session_->unsent().size() + link_.sender.queue().buffered();
  return link_.sender.buffer().size() - std::min<std::size_t>(held, link_.sender.buffer().size());
}

bool PathRecovery::has_room() const noexcept {
  return session_->resumes_as() != Phase::kOpen ||
         room() >= std::max(1u, link_.sender.buffer().size() / 4);
}

ssize_t PathRecovery::write(const iovec* vectors, int count) {
  if (session_->resumes_as() != Phase::kOpen) {
    errno = EPIPE;
    return -1;
  }
  std::size_t left = room(), done = 0;
  try {
    for (int i = 0; i < count && left != 0; ++i) {
      const std::size_t size = std::min(left, vectors[i].iov_len);
      session_->unsent().append(static_cast<const std::byte*>(vectors[i].iov_base), size);
      done += size;
      left -= size;
    }
  } catch (const std::bad_alloc&) {  // no memory: accepts no more bytes for now
  }
  if (done == 0) {
    errno = EAGAIN;
    return -1;
  }
  if (link_.stage.phase() == Phase::kResending) state().want_flush(link_.user());
  return static_cast<ssize_t>(done);
}

void PathRecovery::resend() {
  Unsent& unsent = session_->unsent();
  while (!unsent.empty()) {
    const std::span<const std::byte> bytes = unsent.bytes();
    const std::size_t n =
        link_.sender.queue().append(bytes.data(), bytes.size(), link_.settings().limit());
    if (n == 0) {
      // Unlike Posting::wait_for_memory(), requests no flush: the caller posts what is due next.
      link_.sender.buffer().wait_for_memory(1, state().now());
      return state().wait_for_memory(link_.user());
    }
    unsent.drop(n);
    state().statistics().bytes_resent += n;
  }
  link_.stage.move(session_->resumes_as());
  state().want_flush(link_.user());
  user_.on_progress();
}

// --- moving the connection to another loop -------------------------------------------------------

// The rdma_cm and verbs objects belong to the old loop. So the connection leaves its network path,
// and continues over a new one on the new loop.
bool PathRecovery::leave_loop() {
  if (!session_->lost()) {
    Failure why{std::make_error_code(std::errc::operation_canceled), "moves to another loop"};
    if (!lose_path(why)) return false;
    session_->prefer_same_address();
  } else if (link_.stage.phase() != Phase::kLost) {
    give_up_attempt();
  }
  setup_.reset();
  if (link_.id() || link_.queue_pair() != nullptr) {
    const ae::TimePoint until = clock_now() + Session::kQuietTime;
    for (int i = 0; !link_.quiet(); ++i) {
      link_.drain();
      link_.context()->on_async_event();
      if (link_.quiet() || clock_now() >= until) break;
      if (i >= kSpins) (void)::poll(nullptr, 0, 1);
    }
    leave_path();
  }
  // The last completions of the path may have ended the connection: it stays on its loop, which
  // tears it down.
  if (link_.stage.ended()) {
    state().want_reap(link_.user());
    return false;
  }
  // The rdma_cm id of a request for a new path belongs to the old loop, too. The peer asks again.
  session_->request.reset();
  state().forget(link_.user());
  --state().statistics().lost;
  session_->entry.move_to({});
  moving_ = true;
  return true;
}

void PathRecovery::join_loop(ae::EventLoop& loop) noexcept {
  session_->entry.move_to({&loop, state().cm(), this});
  moving_ = false;
  ++state().statistics().lost;
  state().look_at(link_.user(), clock_now());
  state().want_reap(link_.user());
  if (host().closing()) close_later();
}

}}}  // namespace conn::rdma
