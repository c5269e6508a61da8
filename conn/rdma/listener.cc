// SPDX-License-Identifier: BSD-3-Clause
#include "conn/rdma/listener.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "conn/connection_type.h"
#include "conn/core/connection_core.h"
#include "conn/core/make_connection.h"
#include "conn/kit/retry_after.h"
#include "conn/rdma/device/availability.h"
#include "conn/rdma/device/device_list.h"
#include "conn/rdma/device/numa.h"
#include "conn/rdma/listen_capacity.h"
#include "conn/rdma/loop/clock.h"
#include "conn/rdma/protocol/resume_message.h"
#include "conn/rdma/session_table.h"
#include "conn/rdma/type.h"

namespace conn { inline namespace AECONN_ABI { namespace rdma {
namespace {

constexpr ae::Duration kRetry = std::chrono::milliseconds(500);

// Returns true if `why` does not only mean that no device here has the address; the port may be in
// use, for example.
bool is_of_device(const Failure& why) noexcept {
  return why.code.category() == std::generic_category() && !is_no_device(why.code.value()) &&
         why.code != std::errc::address_family_not_supported;
}

// Records in `why` that another address failed with `next`. The first failure of an address that a
// device has is kept, because the caller can act on it, for example by choosing another port.
void add_failure(Failure& why, Failure next) {
  if (!is_of_device(why)) why = std::move(next);
}

}  // namespace

// --- one listening address -----------------------------------------------------------------------

class ListenerCore::Port final : private CmUser {
 public:
  Port(ListenerCore& core, SocketAddress address) : core_(core), address_(address) { open(); }

  /// Creates the rdma_cm id, binds it to the address of this object, and listens. Throws
  /// VerbsError.
  void open() {
    id_ = core_.state_->cm()->create_id(static_cast<CmUser*>(this));
    if (address_.family() == AF_INET6) {
      // Restricts the id to IPv6, so that it does not conflict with an id for IPv4 on the same
      // port.
      int only = 1;
      (void)rdma_set_option(id_.get(), RDMA_OPTION_ID, RDMA_OPTION_ID_AFONLY, &only, sizeof only);
    }
    int reuse = 1;
    (void)rdma_set_option(id_.get(), RDMA_OPTION_ID, RDMA_OPTION_ID_REUSEADDR, &reuse,
                          sizeof reuse);
    if (core_.settings_.fabric.traffic_class)
      set_traffic_class(id_.get(), *core_.settings_.fabric.traffic_class);
    const auto failed = [&](const char* what) {
      const int err = errno;
      id_.reset();
      throw VerbsError(fmt::format("{} {}", what, address_.to_string()), err);
    };
    if (rdma_bind_addr(id_.get(), address_.get()) != 0) failed("bind to");
    core_.state_->devices().watch_removal(id_);
    // If the rdma_cm id is bound to one address, the device of the address is compared with the
    // option `device` here. With the address "*", the device of each request is checked instead.
    const std::string& device = core_.settings_.device;
    if (!device.empty() && id_->verbs != nullptr &&
        device != ibv_get_device_name(id_->verbs->device)) {
      errno = EADDRNOTAVAIL;
      failed(fmt::format("device={} does not have", device).c_str());
    }
    // Opens the device of the address now, so that a failure to use it is reported at once.
    if (id_->verbs != nullptr) {
      try {
        const auto context = core_.state_->devices().context(id_, core_.settings_);
        const Device& on = context->device();
        check(core_.settings_.fabric, {on.verbs(), on.name(), id_->port_num, on.iwarp()},
              id_.local());
      } catch (const VerbsError&) {
        id_.reset();
        throw;
      }
    }
    if (rdma_listen(id_.get(), static_cast<int>(core_.settings_.backlog)) != 0) failed("listen on");
    address_ = id_.local();
    if (core_.wishes_prepared()) core_.state_->preparation().soon();
  }
  bool down() const noexcept { return !id_; }
  /// If the address has moved to another device or port, listens with a new rdma_cm id: the kernel
  /// does not move an id to another device. Returns false if no device has the address now.
  bool follow() {
    if (!id_ || id_->verbs == nullptr) return true;
    CmId probe = core_.state_->cm()->create_id(static_cast<CmUser*>(this));
    SocketAddress any_port = address_;
    any_port.set_port(0);
    if (rdma_bind_addr(probe.get(), any_port.get()) != 0) return false;
    if (probe->verbs == id_->verbs && probe->port_num == id_->port_num) return true;
    probe.reset();
    id_.reset();
    open();
    return true;
  }
  void close() noexcept { id_.reset(); }
  std::string device() const {
    return id_ && id_->verbs != nullptr ? ibv_get_device_name(id_->verbs->device) : "";
  }
  const SocketAddress& address() const noexcept { return address_; }

 private:
  void on_cm_event(const CmEvent& event) override {
    if (event.type == RDMA_CM_EVENT_CONNECT_REQUEST) return core_.on_request(event);
    if (event.type != RDMA_CM_EVENT_DEVICE_REMOVAL && event.type != RDMA_CM_EVENT_ADDR_CHANGE)
      return;
    id_.reset();
    // The address may have moved to another device, so a new rdma_cm id listens on it.
    if (event.type == RDMA_CM_EVENT_ADDR_CHANGE) {
      try {
        return open();
      } catch (const std::exception&) {
        id_.reset();
      }
    }
    core_.schedule_retry();
  }
  ListenerCore& core_;
  SocketAddress address_;
  CmId id_;
};

// --- setting up and moving the listener ----------------------------------------------------------

ListenerCore::ListenerCore(const ConnectionType& type, LoopState& state, const Settings& settings,
                           ListenTo to)
    : type_(type),
      state_(&state),
      shared_settings_(std::make_shared<const Settings>(settings)),
      quota_(settings.max_connections) {
  // Creates the statistics counters of this loop now, because there may be no memory for them
  // later.
  (void)type.counters(state.loop());
  if (to.accepted) accepted_.set(std::move(to.accepted));
  if (to.arrived) arrived_.set(std::move(to.arrived));
  state_->listeners().add(*this);
}

void ListenerCore::listen(const Endpoint& endpoint) {
  endpoint_ = endpoint;
  const auto refused = [&](const Failure& why) {
    return Error(why.code, fmt::format("{}: {}", endpoint.to_string(), why.text));
  };
  std::uint16_t port = endpoint.port;
  Failure why_none{{}, "it names no address"};
  for (const Endpoint::Host& host : endpoint.hosts) {
    Resolved resolved = resolve(host.name, port, true);
    Failure why = std::move(resolved.failure);
    bool opened = false;
    for (const SocketAddress& address : resolved.addresses) {
      try {
        ports_.push_back(std::make_unique<Port>(*this, address));
        if (port == 0) port = ports_.back()->address().port();
        opened = true;
        break;
      } catch (const VerbsError& error) {
        const int err = error.failure().code.value();
        Failure its = error.failure();
        if (err == EADDRNOTAVAIL && settings_.device.empty()) its.text += "; " + devices_text();
        if (err == ENODEV) its.text = no_device_has(host.name);
        add_failure(why, std::move(its));
      }
    }
    if (opened) continue;
    if (!host.optional) throw refused(why);
    add_failure(why_none, std::move(why));
  }
  if (ports_.empty()) throw refused(why_none);
  if (const std::string why = why_none_can_be_served(*state_, settings_); !why.empty())
    throw refused({std::make_error_code(std::errc::not_enough_memory), why});
  constexpr std::uint64_t kUsual = 1000;
  const Options options = static_cast<const RdmaType&>(type_).options_for(endpoint_);
  record_capacity(*state_, settings_,
                  options.has("max-connections") ? settings_.max_connections : kUsual);
}

ListenerCore::~ListenerCore() { stop(); }

void ListenerCore::stop() noexcept {
  if (stopped_) return;
  stopped_ = true;
  leave_loop();
  // The objects of class Port (listening addresses) are closed but not destroyed, because one of
  // their functions may have called this one.
  for (const auto& port : ports_) port->close();
  requests_.clear();
  refusals_.clear();
  established_.clear();
  for (const auto& [carrier, connection] : std::exchange(young_, {})) carrier->leave_listener();
  // The handlers are destroyed last: their destructors may run any code, which may destroy this
  // object.
  const auto refused_handler = refused_.take();
  const auto arrived_handler = arrived_.take();
  const auto accepted_handler = accepted_.take();
}

void ListenerCore::leave_loop() noexcept {
  unqueue();
  if (state_ == nullptr) return;
  state_->listeners().remove(*this);
  // Starts the timer that destroys queue pairs that were created in advance, and then closes
  // devices that are not used any more.
  if (!state_->inherited()) state_->preparation().soon();
  if (retry_ != 0) state_->loop().remove_time_event(std::exchange(retry_, 0));
}

// The listening rdma_cm ids are not moved to the new loop: that loop could get their events before
// arrive() is called, and the kernel would drop requests that were not read. Instead, all events
// are read here, and the new loop listens with new ids.
void ListenerCore::leave(const std::shared_ptr<CmChannel>& to) noexcept {
  if (state_ != nullptr) state_->drain_cm();
  leave_loop();
  state_ = nullptr;
  for (const auto& port : ports_) port->close();
  std::erase_if(requests_, [&](const auto& request) { return !request->move_to(to); });
}

void ListenerCore::arrive(LoopState& state) {
  state_ = &state;
  state.listeners().add(*this);
  if (retry_down() != ae::kNoMore) schedule_retry();
  if (!paused_) resume();
}

std::unique_ptr<RdmaPending> ListenerCore::give_back() noexcept {
  if (requests_.empty()) return nullptr;
  auto next = std::move(requests_.front());
  requests_.pop_front();
  return next;
}

bool ListenerCore::is_on(const std::string& device) const {
  if (!settings_.device.empty() && settings_.device != device) return false;
  return ports_.empty() || std::any_of(ports_.begin(), ports_.end(), [&](const auto& port) {
           const std::string here = port->device();
           return here == device || (here.empty() && !port->down());
         });
}

std::set<std::string> ListenerCore::devices() const {
  std::set<std::string> all;
  for (const auto& port : ports_) all.insert(port->device());
  return all;
}

void ListenerCore::loop_gone() noexcept {
  stop();
  state_ = nullptr;
}

std::vector<Endpoint> ListenerCore::endpoints() const {
  std::vector<Endpoint> all;
  for (const auto& port : ports_) {
    Endpoint each = endpoint_;
    each.hosts = {{port->address().host(), false}};
    each.port = port->address().port();
    each.no_port = false;
    all.push_back(std::move(each));
  }
  return all;
}

// Starts a timer that tries again to listen on addresses whose device is gone or has changed. The
// failures of these attempts are not reported.
void ListenerCore::schedule_retry() noexcept {
  if (retry_ != 0 || stopped_) return;
  try {
    retry_ = state_->loop().add_time_event(
        kRetry, [this] { return state_->inherited() ? ae::kNoMore : retry_down(); });
    retry_at_ = clock_now() + kRetry;
  } catch (const std::bad_alloc&) {
    state_->listeners().ask_again();
  }
}

void ListenerCore::retry_if_down() noexcept {
  const auto down = [](const auto& port) { return port->down(); };
  if (follows_ || std::any_of(ports_.begin(), ports_.end(), down)) schedule_retry();
}

void ListenerCore::follow_addresses() noexcept {
  follows_ = true;
  schedule_retry();
}

ae::Duration ListenerCore::retry_down() {
  bool any_down = false;
  const bool follows = std::exchange(follows_, false);
  for (const auto& port : ports_) {
    try {
      if (port->down()) {
        port->open();
      } else if (follows && !port->follow()) {
        follows_ = any_down = true;
      }
    } catch (const std::exception&) {
      port->close();
      any_down = true;
    }
  }
  retry_at_ = any_down ? clock_now() + kRetry : ae::TimePoint::max();
  if (any_down) return kRetry;
  retry_ = 0;
  return ae::kNoMore;
}

ae::TimePoint ListenerCore::retry_if_due(ae::TimePoint now) noexcept {
  if (retry_ != 0 && now >= retry_at_) {
    state_->loop().remove_time_event(std::exchange(retry_, 0));
    if (retry_down() != ae::kNoMore) schedule_retry();
  }
  return retry_ != 0 ? retry_at_ : ae::TimePoint::max();
}

// --- handling connection requests ----------------------------------------------------------------

void ListenerCore::on_request(const CmEvent& event) {
  CmId id(event.id);
  id->context = nullptr;
  // Watches the device, so that its removal is detected even if this request is refused.
  state_->devices().watch_removal(id);
  try {
    auto request = std::make_unique<RdmaPending>(state_->cm(), std::move(id), event.data());
    if (const auto resume = decode_resume(event.data())) {
      const BoundAddress bound = bound_address(request->id().peer());
      using Passed = SessionTable::Passed;
      const Passed passed =
          SessionTable::of_process().pass(request, *resume, bound, state_->loop());
      if (passed == Passed::kYes) return;
      ++state_->statistics().resumes_refused;
      return request->refuse(passed == Passed::kLater ? retry_after_under_overload()
                                                      : text_of(Refused::kUnknown));
    }
    take(std::move(request));
  } catch (const std::bad_alloc&) {  // no memory: destroying the rdma_cm id rejects the request
    ++state_->statistics().rejected;
    ++type_.counters(state_->loop()).accept_errors;
  }
}

void ListenerCore::take(std::unique_ptr<RdmaPending> request) {
  if (requests_.size() + young_.size() >= settings_.backlog) {
    ++state_->statistics().rejected;
    return request->refuse(retry_after_under_overload());
  }
  if (paused_ || !requests_.empty())
    requests_.push_back(std::move(request));
  else
    accept(std::move(request));
}

void ListenerCore::drop_request(const rdma_cm_id* id) noexcept {
  std::erase_if(requests_, [&](const auto& request) { return request->id().get() == id; });
}

void ListenerCore::resume() {
  paused_ = false;
  if (stopped_ || state_ == nullptr) return;
  if (!established_.empty() || !requests_.empty()) state_->ready().push(*this);
}

void ListenerCore::count_rejected() noexcept {
  if (state_ != nullptr) ++state_->statistics().rejected;
}

// Accepts the connection requests that arrived while the listener was paused.
void ListenerCore::accept_waiting() {
  for (bool first = true; !paused_ && !stopped_ && !requests_.empty(); first = false) {
    // If the handler is running now, it runs the event loop itself, and this code is called from
    // that nested iteration. The handler must not be called recursively.
    if (arrived_.running()) return;
    if (!first && !state_->iteration().has_share_left()) return;
    const IterationBudget::Spending spending(state_->iteration());
    auto request = std::move(requests_.front());
    requests_.pop_front();
    try {
      accept(std::move(request));
    } catch (const std::bad_alloc&) {  // no memory: only this request is lost
      ++state_->statistics().rejected;
      ++type_.counters(state_->loop()).accept_errors;
    }
  }
}

void ListenerCore::accept(std::unique_ptr<RdmaPending> request) {
  if (arrived_) return arrived_.run(std::move(request));
  if (!request->place) {
    if (quota_.full()) {
      request->refuse(retry_after_when_full());
      ++state_->statistics().rejected;
      ++type_.counters(state_->loop()).refused;
      return refused(quota_.refusal(request->peer()));
    }
    request->place = quota_.take();
  }
  if (wishes_prepared()) state_->preparation().soon();
  auto [connection, carrier] =
      make_connection<RdmaCarrier>(state_->loop(), type_, *state_, shared_settings_, this);
  ConnectionCore::of(*connection).occupy(std::move(request->place));
  try {
    young_.emplace(&carrier, std::move(connection));
    if (established_.capacity() < young_.size()) established_.reserve(2 * young_.size());
    carrier.accept(std::move(request->id()), request->private_data());
  } catch (const std::exception& error) {
    ++state_->statistics().rejected;
    ++type_.counters(state_->loop()).accept_errors;
    if (request->id()) request->refuse(error.what());
    carrier.leave_listener();
    young_.erase(&carrier);  // destroys the ConnectionPtr, and so closes the connection
  }
}

// Queues `why` for the user's handler for refused requests. The handler is called later, from the
// loop's ready list, because requests are also processed where no handler of the user may run.
void ListenerCore::refused(const Failure& why) {
  if (!refused_ || refusals_.size() >= settings_.backlog) return;
  refusals_.push_back(why);
  state_->ready().push(*this);
}

void ListenerCore::on_established(LinkedCarrier& carrier) noexcept {
  established_.push_back(&carrier);
  state_->ready().push(*this);
}

void ListenerCore::on_lost(LinkedCarrier& carrier) noexcept {
  std::erase(established_, &carrier);
  ++type_.counters(state_->loop()).accept_errors;
  carrier.leave_listener();
  young_.erase(&carrier);  // destroys the ConnectionPtr, and so closes the connection
}

std::size_t ListenerCore::run_ready() {
  // The destructor puts the listener back on the loop's ready list if it has more to do, even if a
  // handler has thrown.
  struct Requeue {
    ListenerCore& core;
    ~Requeue() {
      const bool waiting = !core.established_.empty() || !core.requests_.empty();
      const bool more = !core.refusals_.empty() || (waiting && !core.paused_);
      const bool nested = core.accepted_.running() || core.refused_.running();
      if (more && !nested && !core.stopped_) core.state_->ready().push(core);
    }
  } requeue{*this};
  accept_waiting();
  std::size_t refused = 0, handed_over = 0;
  const auto may_go_on = [&](std::size_t done) {
    if (stopped_ || done >= settings_.accept_batch) return false;
    return done == 0 || state_->loop().has_time();
  };
  while (!refusals_.empty() && may_go_on(refused)) {
    // If the handler is running now, it runs the event loop itself, and this code is called from
    // that nested iteration. The handler must not be called recursively.
    if (refused_.running()) break;
    const Failure why = std::move(refusals_.front());
    refusals_.pop_front();
    ++refused;
    refused_.run(why);
  }
  while (!established_.empty() && !paused_ && may_go_on(handed_over)) {
    if (accepted_.running()) break;
    LinkedCarrier& carrier = *established_.front();
    established_.erase(established_.begin());
    const auto young = young_.find(&carrier);
    if (young->second->state() != State::kConnected) {
      on_lost(carrier);
      continue;
    }
    ConnectionPtr connection = std::move(young->second);
    young_.erase(young);
    carrier.leave_listener();
    ++handed_over;
    accepted_.run(std::move(connection));
  }
  return refused + handed_over;
}

// --- the objects that the user owns --------------------------------------------------------------

namespace {

// Stops `core`, the implementation of a listener, and lets the loop destroy it later: the user's
// object may be destroyed inside a handler that `core` is calling.
void let_go(std::unique_ptr<ListenerCore> core) noexcept {
  core->stop();
  if (ae::EventLoop* loop = core->loop()) loop->destroy_later(std::move(core));
}

}  // namespace

RdmaListener::RdmaListener(const ConnectionType& type, LoopState& state, const Endpoint& endpoint,
                           const Settings& settings, ListenTo to)
    : core_(std::make_unique<ListenerCore>(type, state, settings, std::move(to))) {
  core_->listen(endpoint);
}
RdmaListener::~RdmaListener() { let_go(std::move(core_)); }

bool RdmaListener::leave(const Handoff* to) noexcept {
  core_->leave(static_cast<const RdmaHandoff*>(to)->channel());
  return true;
}
void RdmaListener::arrive(ae::EventLoop& loop) { core_->arrive(LoopState::of(loop, type())); }
std::vector<int> RdmaListener::near_processors() const {
  const std::set<std::string> devices = core_->devices();
  if (devices.size() != 1) return {-1};
  return processors_near(*devices.begin());
}

RdmaLoopAcceptor::RdmaLoopAcceptor(const ConnectionType& type, LoopState& state,
                                   const Settings& settings, AcceptHandler accepted)
    : core_(std::make_unique<ListenerCore>(type, state, settings,
                                           ListenTo{.accepted = std::move(accepted)})),
      handoff_(std::make_shared<const RdmaHandoff>(state.cm())) {}
RdmaLoopAcceptor::~RdmaLoopAcceptor() { let_go(std::move(core_)); }

void RdmaLoopAcceptor::arrive(PendingConnectionPtr arrival) {
  try {
    core_->take(std::unique_ptr<RdmaPending>(static_cast<RdmaPending*>(arrival.release())));
  } catch (const std::bad_alloc&) {
    if (core_->loop() == nullptr) return;
    count_rejected();
    ++type().counters(*core_->loop()).accept_errors;
  }
}

void RdmaLoopAcceptor::count_rejected() noexcept { core_->count_rejected(); }

}}}  // namespace conn::rdma
