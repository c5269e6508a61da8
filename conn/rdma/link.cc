// SPDX-License-Identifier: BSD-3-Clause
#include "conn/rdma/link.h"

#include <fmt/format.h>
#include <poll.h>

#include <algorithm>
#include <cassert>
#include <cerrno>

#include "conn/rdma/config/limits.h"

namespace conn { inline namespace AECONN_ABI { namespace rdma {
namespace {

// Returns the time-outs for a queue pair. The ACK time-out is not shorter than the delay of
// acknowledgements that our own device reports, because the peer's device may have the same delay.
QpTimeouts timeouts_on(const Device& device, const Settings& settings) noexcept {
  QpTimeouts timeouts = settings.timeouts;
  timeouts.ack_timeout = std::max(timeouts.ack_timeout,
                                  std::min<std::uint8_t>(device.limits().local_ca_ack_delay, 31));
  return timeouts;
}

// Returns the number of receives to post for a queue pair with its own receive queue. On iWARP a
// message that finds no receive ends the connection. So a peer that does not use this library, and
// thus does not count our receives, gets at least as many as Valkey's programs post.
std::uint32_t own_receives_wanted(const DeviceContext& context, const Settings& settings,
                                  const PeerFacts& peer) noexcept {
  const Device& device = context.device();
  std::uint32_t wanted = settings.receive_queue;
  if (peer.counts_receives() && context.queue_pairs() >= flow::kManyConnections)
    wanted = std::min(wanted, flow::kFewReceives);
  if (device.iwarp())
    wanted = std::max(wanted, peer.is_aeconn() ? flow::kFewReceives : flow::kPlainReceives);
  const std::uint32_t room =
      device.max_cq() - std::min(send_queue_of(settings, device), device.max_cq());
  return std::max(1u, std::min({wanted, device.max_send_queue(), room}));
}

}  // namespace

Link::Link(LoopState& state, std::shared_ptr<const Settings> settings, Role role, LinkUser& user)
    : state_(&state),
      settings_(std::move(settings)),
      user_(user),
      role_(role),
      stream(settings_->stream(role, 0), std::chrono::steady_clock::now()),
      sender(stream, *settings_) {}

// --- creating the objects ------------------------------------------------------------------------

void Link::configure(std::shared_ptr<const Settings> settings) {
  settings_ = std::move(settings);
  sender.buffer().set_sizes(*settings_);
}

void Link::renew_stream(std::uint64_t connection) {
  stream = Stream(settings_->stream(role_, connection), std::chrono::steady_clock::now());
}

void Link::make(bool may_bind) {
  try {
    set_up(may_bind);
  } catch (const VerbsError& error) {
    if (is_memory_limit(error.failure())) ++state_->statistics().memory_refusals;
    Failure failure = error.failure();
    if (context_ != nullptr)
      failure.text +=
          limit_words(failure.code.value(), context_->name(), &context_->device(), *settings_);
    throw VerbsError(std::move(failure));
  }
}

// Creates the objects of the connection up to the queue pair. Steps that can fail for lack of
// resources come first, so that a failure costs no slow call. The first of them allocates memory
// for the first receive window, if the device allows this order.
void Link::set_up(bool may_bind) {
  context_ = state_->devices().context(id_, *settings_);
  state_->add(user_);
  Device& device = context_->device();
  const auto open_first_window = [this] {
    manage_windows();
    if (stream.failure() != nullptr) throw VerbsError(windows.failure());
  };
  path.set_device(device, id_->port_num);
  check(settings_->fabric, {device.verbs(), device.name(), id_->port_num, device.iwarp()},
        id_.local());
  if (context_->full_of_parked())
    throw VerbsError(Failure{std::make_error_code(std::errc::network_down),
                             fmt::format("{}: connections that ended wait for its port to come "
                                         "up again, and there is no room for more",
                                         device.name())});
  const std::uint32_t sends = send_queue_of(*settings_, device);
  const std::uint32_t wanted = own_receives_wanted(*context_, *settings_, stream.peer());
  domain_ = context_->domain(*settings_, wanted, may_bind);
  const std::uint32_t receives = domain_->srq() != nullptr ? 0 : wanted;
  const QueuePairShape shape{domain_.get(), sends, settings_->inline_data};
  std::optional<PreparedQueuePair> prepared;
  if (receives == 0) prepared = context_->take_prepared(shape);
  if (prepared) state_->preparation().on_taken();
  sender.buffer().use(&domain_->local(), &domain_->references());
  if (!device.keys_are_younger()) open_first_window();
  if (receives != 0)
    receives_ = std::make_unique<ReceiveQueue>(domain_->local(), receives, settings_->limit());
  const std::uint32_t announced =
      receives != 0 ? flow::announced_of_own(receives)
                    : flow::announced_of_shared(domain_->shared_receives()->depth());
  if (announced < flow::kLeastAnnounced || sends < flow::kLeastSendQueue)
    throw VerbsError(Failure{
        std::make_error_code(std::errc::not_supported),
        fmt::format("{}: has room for {} receives and {} sends of a connection, which needs {} "
                    "and {}",
                    device.name(), announced, sends, flow::kLeastAnnounced,
                    flow::kLeastSendQueue)});
  const bool for_ever = settings_->timeouts.retry_count == QpTimeouts::kMaybeForEver;
  stream.on_queue_pair(
      announced, !device.iwarp(),
      for_ever ? Liveness::kForEver : std::chrono::ceil<std::chrono::milliseconds>(retry_time()));

  ibv_qp_cap cap{};
  if (prepared) {
    lease_ = std::move(prepared->lease);
    qp_ = std::move(prepared->qp);
    cap = prepared->cap;
  } else {
    lease_ = context_->lease(sends + receives);
    ibv_qp_init_attr attributes = ask_for(shape, lease_);
    attributes.cap.max_recv_wr = receives;
    attributes.cap.max_send_sge = device.max_pieces();
    attributes.cap.max_recv_sge = receives != 0 ? 1 : 0;
    qp_ = device.create_qp(domain_->pd(), attributes);
    cap = attributes.cap;
  }
  pair.move(PairState::At::kMade);
  if (device.keys_are_younger()) open_first_window();
  rings_ = pin_rings(cap);
  sender.begin({sends, cap.max_send_sge, std::min(cap.max_inline_data, settings_->inline_data)},
               &domain_->local(), settings_->limit());
  context_->attach(qp_->qp_num, &user_);
  qp_to_init(id_.get(), qp_.get(), settings_->fabric);
  if (receives_ != nullptr) {
    receives_->attach(qp_.get());
    if (const int err = receives_->replenish(); err != 0) throw VerbsError("ibv_post_recv", err);
  }
}

void Link::connect(ibv_mtu mtu) {
  pair.move(PairState::At::kConnected);
  if (path.iwarp()) return;
  if (settings_->fabric.ece) take_ece(id_.get(), qp_.get());
  path.set_route(
      qp_to_ready(id_.get(), qp_.get(),
                  {.timeouts = timeouts_on(context_->device(), *settings_),
                   .fabric = settings_->fabric,
                   .mtu = mtu,
                   .infiniband = context_->device().infiniband(id_->port_num, state_->now())}));
}

// Posts requests that bind keys (memory windows) to the queue pair. Called as soon as the queue
// pair can send, so that a device that refuses this is detected before the connection is
// established.
bool Link::post_keys() {
  for (bool again = true; again && windows.has_key_to_change();) {
    const SendChain::Result result = sender.post_keys(qp_.get(), windows);
    if (result.error == 0) return true;
    const bool unsure = context_->device().binding() == Device::Binding::kUnsure;
    if (!can_send(qp_.get())) {
      if (unsure) return false;
      throw VerbsError(stopped_failure("binding a key to the queue pair", *context_));
    }
    again = result.known && unsure &&
            windows.go_on_without_binding(*context_, *domain_, lease_, *settings_);
    if (!result.known && unsure) context_->device().give_up_binding();
    if (!again) throw VerbsError(bind_failure(*context_, *settings_, result.error));
  }
  return true;
}

bool Link::give_up_pair() {
  const bool unsure = context_->device().binding() != Device::Binding::kNo;
  const bool refused = unsure && settings_->isolation == Isolation::kWindow;
  if (!refused || role_ == Role::kClient) {
    // The next queue pair may get the number of this one. So the pending device events of this one
    // are read now, and are not mistaken for events of the next. They report nothing new, so the
    // connection is detached first and receives neither them nor the completions of its flushed
    // receives.
    context_->detach(qp_->qp_num);
    context_->on_async_event();
  }
  if (refused)
    throw VerbsError(
        Failure{std::make_error_code(std::errc::connection_aborted),
                "isolation=window: the queue pair failed before a key was bound to it"});
  return false;
}

bool Link::keys_work() {
  // Longest time to wait for the device to bind a memory window, which normally takes microseconds.
  constexpr ae::Duration kBindTimeout = std::chrono::milliseconds(20);
  Device& device = context_->device();
  if (path.iwarp() || (role_ == Role::kClient && device.binding() != Device::Binding::kUnsure))
    return true;
  if (!post_keys()) return give_up_pair();
  const Phase phase = stage.phase();
  proving_ = device.binding() == Device::Binding::kUnsure && windows.has_key_to_change();
  const bool waited = proving_;
  const ae::TimePoint until = std::chrono::steady_clock::now() + kBindTimeout;
  while (proving_ && device.binding() == Device::Binding::kUnsure) {
    drain();
    if (!proving_ || device.binding() != Device::Binding::kUnsure) break;
    // Stops waiting for the result of the bind. If the bind fails later, the connection ends.
    if (std::chrono::steady_clock::now() >= until) break;
    (void)::poll(nullptr, 0, 1);
  }
  const bool failed = waited && !std::exchange(proving_, false) && sender.requests().failed();
  // If a completion has changed the phase of the connection, the set-up has ended, and the queue
  // pair must not be replaced.
  return !failed || stage.phase() != phase || give_up_pair();
}

// --- while the connection is open ----------------------------------------------------------------

void Link::manage_windows() {
  LoopConnection& user = user_;
  if (windows.manage(
          {domain_.get(), settings_->limit(), state_->statistics(), pair.was_connected()},
          state_->now()))
    state_->want_flush(user);
  // The connection's next periodic check may now be due earlier than planned: to detect that
  // receive windows are idle, or to ask again for memory for one.
  if (user.in_wheel() && stream.next_tick() < user.due()) state_->look_at(user, stream.next_tick());
}

void Link::on_keys_changed() {
  const WindowMemory::Changed changed = windows.on_done(sender.requests().done(), domain_.get());
  if (changed == WindowMemory::Changed::kBound) context_->device().prove_binding();
  // A receive window whose key was invalidated is free, so another one may be created in its place.
  if (changed != WindowMemory::Changed::kNone) manage_windows();
}

bool Link::on_key_refused(ReceiveWindow& window) {
  if (windows.drop_refused(window)) {
    manage_windows();
    return true;
  }
  return context_->device().binding() == Device::Binding::kUnsure && can_send(qp_.get()) &&
         windows.go_on_without_binding(*context_, *domain_, lease_, *settings_);
}

ae::Duration Link::retry_time() const noexcept {
  const QpTimeouts now = timeouts_on(context_->device(), *settings_);
  return std::chrono::nanoseconds(4096) * (std::int64_t{1} << now.ack_timeout) *
         (now.retry_count + 1);
}

// --- stopping the queue pair and destroying the objects ------------------------------------------

void Link::stop() noexcept {
  if (!qp_ || inherited()) return;
  if (!pair.can_stop()) return;
  pair.move(pair.after_stop());
  qp_to_error(qp_.get());
}

void Link::stop_and_report() noexcept {
  if (pair.at() == PairState::At::kConnected && !inherited() && context_ && !context_->lost())
    sender.post_last(qp_.get());
  stop();
}

// Some drivers require that a queue pair is destroyed only after its last completion: mlx5, bnxt_re
// and hns drop the remaining completions, and with them shared receives; irdma accesses the queue
// pair even after it was destroyed.
bool Link::quiet() const noexcept {
  if (!qp_ || !pair.was_connected() || !context_ || context_->lost()) return true;
  return sender.requests().count() == 0 && (qp_->srq == nullptr || pair.took_last_receive());
}

bool Link::can_disconnect() const noexcept {
  return !id_ || !context_ || !context_->device().port_down(id_->port_num);
}

void Link::ask_port() noexcept {
  if (!context_->device().ask_port(id_->port_num, std::chrono::steady_clock::now())) return;
  try {
    state_->devices().watch_ports();
  } catch (const std::exception&) {  // no memory for the timer: the next ask_port() tries again
  }
}

void Link::on_no_route() noexcept {
  if (!id_ || !context_) return;
  context_->device().on_no_route(id_->port_num, std::chrono::steady_clock::now());
  ask_port();
}

void Link::tear_down() noexcept {
  destroy_queue_pair();
  stream.inbound().drop_windows();
  sender.drop_all();
  release(false);
}

void Link::destroy_queue_pair() noexcept {
  const bool ours = !inherited();
  if (qp_ && context_) {
    if (ours && lease_.queue() != nullptr) drain();
    context_->detach(qp_->qp_num);
  }
  // The keys (memory windows) must be freed before the queue pair: with rxe, ibv_destroy_qp() waits
  // until no memory window is bound to the queue pair.
  windows.drop_keys();
  qp_.reset();
  // The device may give the number of the destroyed queue pair to a new one at once, so completions
  // with this number must not stay in the completion queue.
  if (ours && context_ && lease_.queue() != nullptr) drain();
  receives_.reset();
}

void Link::release(bool viewed) noexcept {
  if (domain_) {
    // If viewed_ (the memory kept for the user's view) is set already, the view is of memory of an
    // earlier network path, and the receive windows of this path are not needed.
    if (viewed && viewed_ == nullptr) {
      viewed_ = domain_;
      viewed_windows_ = windows.take();
    } else {
      windows.drop();
    }
    sender.release_control(domain_->local());
    state_->memory_came_back();
    if (sender.queue().reserving()) reserved_ = domain_;
  }
  if (!sender.queue().reserving()) sender.buffer().use(nullptr, nullptr);
  rings_ = {};
  lease_ = {};
  domain_.reset();
  const long own = viewed_ == reserved_ ? 2 : 1;
  for (const std::shared_ptr<Domain>* kept : {&viewed_, &reserved_})
    if (*kept && kept->use_count() == own) (*kept)->leave_device();
  pair.move(PairState::At::kNone);
  if (!inherited() && id_ && context_) {
    const bool wait = stage.handshake() == Handshake::kUnderWay && path.iwarp();
    if (wait || !can_disconnect()) {
      id_->context = nullptr;
      if (wait)
        context_->park_connecting(std::move(id_));
      else
        context_->park(std::move(id_));
    }
  }
  stage.advance(Handshake::kNone);
  context_.reset();
  id_.reset();
}

void Link::release_kept(bool viewed) noexcept {
  const bool view_ends = viewed_ && !viewed;
  const bool reservation_ends = reserved_ && !sender.queue().reserving();
  if (!view_ends && !reservation_ends) return;
  if (view_ends) {
    WindowMemory::drop(viewed_windows_);
    viewed_.reset();
  }
  if (reservation_ends) {
    if (!domain_) sender.buffer().use(nullptr, nullptr);
    reserved_.reset();
  }
  state_->memory_came_back();
}

rdma_conn_param connection_parameters(const Link& link, std::span<const std::byte> hello) {
  rdma_conn_param parameters{};
  parameters.private_data = hello.data();
  parameters.private_data_len = static_cast<std::uint8_t>(hello.size());
  // Numbers of RDMA READs that may be outstanding. The protocol uses none, but rdma_cm requires at
  // least one in each direction.
  parameters.responder_resources = 1;
  parameters.initiator_depth = 1;
  parameters.flow_control = 1;
  parameters.retry_count = link.settings().timeouts.retry_count;
  parameters.rnr_retry_count = link.settings().timeouts.rnr_retry_count;
  parameters.srq = link.queue_pair()->srq != nullptr ? 1 : 0;
  parameters.qp_num = link.queue_pair()->qp_num;
  return parameters;
}

}}}  // namespace conn::rdma
