// SPDX-License-Identifier: BSD-3-Clause
#include "conn/rdma/setup.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <span>
#include <utility>

#include "conn/kit/retry_after.h"
#include "conn/rdma/device/availability.h"
#include "conn/rdma/device/reject_reason.h"
#include "conn/setup_trace.h"

namespace conn { inline namespace AECONN_ABI { namespace rdma {
namespace {

// Longest time for rdma_cm to resolve an address, and to resolve a route. After that the next
// address is tried.
constexpr ae::Duration kResolveLimit = std::chrono::seconds(2);

int timeout_ms(ae::Duration duration) {
  const auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(duration).count();
  return static_cast<int>(std::clamp<long long>(ms, 1, 1000000));
}

}  // namespace

Setup::Setup(const Around& around, const Endpoint& to, ae::TimePoint until, std::size_t first)
    : link_(around.link),
      deadline_(around.deadline),
      host_(around.host),
      user_(around.user),
      hellos_(around.hellos),
      book_(around.book),
      target_(to.to_string()),
      port_(to.port),
      until_(until),
      first_(first) {
  address_deadline_ = until;  // limits the look-ups of names, before the first address is tried
  for (const Endpoint::Host& host : to.hosts) hosts_.push_back(host.name);
  std::reverse(hosts_.begin(), hosts_.end());
}

ae::Duration Setup::time_left() const { return until_ - std::chrono::steady_clock::now(); }

// --- resolving host names ------------------------------------------------------------------------

void Setup::look_up_next() {
  if (link_.inherited()) return;
  if (hosts_.empty()) return try_first_address();
  const std::string host = std::move(hosts_.back());
  hosts_.pop_back();
  resolution_ = resolve_async(link_.state().loop(), host, port_, [this](Resolved resolved) {
    try {
      resolution_.reset();
      keep(std::move(resolved));
      look_up_next();
    } catch (const std::exception&) {
      user_.on_set_up_failed(out_of_memory());
    }
  });
}

void Setup::look_up_all(ae::TimePoint limit) {
  for (; !hosts_.empty(); hosts_.pop_back())
    keep(resolve_until(hosts_.back(), port_, std::min(limit, until_)));
  try_first_address();
}

void Setup::keep(Resolved resolved) {
  if (resolved.failure) {
    last_failure_ = std::move(resolved.failure);
    resolved_all_ = false;
  }
  addresses_.insert(addresses_.end(), resolved.addresses.begin(), resolved.addresses.end());
}

// --- trying one address after the other ----------------------------------------------------------

void Setup::try_first_address() {
  if (!addresses_.empty())
    std::rotate(addresses_.begin(),
                addresses_.begin() + static_cast<std::ptrdiff_t>(first_ % addresses_.size()),
                addresses_.end());
  try_next_address();
}

std::uint32_t Setup::address() const noexcept {
  if (addresses_.empty() || next_address_ == 0) return 0;
  return static_cast<std::uint32_t>((first_ + next_address_ - 1) % addresses_.size());
}

void Setup::try_next_address() {
  while (link_.stage.phase() == Phase::kResolving &&
         (hellos_ == nullptr || final_ == Refused::kNone) && next_address_ < addresses_.size()) {
    choose_next_address();
    const SocketAddress& address = addresses_[next_address_++];
    refused_ = Refused::kNone;
    tried_again_ = false;
    may_bind_ = true;
    try {
      return try_address(address);
    } catch (const VerbsError& error) {
      record(error.failure());
    } catch (const std::bad_alloc&) {
      last_failure_ = out_of_memory();
      drop_link();
    }
  }
  if (link_.stage.phase() != Phase::kResolving) return;
  host_.occupy({});
  last_failure_.text = fmt::format("connect to {}: {}", target_, last_failure_.text);
  user_.on_set_up_failed(last_failure_);
}

void Setup::choose_next_address() noexcept {
  const Settings& settings = link_.settings();
  SocketAddress source;
  try {
    if (settings.spread == AddressOrder::kNear && !settings.source.empty())
      (void)numeric_address(settings.source, 0, source);
  } catch (const std::bad_alloc&) {  // no memory: the choice of the address ignores `source`
  }
  host_.occupy(book_.choose(settings.spread, std::span(addresses_).subspan(next_address_), source));
}

void Setup::report(const std::error_code& why) const noexcept {
  // The address is empty if none was tried yet, because names are still being resolved.
  const SocketAddress peer = link_.path.peer();
  if (peer.size != 0) book_.report(link_.settings().spread, peer, why);
}

void Setup::report_silence() const noexcept {
  if (std::chrono::steady_clock::now() - address_began_ < AddressBook::kSilence) return;
  report(std::make_error_code(std::errc::timed_out));
}

void Setup::try_address(const SocketAddress& address) {
  const Settings& settings = link_.settings();
  link_.path.set_peer(address);
  CmId& id = link_.id();
  id = link_.state().cm()->create_id(static_cast<CmUser*>(&link_.user()));
  if (settings.fabric.traffic_class) set_traffic_class(id.get(), *settings.fabric.traffic_class);
  // Each address except the last may use half of the remaining time, so that time is left for the
  // later ones.
  const bool last = next_address_ == addresses_.size();
  const ae::Duration share = last ? time_left() : time_left() / 2;
  address_began_ = std::chrono::steady_clock::now();
  address_deadline_ = address_began_ + share;
  if (!deadline_.set(share, Deadline::Of::kAddress)) throw std::bad_alloc();
  SocketAddress source;
  if (!settings.source.empty()) {
    if (!numeric_address(settings.source, 0, source))
      throw VerbsError("source=" + settings.source + " is not an address", EINVAL);
  }
  SocketAddress target = address;
  SetupTrace::begin("resolve address");
  if (rdma_resolve_addr(id.get(), source.size != 0 ? source.get() : nullptr, target.get(),
                        timeout_ms(std::min(share, kResolveLimit))) != 0)
    throw not_reached(address, errno);
}

// Handles the failure of the current address: tries the next address, or reports that none is left.
void Setup::on_address_failed(Failure why) {
  record(std::move(why));
  try_next_address();
}

// Records the failure of the current address, and destroys its objects.
void Setup::record(Failure why) {
  SetupTrace::failed();
  last_failure_ = std::move(why);
  report(last_failure_.code);
  if (refused_ == Refused::kOver || refused_ == Refused::kGap) final_ = refused_;
  if (refused_ == Refused::kUnknown) ++unknown_;
  if (refused_ != Refused::kNone || (last_failure_.code == std::errc::connection_refused &&
                                     last_failure_.retry_after == ae::Duration::zero()))
    ++nobody_;
  drop_link();
}

// Destroys all rdma_cm and verbs objects that were created for the current address, and resets the
// protocol state of the byte stream.
void Setup::drop_link() {
  link_.tear_down();
  given_up_ = {};
  if (link_.stage.phase() == Phase::kConnecting) link_.stage.move(Phase::kResolving);
  if (hellos_ != nullptr)
    hellos_->renew_stream();
  else
    link_.renew_stream(host_.id());
}

bool Setup::give_up_address(Failure& why) noexcept {
  if (!deadline_.set(ae::Duration::zero(), Deadline::Of::kAddress)) return false;
  address_deadline_ = std::chrono::steady_clock::now();
  given_up_ = std::move(why);
  return true;
}

void Setup::on_deadline() {
  if (!link_.stage.connecting()) return;
  if (given_up_) return on_address_failed(std::exchange(given_up_, {}));
  Failure failure{std::make_error_code(std::errc::timed_out), ""};
  const SocketAddress peer = link_.path.peer();
  failure.text = fmt::format("{} did not answer in time",
                             peer.size != 0 ? peer.to_string() : "the name service");
  resolution_.reset();
  if (time_left() <= ae::Duration::zero()) next_address_ = addresses_.size();
  on_address_failed(std::move(failure));
}

// Tries the current address again and returns true if another attempt may succeed: the peer's
// kernel still knew an old connection from a queue pair with this number, or our own address has
// moved to another device. Each address is tried again only once.
bool Setup::try_again_after(const CmEvent& event) {
  if (!is_stale(event) && event.type != RDMA_CM_EVENT_ADDR_CHANGE) return false;
  if (std::exchange(tried_again_, true)) return false;
  try_again();
  return true;
}

void Setup::try_again() {
  drop_link();
  try_address(link_.path.peer());
}

// --- handling rdma_cm events ---------------------------------------------------------------------

void Setup::on_event(const CmEvent& event) {
  try {
    switch (event.type) {
      case RDMA_CM_EVENT_ADDR_RESOLVED:
        return resolve_route();
      case RDMA_CM_EVENT_ROUTE_RESOLVED:
        return request_connection();
      case RDMA_CM_EVENT_CONNECT_RESPONSE:
      // On iWARP there is no event CONNECT_RESPONSE; ESTABLISHED carries the peer's answer.
      case RDMA_CM_EVENT_ESTABLISHED:
        return finish_request(event);
      default: {
        if (try_again_after(event)) return;
        int err = event.status < 0 ? -event.status : ECONNREFUSED;
        if (event.type == RDMA_CM_EVENT_UNREACHABLE) err = ETIMEDOUT;
        if (event.type == RDMA_CM_EVENT_ADDR_ERROR && is_no_device(err))
          return on_address_failed(not_reached(link_.path.peer(), err).failure());
        if (event.type == RDMA_CM_EVENT_REJECTED)
          refused_ = refused_in(reject_reason_in(event.data()));
        std::string why = describe(event);
        const auto retry_after = retry_after_in(why);
        return on_address_failed(
            {std::error_code(err, std::generic_category()), std::move(why), retry_after});
      }
    }
  } catch (const VerbsError& error) {
    on_address_failed(error.failure());
  } catch (const std::exception& error) {
    on_address_failed({std::make_error_code(std::errc::not_enough_memory), error.what()});
  }
}

void Setup::resolve_route() {
  const CmId& id = link_.id();
  SetupTrace::begin("resolve route");
  // Watches the device for removal from now on, because librdmacm has opened it.
  link_.state().devices().watch_removal(id);
  if (rdma_resolve_route(id.get(), timeout_ms(std::min(time_left(), kResolveLimit))) != 0)
    throw errno == ENODEV ? not_reached(link_.path.peer(), errno)
                          : VerbsError("rdma_resolve_route", errno);
}

void Setup::request_connection() {
  rdma_cm_id* const id = link_.id().get();
  const Fabric& fabric = link_.settings().fabric;
  SetupTrace::begin("queue pair");
  link_.make(may_bind_);
  mtu_ = {};
  if (!link_.path.iwarp()) mtu_.offer(id, fabric);
  Hello ours = link_.stream.hello();
  mtu_.tell(ours);
  const PrivateData ask =
      hellos_ != nullptr ? hellos_->request(ours) : PrivateData(encode(ours, HelloKind::kRequest));
  if (fabric.ece) offer_ece(id, link_.queue_pair());
  rdma_conn_param request = connection_parameters(link_, ask.data());
  SetupTrace::begin("connect");
  if (rdma_connect(id, &request) != 0) throw VerbsError("rdma_connect", errno);
  link_.stage.advance(Handshake::kUnderWay);
  link_.stage.move(Phase::kConnecting);
}

std::optional<Hello> Setup::take_answer(std::span<const std::byte> data) {
  if (hellos_ != nullptr) return hellos_->take_answer(data);
  std::optional<Hello> hello = decode_hello(data, HelloKind::kAnswer);
  if (hello) link_.stream.on_hello(*hello);
  return hello;
}

void Setup::finish_request(const CmEvent& event) {
  rdma_cm_id* const id = link_.id().get();
  const std::optional<Hello> hello = take_answer(event.data());
  if (!link_.path.iwarp()) mtu_.take_answer(id, link_.settings().fabric, hello ? hello->mtu : 0);
  link_.connect(mtu_.agreed());
  const bool works = link_.keys_work();
  // Completions or events of the device that were handled in keys_work() may have ended the
  // connection.
  if (link_.stage.phase() != Phase::kConnecting) return;
  if (!works) {
    may_bind_ = false;
    return try_again();
  }
  if (event.type == RDMA_CM_EVENT_CONNECT_RESPONSE && rdma_establish(id) != 0)
    throw VerbsError("rdma_establish", errno);
  link_.stage.advance(Handshake::kKnown);
  deadline_.clear(&link_.state().loop());
  SetupTrace::end();
  report({});
  user_.on_set_up();
}

}}}  // namespace conn::rdma
