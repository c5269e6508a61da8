#include "conn/rdma/loop_state.h"

#include <fmt/format.h>
#include <poll.h>

#include <algorithm>
#include <cerrno>

#include "conn/connection_set.h"
#include "conn/rdma/connection.h"
#include "conn/rdma/listener.h"

namespace conn::rdma {
namespace {

// Completions taken in one iteration, so that a flood of them leaves room for timers and sockets.
constexpr std::size_t kPollBudget = 256;
// rdma_cm events taken in one iteration.
constexpr int kCmBudget = 64;

bool nothing_there(int err) { return err == ENODEV || err == ENOENT || err == ENXIO; }

}  // namespace

Error unavailable(const VerbsError& error) {
  const int err = error.failure().code.value();
  if (nothing_there(err))
    return Error(
        "no RDMA device on this machine: load the driver of one, or for a trial without hardware "
        "run `modprobe rdma_rxe && rdma link add rxe0 type rxe netdev NETDEV` and "
        "`modprobe rdma_ucm` (" + error.failure().text + ")");
  if (err == EACCES || err == EPERM)
    return Error("this user may not use RDMA: give it access to /dev/infiniband (" +
                 error.failure().text + ")");
  return Error("RDMA cannot be used: " + error.failure().text);
}

LoopState* LoopState::find(ae::EventLoop& loop, const ConnectionType& type) {
  return static_cast<LoopState*>(loop.local(&type).get());
}

LoopState& LoopState::of(ae::EventLoop& loop, const ConnectionType& type) {
  ConnectionSet::of(loop);  // made first, so that it goes after us
  std::unique_ptr<ae::LoopLocal>& slot = loop.local(&type);
  if (!slot) slot = std::make_unique<LoopState>(loop, type);
  return static_cast<LoopState&>(*slot);
}

LoopState::LoopState(ae::EventLoop& loop, const ConnectionType& type) : loop_(loop), type_(type) {
  // Older kernels would let a forked child take registered pages away from us (ibv_fork_init(3));
  // newer ones copy them, and then this costs nothing.
  static const int fork_safe = ibv_fork_init();
  (void)fork_safe;
  loop_.add_file_event(cm_.fd(), ae::kReadable, [this](int, ae::Mask) { on_cm_readable(); });
  loop_.add_source(*this);
}

LoopState::~LoopState() {
  for (ListenerCore* listener : std::exchange(listeners_, {})) listener->loop_gone();
  reap();
  ConnectionSet::of(loop_).abandon(type_);
  if (tick_ != 0) loop_.remove_time_event(tick_);
  loop_.remove_source(*this);
  loop_.remove_file_event(cm_.fd(), ae::kReadable);
  for (const auto& context : contexts_) unwatch(*context);
}

// --- devices -----------------------------------------------------------------------------------------

std::shared_ptr<Context> LoopState::context(rdma_cm_id* id, const Settings& settings) {
  if (id->verbs == nullptr) throw VerbsError("the address is bound to no RDMA device", ENODEV);
  const char* name = ibv_get_device_name(id->verbs->device);
  if (!settings.device.empty() && settings.device != name)
    throw VerbsError(fmt::format("the address belongs to {}, not to device={}", name,
                                 settings.device),
                     EADDRNOTAVAIL);
  for (const auto& context : contexts_)
    if (!context->lost() && context->name() == name) return context;
  auto made = std::make_shared<Context>(id->verbs->device, settings);
  contexts_.push_back(made);
  watch(*made);
  return made;
}

void LoopState::watch(Context& context) {
  loop_.add_file_event(context.completion_fd(), ae::kReadable,
                       [&context](int, ae::Mask) { context.on_completion_event(); });
  loop_.add_file_event(context.event_fd(), ae::kReadable,
                       [&context](int, ae::Mask) { context.on_async_event(); });
}

void LoopState::unwatch(Context& context) {
  loop_.remove_file_event(context.completion_fd(), ae::kReadable);
  loop_.remove_file_event(context.event_fd(), ae::kReadable);
}

void LoopState::drop_idle_contexts() {
  std::erase_if(contexts_, [this](const std::shared_ptr<Context>& context) {
    if (context.use_count() != 1) return false;
    unwatch(*context);
    return true;
  });
}

// --- connections -------------------------------------------------------------------------------------

void LoopState::add(RdmaConnection& connection) {
  connections_.insert(&connection);
  schedule_tick();
}

void LoopState::remove(RdmaConnection& connection) noexcept {
  connections_.erase(&connection);
  if (!connection.flush_queued) return;
  connection.flush_queued = false;
  std::erase(dirty_, &connection);
  std::replace(flushing_.begin(), flushing_.end(), &connection,
               static_cast<RdmaConnection*>(nullptr));
}

void LoopState::want_flush(RdmaConnection& connection) {
  if (connection.flush_queued) return;
  connection.flush_queued = true;
  dirty_.push_back(&connection);
}

void LoopState::want_reap(RdmaConnection& connection) {
  if (connection.reap_queued) return;
  connection.reap_queued = true;
  reap_.push_back(&connection);
}

void LoopState::forget(RdmaConnection& connection) noexcept {
  remove(connection);
  if (std::exchange(connection.reap_queued, false)) std::erase(reap_, &connection);
}

void LoopState::reap() {
  while (!reap_.empty()) {
    RdmaConnection* connection = reap_.back();
    reap_.pop_back();
    connection->reap_queued = false;
    connection->reap();
  }
  const bool any_lost = std::any_of(contexts_.begin(), contexts_.end(), [](const auto& context) {
    return context->lost() && context.use_count() == 1;
  });
  if (any_lost)
    std::erase_if(contexts_, [this](const std::shared_ptr<Context>& context) {
      if (!context->lost() || context.use_count() != 1) return false;
      unwatch(*context);
      return true;
    });
}

// --- the loop's side -----------------------------------------------------------------------------------

void LoopState::on_cm_readable() {
  for (int left = kCmBudget; left != 0; --left) {
    const std::optional<CmEvent> event = cm_.next();
    if (!event) return;
    ++statistics_.cm_events;
    rdma_cm_id* owner = event->type == RDMA_CM_EVENT_CONNECT_REQUEST ? event->listen_id : event->id;
    if (owner != nullptr && owner->context != nullptr)
      static_cast<CmUser*>(owner->context)->on_cm_event(*event);
  }
}

void LoopState::take_completions() {
  poll_more_ = false;
  for (std::size_t i = 0; i < contexts_.size(); ++i)
    if (contexts_[i]->needs_poll() && contexts_[i]->poll(kPollBudget) >= kPollBudget)
      poll_more_ = true;
}

std::size_t LoopState::process_pending() {
  ++turn_;
  take_completions();
  reap();
  return ready_.process_pending();
}

void LoopState::flush() {
  flushing_.swap(dirty_);
  for (std::size_t i = 0; i < flushing_.size(); ++i) {
    RdmaConnection* connection = flushing_[i];
    if (connection == nullptr) continue;
    connection->flush_queued = false;
    connection->post_due();
  }
  flushing_.clear();
}

bool LoopState::arm() {
  bool quiet = true;
  for (std::size_t i = 0; i < contexts_.size(); ++i) quiet = contexts_[i]->arm() && quiet;
  return quiet && !has_pending() && dirty_.empty();
}

ae::Duration LoopState::spin_budget() const {
  return connections_.empty() ? ae::Duration::zero() : spin_;
}

bool LoopState::has_pending_now() {
  std::size_t taken = 0;
  for (std::size_t i = 0; i < contexts_.size(); ++i) taken += contexts_[i]->poll(kPollBudget);
  return taken != 0 || has_pending();
}

void LoopState::pump(const std::function<bool()>& done, ae::TimePoint deadline) {
  for (;;) {
    on_cm_readable();
    take_completions();
    reap();
    if (done()) return;
    flush();
    const ae::TimePoint now = std::chrono::steady_clock::now();
    if (now >= deadline) return;
    if (poll_more_ || !arm()) continue;
    std::vector<pollfd> fds{{cm_.fd(), POLLIN, 0}};
    for (const auto& context : contexts_) {
      fds.push_back({context->completion_fd(), POLLIN, 0});
      fds.push_back({context->event_fd(), POLLIN, 0});
    }
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - now).count();
    const int ms = static_cast<int>(std::clamp<long long>(left + 1, 1, 3600 * 1000));
    if (::poll(fds.data(), fds.size(), ms) <= 0) continue;
    for (std::size_t i = 0; i < contexts_.size() && 2 + 2 * i < fds.size(); ++i) {
      if (fds[1 + 2 * i].revents != 0) contexts_[i]->on_completion_event();
      if (fds[2 + 2 * i].revents != 0) contexts_[i]->on_async_event();
    }
  }
}

// --- the clock -----------------------------------------------------------------------------------------

void LoopState::schedule_tick() {
  if (tick_ != 0) return;
  tick_ = loop_.add_time_event(std::chrono::seconds(1), [this] { return on_tick(); });
  next_tick_ = std::chrono::steady_clock::now() + std::chrono::seconds(1);
}

// One timer for all connections: a third of the shortest keepalive interval, a second at most.
ae::Duration LoopState::on_tick() {
  if (connections_.empty()) {
    tick_ = 0;
    return ae::kNoMore;
  }
  const ae::TimePoint now = std::chrono::steady_clock::now();
  // Later than planned by as much as the plan was: our own loop stood still, and what the peers
  // sent meanwhile may not have been looked at.
  const bool late = now - next_tick_ > tick_interval_;
  ae::Duration interval = std::chrono::seconds(1);
  const std::vector<RdmaConnection*> all(connections_.begin(), connections_.end());
  for (RdmaConnection* connection : all) {
    if (connections_.count(connection) == 0) continue;
    connection->on_tick(now, late);
    if (connection->keepalive() > ae::Duration::zero())
      interval = std::min(interval, std::max<ae::Duration>(connection->keepalive() / 3,
                                                           std::chrono::milliseconds(5)));
  }
  tick_interval_ = interval;
  next_tick_ = now + interval;
  return interval;
}

}  // namespace conn::rdma
