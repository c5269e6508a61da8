// SPDX-License-Identifier: BSD-3-Clause
// Set-up of a connection: from an address (connecting side) or from a request (accepting side).

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <span>

#include "conn/connection_type.h"
#include "conn/kit/interruption.h"
#include "conn/kit/retry_after.h"
#include "conn/rdma/carrier.h"
#include "conn/rdma/config/limits.h"
#include "conn/rdma/device/here.h"
#include "conn/rdma/type.h"
#include "conn/setup_trace.h"

namespace conn { inline namespace AECONN_ABI { namespace rdma {
namespace {

// How long rdma_cm may resolve an address or a route before the next one is tried.
constexpr ae::Duration kResolveLimit = std::chrono::seconds(2);

int milliseconds(ae::Duration duration) {
  const auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(duration).count();
  return static_cast<int>(std::clamp<long long>(ms, 1, 1000000));
}

}  // namespace

// --- the connecting side -------------------------------------------------------------------------

bool RdmaCarrier::begin_connect(const Endpoint& to, ae::Duration limit) {
  target_ = to.to_string();
  move_phase(Phase::kResolving);
  try {
    const auto& type_here = static_cast<const RdmaType&>(type());
    type_here.check(to);
    settings_ = Settings::from(type_here.options_for(to));
  } catch (const Error& error) {
    end_with({std::make_error_code(std::errc::invalid_argument), error.what()});
    return false;
  }
  const ae::TimePoint now = std::chrono::steady_clock::now();
  stream_ = Stream(settings_.stream(Role::kClient, host().id()), now);
  send_buffer_ = SendBuffer(settings_.send_buffer, settings_.max_send_buffer);
  connect_deadline_ = now + std::min(limit, settings_.connect_timeout);
  for (const Endpoint::Host& host : to.hosts) hosts_.push_back(host.name);
  std::reverse(hosts_.begin(), hosts_.end());
  port_ = to.port;
  state_->on_spin_wish(settings_.spin);
  return true;
}

// If connect() is left by an exception, or ends while its attempt is in progress, it has failed.
// This stops the attempt: a later answer would otherwise revive it.
struct RdmaCarrier::Attempt {
  RdmaCarrier& connection;
  bool goes_on = false;
  ~Attempt() {
    if (!goes_on) connection.give_up_attempt();
  }
};

void RdmaCarrier::give_up_attempt() noexcept {
  if (phase_ == Phase::kResolving || phase_ == Phase::kConnecting) {
    host().occupy({});
    told_of_silence();
    resolution_.reset();
    finish();
  } else if (phase_ == Phase::kOpen) {
    begin_disconnect(kFailurePatience);
  }
}

void RdmaCarrier::connect(const Endpoint& to) {
  Attempt attempt{*this};
  if (!begin_connect(to, ae::Duration::max())) return;
  if (!set_deadline(time_left(), &RdmaCarrier::address_expired)) throw std::bad_alloc();
  look_up_next();
  attempt.goes_on = true;
}

// Resolves the names one after the other; their addresses are then tried in this order.
void RdmaCarrier::look_up_next() {
  if (inherited()) return;
  if (hosts_.empty()) return try_next_address();
  const std::string host = std::move(hosts_.back());
  hosts_.pop_back();
  resolution_ = resolve_async(state_->loop(), host, port_, [this](Resolved resolved) {
    take([&] {
      resolution_.reset();
      keep(std::move(resolved));
      look_up_next();
    });
  });
}

void RdmaCarrier::keep(Resolved resolved) {
  if (resolved.failure) last_failure_ = std::move(resolved.failure);
  addresses_.insert(addresses_.end(), resolved.addresses.begin(), resolved.addresses.end());
}

void RdmaCarrier::connect_blocking(const Endpoint& to, ae::TimePoint deadline) {
  Attempt attempt{*this};
  if (!begin_connect(to, deadline - std::chrono::steady_clock::now())) return;
  for (; !hosts_.empty(); hosts_.pop_back())
    keep(resolve_until(hosts_.back(), port_, connect_deadline_));
  try_next_address();
  while (state() == State::kConnecting) {
    // The loop's timers do not run here, so the time-out of an address is checked here.
    const auto expired = [this] { return std::chrono::steady_clock::now() >= address_deadline_; };
    state_->pump([&] { return state() != State::kConnecting || expired(); },
                 std::min(connect_deadline_, address_deadline_));
    if (Interruption::ends()) return;
    if (state() == State::kConnecting && expired()) address_expired();
  }
  if (state() != State::kConnected) return;
  // Also waits for the first windows: a caller that blocks may not run the loop for long, and each
  // side gives up if no window arrives (accept-timeout).
  SetupTrace::begin("first window");
  post_due();
  state_->pump(
      [&] {
        return phase_ != Phase::kOpen || (stream_.has_peer_window() && stream_.has_announced());
      },
      connect_deadline_);
  if (state() == State::kConnected && stream_.has_peer_window()) SetupTrace::end();
  attempt.goes_on = true;
}

ae::Duration RdmaCarrier::time_left() const {
  return connect_deadline_ - std::chrono::steady_clock::now();
}

void RdmaCarrier::try_next_address() {
  while (phase_ == Phase::kResolving && next_address_ < addresses_.size()) {
    choose_next_address();
    const SocketAddress& address = addresses_[next_address_++];
    tried_again_ = false;
    try {
      return try_address(address);
    } catch (const VerbsError& error) {
      SetupTrace::failed();
      last_failure_ = error.failure();
      told(last_failure_);
      tear_down();
    } catch (const std::bad_alloc&) {
      last_failure_ = out_of_memory();
      tear_down();
    }
  }
  if (phase_ != Phase::kResolving) return;
  host().occupy({});
  last_failure_.text = fmt::format("connect to {}: {}", target_, last_failure_.text);
  end_with(last_failure_);
}

void RdmaCarrier::choose_next_address() noexcept {
  SocketAddress source;
  try {
    if (settings_.spread == AddressOrder::kNear && !settings_.source.empty())
      (void)numeric_address(settings_.source, 0, source);
  } catch (const std::bad_alloc&) {  // then without a source
  }
  host().occupy(static_cast<const RdmaType&>(type()).addresses().choose(
      settings_.spread, std::span(addresses_).subspan(next_address_), source));
}

void RdmaCarrier::told(const Failure& failure) const noexcept {
  if (peer_.size == 0) return;  // names are still being resolved
  static_cast<const RdmaType&>(type()).addresses().told(settings_.spread, peer_, failure.code);
}

// A caller that gives up before our own time-out has not had an answer either.
void RdmaCarrier::told_of_silence() const noexcept {
  if (std::chrono::steady_clock::now() - address_began_ < AddressBook::kSilence) return;
  told({std::make_error_code(std::errc::timed_out), {}});
}

void RdmaCarrier::try_address(const SocketAddress& address) {
  peer_ = address;
  id_ = state_->cm().create_id(static_cast<CmUser*>(this));
  if (settings_.fabric.traffic_class) set_traffic_class(id_.get(), *settings_.fabric.traffic_class);
  // Leaves part of the time for the remaining addresses.
  const bool last = next_address_ == addresses_.size();
  const ae::Duration share = last ? time_left() : time_left() / 2;
  address_began_ = std::chrono::steady_clock::now();
  address_deadline_ = address_began_ + share;
  if (!set_deadline(share, &RdmaCarrier::address_expired)) throw std::bad_alloc();
  SocketAddress source;
  if (!settings_.source.empty()) {
    if (!numeric_address(settings_.source, 0, source))
      throw VerbsError("source=" + settings_.source + " is not an address", EINVAL);
  }
  SocketAddress target = address;
  SetupTrace::begin("resolve address");
  if (rdma_resolve_addr(id_.get(), source.size != 0 ? source.get() : nullptr, target.get(),
                        milliseconds(std::min(share, kResolveLimit))) != 0)
    throw not_reached(address, errno);
}

// The address failed: tries the next one, or ends.
void RdmaCarrier::on_address_failed(Failure why) {
  SetupTrace::failed();
  last_failure_ = std::move(why);
  told(last_failure_);
  tear_down();
  if (phase_ == Phase::kConnecting) move_phase(Phase::kResolving);
  stream_ = Stream(settings_.stream(role_, host().id()), std::chrono::steady_clock::now());
  try_next_address();
}

// Refusals that do not concern the address itself: the peer's kernel still knew a connection with
// this queue pair's number, or our own address moved to another device meanwhile.
bool RdmaCarrier::try_address_again(const CmEvent& event) {
  if (!is_stale(event) && event.type != RDMA_CM_EVENT_ADDR_CHANGE) return false;
  if (std::exchange(tried_again_, true)) return false;
  try_again();
  return true;
}

void RdmaCarrier::try_again() {
  tear_down();
  if (phase_ == Phase::kConnecting) move_phase(Phase::kResolving);
  stream_ = Stream(settings_.stream(role_, host().id()), std::chrono::steady_clock::now());
  try_address(SocketAddress(peer_));
}

void RdmaCarrier::on_set_up_event(const CmEvent& event) {
  try {
    switch (event.type) {
      case RDMA_CM_EVENT_ADDR_RESOLVED:
        SetupTrace::begin("resolve route");
        // The attempt may end before its device is opened here.
        state_->devices().watch_removal(id_);
        if (rdma_resolve_route(id_.get(), milliseconds(std::min(time_left(), kResolveLimit))) != 0)
          throw errno == ENODEV ? not_reached(peer_, errno)
                                : VerbsError("rdma_resolve_route", errno);
        return;
      case RDMA_CM_EVENT_ROUTE_RESOLVED:
        return request_connection();
      case RDMA_CM_EVENT_CONNECT_RESPONSE:
      case RDMA_CM_EVENT_ESTABLISHED:  // iWARP has no separate response
        return finish_request(event);
      default: {
        if (try_address_again(event)) return;
        int err = event.status < 0 ? -event.status : ECONNREFUSED;
        if (event.type == RDMA_CM_EVENT_UNREACHABLE) err = ETIMEDOUT;
        if (event.type == RDMA_CM_EVENT_ADDR_ERROR && is_no_device(err))
          return on_address_failed(not_reached(peer_, err).failure());
        std::string why = describe(event);
        const auto patience = patience_in(why);
        return on_address_failed(
            {std::error_code(err, std::generic_category()), std::move(why), patience});
      }
    }
  } catch (const VerbsError& error) {
    on_address_failed(error.failure());
  } catch (const std::exception& error) {
    on_address_failed({std::make_error_code(std::errc::not_enough_memory), error.what()});
  }
}

rdma_conn_param RdmaCarrier::parameters(std::span<const std::byte> hello) const {
  rdma_conn_param parameters{};
  parameters.private_data = hello.data();
  parameters.private_data_len = static_cast<std::uint8_t>(hello.size());
  // The protocol has no RDMA READ, but rdma_cm requires at least one of each.
  parameters.responder_resources = 1;
  parameters.initiator_depth = 1;
  parameters.flow_control = 1;
  parameters.retry_count = settings_.timeouts.retry_count;
  parameters.rnr_retry_count = settings_.timeouts.rnr_retry_count;
  parameters.srq = qp_->srq != nullptr ? 1 : 0;
  parameters.qp_num = qp_->qp_num;
  return parameters;
}

void RdmaCarrier::request_connection() {
  SetupTrace::begin("queue pair");
  make_queue_pair();
  offer_mtu();
  const auto hello = encode(our_hello());
  if (settings_.fabric.ece) offer_ece(id_.get(), qp_.get());
  rdma_conn_param request = parameters(hello);
  SetupTrace::begin("connect");
  if (rdma_connect(id_.get(), &request) != 0) throw VerbsError("rdma_connect", errno);
  connect_under_way_ = true;
  move_phase(Phase::kConnecting);
}

void RdmaCarrier::finish_request(const CmEvent& event) {
  const std::optional<Hello> hello = decode_hello(event.data());
  if (hello) stream_.on_hello(*hello);
  if (!iwarp_) take_mtu_answer(hello ? hello->mtu : 0);
  queue_pair_ready();
  if (!keys_work()) return try_again();
  if (event.type == RDMA_CM_EVENT_CONNECT_RESPONSE && rdma_establish(id_.get()) != 0)
    throw VerbsError("rdma_establish", errno);
  cm_knows_ = true;
  clear_deadline();
  SetupTrace::end();
  established();
}

// --- the accepting side --------------------------------------------------------------------------

void RdmaCarrier::accept(std::span<const std::byte> private_data) {
  local_ = id_.local();
  peer_ = id_.peer();
  const std::optional<Hello> asked = decode_hello(private_data);
  for (bool again = true; again;) {
    stream_ = Stream(settings_.stream(role_, host().id()), std::chrono::steady_clock::now());
    if (asked) stream_.on_hello(*asked);
    make_queue_pair();
    if (!iwarp_) agree_on_mtu(asked ? asked->mtu : 0);
    queue_pair_ready();
    again = !keys_work();
    if (!again) break;
    CmId id = std::move(id_);
    tear_down();
    id_ = std::move(id);
  }
  waits_for_first_message_ = iwarp_;
  if (!iwarp_ && settings_.fabric.ece) answer_ece(id_.get(), qp_.get());
  const auto hello = encode(our_hello());
  rdma_conn_param answer = parameters(hello);
  if (rdma_accept(id_.get(), &answer) != 0) throw VerbsError("rdma_accept", errno);
  connect_under_way_ = true;
  move_phase(Phase::kAccepting);
  move_to(State::kAccepting);
  state_->on_spin_wish(settings_.spin);
  if (!set_deadline(settings_.accept_timeout, &RdmaCarrier::accept_expired)) throw std::bad_alloc();
}

void RdmaCarrier::reject_request(std::string_view why) noexcept {
  if (id_) reject(id_.get(), why);
}

// Data may arrive before rdma_cm has read the peer's last handshake message.
void RdmaCarrier::on_communication_established() {
  if (phase_ == Phase::kAccepting) established();
}

// --- both sides ----------------------------------------------------------------------------------

// On iWARP a message that finds no receive ends the connection, without a retry. So for a peer that
// does not say how many receives it expects, post as many as Valkey's programs do.
std::uint32_t RdmaCarrier::own_receives_wanted() const noexcept {
  const Device& device = context_->device();
  std::uint32_t wanted = settings_.receive_queue;
  if (stream_.peer_counts_receives() && context_->queue_pairs() >= flow::kManyConnections)
    wanted = std::min(wanted, flow::kFewReceives);
  if (device.iwarp())
    wanted = std::max(wanted, stream_.peer_is_aeconn() ? flow::kFewReceives : flow::kPlainReceives);
  const std::uint32_t room = device.max_cq() - std::min(settings_.send_queue, device.max_cq());
  return std::max(1u, std::min({wanted, device.max_send_queue(), room}));
}

// Assumes that the peer's device delays its acknowledgements as long as our own.
QpTimeouts RdmaCarrier::timeouts() const noexcept {
  QpTimeouts timeouts = settings_.timeouts;
  timeouts.ack_timeout =
      std::max(timeouts.ack_timeout,
               std::min<std::uint8_t>(context_->device().limits().local_ca_ack_delay, 31));
  return timeouts;
}

void RdmaCarrier::make_queue_pair() {
  try {
    set_up();
  } catch (const VerbsError& error) {
    if (is_memory_limit(error.failure())) ++state_->statistics().memory_refusals;
    Failure failure = error.failure();
    if (context_ != nullptr)
      failure.text +=
          limit_words(failure.code.value(), context_->name(), &context_->device(), settings_);
    throw VerbsError(std::move(failure));
  }
}

// Checks what may be refused, memory first, before anything is created that takes long.
void RdmaCarrier::set_up() {
  context_ = state_->devices().context(id_, settings_);
  state_->add(*this);
  Device& device = context_->device();
  device_ = fmt::format("{}/{}", device.name(), id_->port_num);
  iwarp_ = device.iwarp();
  route_ = {};
  check(settings_.fabric, {device.verbs(), device.name(), id_->port_num, iwarp_}, id_.local());
  if (context_->full_of_parked())
    throw VerbsError(Failure{std::make_error_code(std::errc::network_down),
                             fmt::format("{}: connections that ended wait for its port to come "
                                         "up again, and there is no room for more",
                                         device.name())});
  const std::uint32_t sends = std::min(settings_.send_queue, device.max_send_queue());
  settings_.send_queue = sends;
  domain_ = context_->domain(settings_, own_receives_wanted());
  const std::uint32_t receives = domain_->srq() != nullptr ? 0 : own_receives_wanted();
  const QueuePairShape shape{domain_.get(), sends, settings_.inline_data};
  std::optional<PreparedQueuePair> prepared;
  if (receives == 0) prepared = context_->take_prepared(shape);
  if (prepared) state_->preparation().on_taken();
  tx_.use(&domain_->local(), &domain_->references());
  if (!device.keys_are_younger()) open_first_window();
  if (receives != 0)
    receives_ = std::make_unique<ReceiveQueue>(domain_->local(), receives, settings_.limit());
  const std::uint32_t told = receives != 0
                                 ? flow::told_of_own(receives)
                                 : flow::told_of_shared(domain_->shared_receives()->depth());
  if (told < flow::kLeastTold || sends < flow::kLeastSendQueue)
    throw VerbsError(Failure{
        std::make_error_code(std::errc::not_supported),
        fmt::format("{}: has room for {} receives and {} sends of a connection, which needs {} "
                    "and {}",
                    device.name(), told, sends, flow::kLeastTold, flow::kLeastSendQueue)});
  stream_.on_receives(told, !device.iwarp());
  ring_.assign(std::bit_ceil(sends), Sent{});
  posted_ = done_ = last_signaled_ = last_data_ = 0;
  data_under_way_ = wrote_ = false;
  sends_failed_ = false;

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
  if (device.keys_are_younger()) open_first_window();
  pieces_limit_ = cap.max_send_sge;
  inline_limit_ = std::min(cap.max_inline_data, settings_.inline_data);
  rings_ = pin_rings(cap);
  if (inline_limit_ < kControlSize) {
    Failure why;
    control_ = domain_->local().acquire(ring_.size() * kControlSize, settings_.limit(), &why);
    if (control_ == nullptr) throw VerbsError(std::move(why));
  }
  context_->attach(qp_->qp_num, this);
  qp_to_init(id_.get(), qp_.get(), settings_.fabric);
  if (receives_ != nullptr) {
    receives_->attach(qp_.get());
    if (const int err = receives_->replenish(); err != 0) throw VerbsError("ibv_post_recv", err);
  }
}

void RdmaCarrier::open_first_window() {
  manage_windows();
  if (stream_.failure() != nullptr) throw VerbsError(window_failure_);
}

void RdmaCarrier::queue_pair_ready() {
  live_ = true;
  if (iwarp_) return;
  if (settings_.fabric.ece) take_ece(id_.get(), qp_.get());
  route_ = qp_to_ready(id_.get(), qp_.get(),
                       {.timeouts = timeouts(),
                        .fabric = settings_.fabric,
                        .mtu = mtu_,
                        .infiniband = context_->device().infiniband(id_->port_num, state_->now())});
}

// --- the MTU of the path -------------------------------------------------------------------------
// A device refuses packets that are shorter than the path's MTU unless they end a message, so both
// ends need the same MTU. rdma_cm uses the connecting side's for both; if both ends use this
// library, it is the minimum of both ends' values and of their options.

Hello RdmaCarrier::our_hello() const {
  Hello hello = stream_.hello();
  hello.mtu = static_cast<std::uint8_t>(mtu_told_);
  if (hello.mtu != 0) hello.flags |= Hello::kTellsMtu;
  return hello;
}

void RdmaCarrier::offer_mtu() {
  mtu_ = mtu_told_ = {};
  if (iwarp_) return;
  mtu_told_ = mtu_of_path(id_.get());
  if (mtu_told_ != 0 && settings_.fabric.path_mtu)
    mtu_told_ = std::min(mtu_told_, *settings_.fabric.path_mtu);
}

void RdmaCarrier::take_mtu_answer(std::uint8_t answer) {
  if (answer != 0 && mtu_told_ != 0)
    mtu_ = std::min(static_cast<ibv_mtu>(answer), mtu_told_);
  else
    refuse_lone_mtu();
}

void RdmaCarrier::agree_on_mtu(std::uint8_t asked) {
  mtu_ = mtu_told_ = {};
  const ibv_mtu here = context_->device().active_mtu(id_->port_num, state_->now());
  if (asked == 0) {
    const ibv_mtu path = mtu_of_path(id_.get());
    if (path > here)
      throw VerbsError(Failure{
          std::make_error_code(std::errc::message_size),
          fmt::format("the peer's packets are of up to {} bytes, and those of {} of up to {}: give "
                      "both networks the same MTU",
                      bytes_of(path), device_, bytes_of(here))});
    return refuse_lone_mtu();
  }
  mtu_ = std::min(static_cast<ibv_mtu>(asked), here);
  if (settings_.fabric.path_mtu) mtu_ = std::min(mtu_, *settings_.fabric.path_mtu);
  mtu_told_ = mtu_;
}

// A peer that does not know our hello uses the MTU of rdma_cm.
void RdmaCarrier::refuse_lone_mtu() const {
  const ibv_mtu path = mtu_of_path(id_.get());
  if (!settings_.fabric.path_mtu || path <= *settings_.fabric.path_mtu) return;
  throw VerbsError(
      Failure{std::make_error_code(std::errc::message_size),
              fmt::format("path-mtu={}: only a peer of ours can agree on that, and this one counts "
                          "with {}",
                          bytes_of(*settings_.fabric.path_mtu), bytes_of(path))});
}

void RdmaCarrier::established() {
  if (role_ == Role::kClient) told({});
  move_phase(Phase::kOpen);
  local_ = id_.local();
  peer_ = id_.peer();
  context_->device().on_port_event(id_->port_num, false);  // it works, whatever was reported
  move_to(State::kConnected);
  const ae::TimePoint now = std::chrono::steady_clock::now();
  stream_.on_open(now);
  state_->look_at(*this, stream_.next_tick());
  state_->want_flush(*this);
  // On the accepting side this deadline has been set since the request.
  if (role_ == Role::kClient && !stream_.has_peer_window() &&
      !set_deadline(settings_.accept_timeout, &RdmaCarrier::accept_expired))
    end_with(out_of_memory());
  if (listener_ != nullptr) listener_->on_established(*this);
  update_ready();
}

}}}  // namespace conn::rdma
