// SPDX-License-Identifier: BSD-3-Clause
// Class RdmaCarrier, a connection over RDMA: connecting, accepting, reading, writing and closing.
// Reading and writing in place is in carrier_in_place.cc.

#include "conn/rdma/carrier.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>

#include "conn/connection_type.h"
#include "conn/kit/interruption.h"
#include "conn/rdma/acceptance.h"
#include "conn/rdma/device/reject_reason.h"
#include "conn/rdma/loop/clock.h"
#include "conn/rdma/type.h"
#include "conn/setup_trace.h"

namespace conn { inline namespace AECONN_ABI { namespace rdma {
// --- connecting to a server ----------------------------------------------------------------------

// One attempt to connect. The destructor gives the attempt up, unless goes_on says that it
// continues or has succeeded. If a failed attempt were not given up, a late answer of the peer
// could establish a connection that was reported as failed.
struct RdmaCarrier::Attempt {
  RdmaCarrier& carrier;
  bool goes_on = false;

  void begin(const Endpoint& to, ae::Duration limit);
  ~Attempt() {
    const Phase phase = carrier.link_.stage.phase();
    if (goes_on) return;
    if (phase == Phase::kResolving || phase == Phase::kConnecting) {
      carrier.host().occupy({});
      if (carrier.setup_) carrier.setup_->report_silence();
      carrier.setup_.reset();
      carrier.finish();
    } else if (carrier.link_.stage.in_use()) {
      carrier.begin_disconnect(Ending::kFailureTimeout);
    }
  }
};

void RdmaCarrier::Attempt::begin(const Endpoint& to, ae::Duration limit) {
  const auto& type_here = static_cast<const RdmaType&>(carrier.type());
  Link& link = carrier.link_;
  std::shared_ptr<const Settings> settings =
      link.state().settings().get(Settings::from(type_here.options_for(to)));
  link.stage.move(Phase::kResolving);
  link.configure(std::move(settings));
  if (link.settings().resume)
    carrier.recovery_ = std::make_unique<PathRecovery>(carrier.around(), to);
  link.renew_stream(carrier.host().id());
  const Setup::Around with{link,    carrier.deadline_,       carrier.host(),
                           carrier, carrier.recovery_.get(), type_here.addresses()};
  carrier.setup_ = std::make_unique<Setup>(
      with, to, clock_now() + std::min(limit, link.settings().connect_timeout), 0);
  link.state().on_spin_wish(link.settings().spin);
}

void RdmaCarrier::connect(const Endpoint& to) {
  Attempt attempt{*this};
  attempt.begin(to, ae::Duration::max());
  if (!deadline_.set(setup_->time_left(), Deadline::Of::kAddress)) throw std::bad_alloc();
  setup_->look_up_next();
  attempt.goes_on = true;
}

void RdmaCarrier::connect_blocking(const Endpoint& to, ae::TimePoint deadline) {
  Attempt attempt{*this};
  attempt.begin(to, deadline - clock_now());
  const ae::TimePoint until = setup_->until();
  setup_->look_up_all(until);
  while (state() == State::kConnecting) {
    // The loop's timers do not run inside pump(), which processes events until a condition holds.
    // So the deadline of the address that is being tried is checked here.
    const auto expired = [this] { return clock_now() >= setup_->address_deadline(); };
    link_.state().pump([&] { return state() != State::kConnecting || expired(); },
                       std::min(until, setup_->address_deadline()));
    if (Interruption::ends()) return;
    if (state() == State::kConnecting && expired()) setup_->on_deadline();
  }
  if (state() != State::kConnected) return;
  // Also waits until both sides have offered their first receive windows (memory for the other
  // side's data). A caller of blocking calls might not run the loop for a long time afterwards, and
  // each side ends the connection if no window is offered to it within the time accept-timeout.
  SetupTrace::begin("first window");
  post_due();
  const Stream& stream = link_.stream;
  link_.state().pump(
      [&] {
        return !link_.stage.in_use() ||
               (stream.outbound().peer_windows().any() && stream.inbound().has_announced());
      },
      until);
  if (state() == State::kConnected && stream.outbound().peer_windows().any()) SetupTrace::end();
  attempt.goes_on = true;
}

// --- accepting a connection request --------------------------------------------------------------

void RdmaCarrier::accept(CmId request, std::span<const std::byte> private_data) {
  const CmId& id = link_.id() = std::move(request);
  id->context = static_cast<CmUser*>(this);
  link_.path.set_ends(id.local(), id.peer());
  const std::optional<Hello> asked = decode_hello(private_data, HelloKind::kRequest);
  const auto begin = [&] {
    link_.renew_stream(host().id());
    if (asked) link_.stream.on_hello(*asked);
  };
  const auto answer = [&](Hello& ours) {
    posting_.on_accepting();
    if (!asked || !link_.settings().resume || (asked->flags & Hello::kResumes) == 0 ||
        link_.path.iwarp())
      return PrivateData(encode(ours, HelloKind::kAnswer));
    recovery_ = std::make_unique<PathRecovery>(around());
    return recovery_->grant(*asked, ours);
  };
  try {
    accept_request(link_, {asked, begin, answer});
    move_to(State::kAccepting);
    link_.state().on_spin_wish(link_.settings().spin);
    if (!deadline_.set(link_.settings().accept_timeout, Deadline::Of::kAccept))
      throw std::bad_alloc();
  } catch (const std::exception& error) {
    if (id) reject(id.get(), error.what());
    throw;
  }
}

// --- reading by copy -----------------------------------------------------------------------------

// A faster QueuedCarrier::run_ready() for a connection that has only a read handler: runs the
// handlers that are due, and returns how many ran.
std::size_t RdmaCarrier::run_ready() {
  if (!posting_.goes_straight() || !only_reads()) return QueuedCarrier::run_ready();
  if (!readable()) return 0;
  std::size_t ran = 0;
  try {
    if (ready_to_read()) {
      const bool write_first = host().barrier() == Barrier::kYes;
      ran = 1;
      const Alive alive = host().run_read_handler();
      if (alive == Alive::kYes && only_reads()) [[likely]] {
        if (readable()) update_readable();
        return ran;
      }
      // Runs the write handler if it is due: the read handler may have set it.
      if (alive == Alive::kYes && !write_first) ran += run_write_if_due();
    }
  } catch (...) {
    update_ready();
    throw;
  }
  update_ready();
  return ran;
}

ssize_t RdmaCarrier::look_for_bytes() {
  if (reader_.has_view() && end_view()) update_ready();
  reader_.renew(link_.state().iteration_number(), link_.settings().read_budget);
  // A child of fork() must not read: the memory of the receive windows may not even be mapped
  // there.
  if (inherited()) {
    errno = ECANCELED;
    return -1;
  }
  if (link_.stream.inbound().has_unread()) {
    if (reader_.left() != 0) return 1;
  } else if (state() == State::kError) {  // the option idle-timeout has ended the connection
    return host().no_more_unread();
  } else if (pending_failure_) {
    const int err = pending_failure_.code.value();
    fail(std::exchange(pending_failure_, {}));
    errno = err;
    return -1;
  } else if (link_.stream.at_end()) {
    reader_.set_ended();
    // The peer has ended its stream. If our phase is kOpen (or becomes so on a new network path),
    // the program can still write; otherwise both directions have ended.
    const Phase phase = keeps_unsent() ? session()->resumes_as() : link_.stage.phase();
    if (phase != Phase::kOpen) move_to(State::kClosed);
    return 0;
  }
  errno = EAGAIN;
  return -1;
}

ssize_t RdmaCarrier::read(void* buffer, std::size_t size) {
  if (posting_.goes_straight() && !reader_.has_view() && !inherited()) [[likely]] {
    reader_.renew(link_.state().iteration_number(), link_.settings().read_budget);
    const std::size_t n =
        reader_.take_straight(link_.stream.inbound(), static_cast<std::byte*>(buffer), size);
    link_.state().statistics().bytes_copied_in += n;
    if (n != 0) return static_cast<ssize_t>(n);
  }
  return read_fully(buffer, size);
}

ssize_t RdmaCarrier::read_fully(void* buffer, std::size_t size) {
  if (const ssize_t n = look_for_bytes(); n <= 0) return n;
  const Reader::Taken taken = reader_.take(link_.stream.inbound(), static_cast<std::byte*>(buffer),
                                           std::min(size, reader_.left()));
  if (taken.turned) on_window_read();
  link_.state().statistics().bytes_copied_in += taken.bytes;
  return static_cast<ssize_t>(taken.bytes);
}

// --- writing by copy -----------------------------------------------------------------------------

bool RdmaCarrier::writable() const {
  if (keeps_unsent()) return recovery_->has_room();
  // If the connection is not in phase kOpen, the write handler must run, so that the program calls
  // write() and gets the error. Before the peer has offered its first receive window, nothing can
  // be sent; the result is then false, so that a URL with several schemes can still try the next
  // scheme (conn/lists/dial.h).
  return link_.stage.phase() != Phase::kOpen ||
         (!awaits_first_window() && link_.sender.buffer().has_room());
}

ssize_t RdmaCarrier::write(const void* buffer, std::size_t size) {
  if (posting_.goes_straight() && link_.stage.phase() == Phase::kOpen && !pending_failure_ &&
      !inherited() &&
      link_.sender.buffer().append_straight(buffer, size, [this] { return link_.state().now(); }))
      [[likely]] {
    link_.state().statistics().bytes_copied_out += size;
    link_.state().want_flush(*this);
    return static_cast<ssize_t>(size);
  }
  return Carrier::write(buffer, size);
}

ssize_t RdmaCarrier::writev(const iovec* vectors, int count) {
  if (link_.stage.phase() != Phase::kOpen || pending_failure_) [[unlikely]]
    return keeps_unsent() ? recovery_->write(vectors, count) : refuse_write();
  if (inherited()) {
    errno = ECANCELED;
    return -1;
  }
  const std::size_t done = link_.sender.buffer().append(vectors, count, link_.settings().limit(),
                                                        [this] { return link_.state().now(); });
  if (done == 0) {
    if (link_.sender.buffer().wants_memory()) posting_.wait_for_memory(1);
    errno = EAGAIN;
    return -1;
  }
  link_.state().statistics().bytes_copied_out += done;
  link_.state().want_flush(*this);
  return static_cast<ssize_t>(done);
}

// Returns -1 with EPIPE, the result of writev() and reserve() when nothing can be written any more.
// If there are no unread bytes, the connection also fails; otherwise it fails after they were read.
// A write after shutdown() is a mistake of the caller, so the connection does not fail.
ssize_t RdmaCarrier::refuse_write() {
  if (link_.stage.phase() != Phase::kHalfClosed && !link_.stream.inbound().has_unread()) {
    if (pending_failure_)
      fail(std::exchange(pending_failure_, {}));
    else
      fail(errno_failure(EPIPE, fmt::format("rdma {}: write after the peer closed",
                                            link_.path.peer().to_string())));
  }
  errno = EPIPE;
  return -1;
}

bool RdmaCarrier::wait_for(ae::Mask direction, ae::TimePoint deadline) {
  if (inherited()) return true;  // the next call says ECANCELED
  reader_.refill(link_.state().iteration_number(), link_.settings().read_budget);
  const auto ready = [&] {
    if (state() != State::kConnected) return true;
    return direction == ae::kReadable ? readable() : writable();
  };
  link_.state().pump(ready, deadline);
  return ready();
}

bool RdmaCarrier::flush(ae::TimePoint until) noexcept {
  const auto failed = [this] { return pending_failure_ || state() == State::kError; };
  // After the loss of a path, bytes that the device had not confirmed count as not handed to it.
  const auto handed_on = [this, failed] {
    const StagingQueue& queue = link_.sender.queue();
    if (failed() || !keeps_unsent()) return !link_.stage.in_use() || queue.staged() == 0;
    return session()->unsent().empty() &&
           (link_.stage.in_use() ? queue.staged() : queue.held()) == 0;
  };
  post_due();
  if (!handed_on() && until > clock_now()) {
    try {
      link_.state().pump(handed_on, until);
    } catch (const std::exception&) {  // pump() has no memory: does not wait any longer
    }
  }
  return handed_on() && !failed();
}

// --- closing and draining ------------------------------------------------------------------------

int RdmaCarrier::shutdown() {
  if (keeps_unsent()) {
    if (reader_.ended()) move_to(State::kClosed);
    if (session()->resumes_as() == Phase::kOpen) session()->resume_as(Phase::kHalfClosed);
    return 0;
  }
  if (!link_.stream.peer().tells_end()) {
    errno = EOPNOTSUPP;  // the plain Valkey protocol cannot end only one direction
    return -1;
  }
  if (link_.stage.phase() == Phase::kOpen) {
    if (reader_.ended()) move_to(State::kClosed);
    if (inherited()) return 0;
    link_.stage.move(Phase::kHalfClosed);
    link_.state().want_flush(*this);
    update_ready();
  }
  return 0;
}

// Closes both directions as close() does, but the connection object stays usable: it can still be
// queried.
int RdmaCarrier::shutdown_both() {
  drop_kept();
  pending_failure_ = {};
  move_to(State::kClosed);
  if (keeps_unsent())
    recovery_->close_later();
  else if (link_.stage.in_use())
    begin_close();
  update_ready();
  return 0;
}

void RdmaCarrier::close() noexcept {
  drop_kept();
  if (ending_.at() != EndStep::kQuieting) deadline_.clear(loop());
  if (keeps_unsent()) return recovery_->close_later();
  if (aborts() && link_.stage.open()) return begin_abort();
  switch (link_.stage.phase()) {
    case Phase::kResolving:
    case Phase::kConnecting:
      if (setup_) setup_->report_silence();
      setup_.reset();
      return finish();
    case Phase::kIdle:
      return finish();
    case Phase::kAccepting:
      return begin_disconnect(Ending::kFailureTimeout);
    case Phase::kOpen:
    case Phase::kHalfClosed:
      return begin_close();
    case Phase::kClosing:  // shutdown_both() was called before and has begun to close
      if (!deadline_.set(ending_.close_by() - clock_now(), Deadline::Of::kLinger))
        begin_disconnect(Ending::kFailureTimeout);
      return;
    case Phase::kDisconnecting:
      if (!deadline_.set(Ending::kFailureTimeout, Deadline::Of::kDisconnect)) finish();
      return;
    case Phase::kResending:
    case Phase::kLost:
      return;  // PathRecovery::close_later(), called above, closes the connection
    case Phase::kDead:
      if (ending_.at() == EndStep::kGone) host().release();
      return;
  }
}

// Waits, at most until the time `until`, for the delivery of all written bytes; returns true if the
// peer has received them. On iWARP a completion only means that the local TCP stream has accepted
// the bytes; only the peer's answer to the end of the stream shows that they arrived. So this
// function also ends our stream, as close() does.
bool RdmaCarrier::drain(ae::TimePoint until) noexcept {
  const auto asks = [this] {
    return closing() && recovery_ != nullptr && recovery_->can_ask_to_forget();
  };
  // While there is no network path, bytes that are left wait for the next one. (Not on the
  // accepting side: the peer's request for a path would not reach a loop that ends.)
  const auto needs_path = [this] {
    return lost() && link_.role() == Role::kClient &&
           (!session()->unsent().empty() || link_.sender.queue().held() != 0);
  };
  const auto has_left = [this, asks, needs_path, until] {
    if (posting_.has_undelivered() || needs_path()) return false;
    if (asks()) return link_.stage.ended();
    if (link_.context() == nullptr) return true;
    const bool iwarp = link_.path.iwarp();
    if (link_.stage.in_use() &&
        (posting_.finishes() || (iwarp && link_.sender.requests().wrote()))) {
      link_.stage.move(Phase::kClosing);
      ending_.set_close_by(until);
      post_due();
      if (posting_.has_undelivered()) return false;
    }
    continue_close();
    return !iwarp || !link_.sender.requests().wrote() || ending_.delivery_settled();
  };
  if (posting_.has_undelivered()) {
    posting_.prove_delivery();
    post_due();
  }
  if (asks() || needs_path()) recovery_->ask_without_loop();
  if (!has_left() && until > clock_now()) {
    try {
      link_.state().pump(has_left, until);
    } catch (const std::exception&) {  // pump() has no memory: does not wait any longer
    }
  }
  return has_left();
}

void RdmaCarrier::abandon() noexcept {
  drop_kept();
  if (recovery_ != nullptr) recovery_->end();
  ending_.abandon(posting_.has_undelivered());
  deadline_.clear(loop());
  setup_.reset();
  if (recovery_ == nullptr || !recovery_->moving()) {
    link_.state().forget(*this);
    detach_list();
  }
  tear_down();
}

// --- moving the connection to another loop -------------------------------------------------------

bool RdmaCarrier::leave(ae::EventLoop*) {
  errno = pending_failure_ ? ENOTCONN : EAGAIN;
  if (pending_failure_ || link_.sender.queue().referred() != 0 || link_.sender.queue().reserving())
    return false;
  (void)end_view();
  if (!recovery_->leave_loop()) {
    errno = EAGAIN;
    return false;
  }
  detach_list();
  return true;
}

bool RdmaCarrier::join(ae::EventLoop& loop) {
  try {
    LoopState& state = LoopState::of(loop, type());
    state.make_room(type().counters(loop).open + 1);
    link_.move_to(state);
    deadline_.move_to(state);
    attach_list(state.ready());
    state.on_spin_wish(link_.settings().spin);
    recovery_->join_loop(loop);
    return true;
  } catch (const VerbsError& error) {
    fail(error.failure());
  } catch (const std::exception&) {  // the caller then fails the connection for lack of memory
  }
  abandon();  // frees all objects that need a loop, so that close() needs none
  return false;
}

}}}  // namespace conn::rdma
