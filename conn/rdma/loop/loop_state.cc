// SPDX-License-Identifier: BSD-3-Clause
#include "conn/rdma/loop/loop_state.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cerrno>

#include "conn/core/connection_set.h"
#include "conn/rdma/config/limits.h"
#include "conn/rdma/device/here.h"
#include "conn/rdma/device/orphans.h"

namespace conn { inline namespace AECONN_ABI { namespace rdma {
namespace {

// Completions taken in one iteration, so that a flood leaves time for timers and sockets.
constexpr std::size_t kPollBudget = 256;
// After this many polls in vain for an immediate answer, only one in this many iterations polls.
constexpr std::uint32_t kLooks = 16;
// Connections that retry for memory in one iteration: each that finds none has searched everything
// that could be given back.
constexpr std::size_t kWokenInTurn = 16;
// rdma_cm events taken in one iteration.
constexpr int kCmBudget = 64;
// Time of an iteration for system calls that begin and end connections.
constexpr ae::Duration kShare = std::chrono::milliseconds(1);

}  // namespace

LoopState* LoopState::find(ae::EventLoop& loop, const ConnectionType& type) {
  return static_cast<LoopState*>(loop.local(&type).get());
}

LoopState& LoopState::of(ae::EventLoop& loop, const ConnectionType& type) {
  ConnectionSet::of(loop);  // created first, so that it is destroyed after this
  std::unique_ptr<ae::LoopLocal>& slot = loop.local(&type);
  if (!slot) slot = std::make_unique<LoopState>(loop, type);
  auto& state = static_cast<LoopState&>(*slot);
  if (state.inherited())
    throw VerbsError(Failure{std::make_error_code(std::errc::operation_not_supported),
                             "in a child of fork() rdma needs a loop that was made there"});
  return state;
}

LoopState::LoopState(ae::EventLoop& loop, const ConnectionType& type) : loop_(loop), type_(type) {
  if (any_orphans()) start_maintenance();
  loop_.add_source(*this);
  try {
    loop_.add_file_event(cm_->fd(), ae::kReadable,
                         [this](int, ae::Mask) { on_cm_readable(Most::kShare); });
  } catch (...) {
    loop_.remove_source(*this);
    throw;
  }
}

LoopState::~LoopState() {
  ConnectionSet::of(loop_).loop_ends();
  for (LoopListener* listener : std::exchange(listeners_, {})) listener->loop_gone();
  if (!inherited()) reap(Most::kAll);
  ConnectionSet::of(loop_).abandon(type_);
  leave_loop();
  if (inherited()) return;
  Orphans left{cm_, {}, {}, {}};
  for (const auto& context : contexts_) context->give_up_parked(left);
  adopt(std::move(left));
}

void LoopState::leave_loop() noexcept {
  for (ae::TimerId* timer : {&wheel_timer_, &maintenance_timer_, &port_timer_, &prepare_timer_})
    if (*timer != 0) loop_.remove_time_event(std::exchange(*timer, 0));
  loop_.remove_source(*this);
  loop_.remove_file_event(cm_->fd(), ae::kReadable);
  for (const auto& context : contexts_) unwatch(*context);
}

void LoopState::after_fork() noexcept { leave_loop(); }

// --- devices -------------------------------------------------------------------------------------

std::shared_ptr<Context> LoopState::context(const CmId& id, const Settings& settings) {
  require_device(id);
  watch_removal(id);
  const char* name = ibv_get_device_name(id->verbs->device);
  if (!settings.device.empty() && settings.device != name)
    throw VerbsError(
        fmt::format("the address belongs to {}, not to device={}", name, settings.device),
        EADDRNOTAVAIL);
  for (const auto& context : contexts_)
    if (!context->lost() && context->name() == name) return context;
  std::shared_ptr<Context> made;
  try {
    made = std::make_shared<Context>(id->verbs->device, settings, pages_,
                                     ConnectionSet::of(loop_).index_in_group);
  } catch (const VerbsError& error) {
    Failure failure = error.failure();
    failure.text += limit_words(failure.code.value(), name, nullptr, settings);
    throw VerbsError(std::move(failure));
  }
  contexts_.reserve(contexts_.size() + 1);
  counted_before_.try_emplace(made->name());
  watch(*made);
  contexts_.push_back(made);
  return made;
}

// rdma_cm reports a removal only through ids on the device, and librdmacm keeps the device open
// even after the last connection; with some drivers (rxe) the removal would then wait forever.
void LoopState::watch_removal(const CmId& id) {
  if (id->verbs == nullptr) return;
  std::erase_if(removal_watches_, [](const auto& each) { return each->over(); });
  if (is_watched(ibv_get_device_name(id->verbs->device))) return;
  removed_ = nullptr;  // that pointer may be another device's by now
  try {
    removal_watches_.push_back(std::make_unique<RemovalWatch>(*cm_, id));
  } catch (const std::exception&) {  // connections are notified themselves
  }
}

bool LoopState::is_watched(std::string_view device) const noexcept {
  return std::any_of(removal_watches_.begin(), removal_watches_.end(),
                     [&](const auto& each) { return each->is_on(device); });
}

// To release one device librdmacm opens all others, whose removal would then wait in the same way.
// A device without an address in this network namespace cannot be watched.
void LoopState::watch_what_librdmacm_opened() noexcept {
  const auto watch_owner_of = [this](const SocketAddress& address) {
    try {
      auto watch = std::make_unique<RemovalWatch>(*cm_, address);
      if (!is_watched(watch->device())) removal_watches_.push_back(std::move(watch));
    } catch (const VerbsError&) {  // no device has that address
    }
  };
  try {
    std::erase_if(removal_watches_, [](const auto& each) { return each->over(); });
    for (const SocketAddress& address : local_addresses()) watch_owner_of(address);
  } catch (const std::exception&) {  // no memory: connections are notified themselves
  }
}

void LoopState::watch(Context& context) {
  try {
    loop_.add_file_event(context.completions().fd(), ae::kReadable,
                         [&context](int, ae::Mask) { context.completions().on_event(); });
    loop_.add_file_event(context.device().event_fd(), ae::kReadable,
                         [this, &context](int, ae::Mask) {
                           context.on_async_event();
                           try {
                             watch_ports();
                           } catch (const std::exception&) {  // run_maintenance() tries again
                           }
                         });
  } catch (...) {
    unwatch(context);
    throw;
  }
}

void LoopState::unwatch(Context& context) {
  if (const auto before = counted_before_.find(context.name()); before != counted_before_.end())
    before->second += context.counters();
  loop_.remove_file_event(context.completions().fd(), ae::kReadable);
  loop_.remove_file_event(context.device().event_fd(), ae::kReadable);
}

void LoopState::drop_idle_contexts() {
  std::erase_if(contexts_, [this](const std::shared_ptr<Context>& context) {
    if (context.use_count() != 1 || context->has_parked()) return false;
    unwatch(*context);
    return true;
  });
}

void LoopState::give_back_what_is_idle() {
  drop_idle_contexts();
  pages_.give_back_all();
}

// --- connections ---------------------------------------------------------------------------------

void LoopState::make_room(std::size_t connections) {
  for (auto* list : {&dirty_, &flushing_, &reap_, &waiting_for_memory_, &paced_})
    if (list->capacity() < connections) list->reserve(std::max(connections, 2 * list->capacity()));
}

void LoopState::add(LoopUser& connection) {
  start_maintenance();
  if (!std::exchange(connection.in_.attached, true)) ++attached_connections_;
  look_at(connection, connection.next_tick());
}

void LoopState::remove(LoopUser& connection) noexcept {
  wheel_.remove(connection);
  if (std::exchange(connection.in_.memory, false)) std::erase(waiting_for_memory_, &connection);
  if (std::exchange(connection.in_.pace, false)) std::erase(paced_, &connection);
  if (!connection.in_.flush) return;
  connection.in_.flush = false;
  std::erase(dirty_, &connection);
  std::replace(flushing_.begin(), flushing_.end(), &connection, static_cast<LoopUser*>(nullptr));
}

void LoopState::keep_pace_of(LoopUser& connection) {
  if (!std::exchange(connection.in_.pace, true)) paced_.push_back(&connection);
}

void LoopState::wait_for_memory(LoopUser& connection) {
  if (!std::exchange(connection.in_.memory, true)) waiting_for_memory_.push_back(&connection);
}

// Each retries once, a few in one iteration; those without success go to the end of the list.
void LoopState::wake_memory_waiters() {
  if (std::exchange(memory_came_back_, false)) to_wake_ = waiting_for_memory_.size();
  const std::size_t count = std::min({to_wake_, waiting_for_memory_.size(), kWokenInTurn});
  to_wake_ = std::min(to_wake_, waiting_for_memory_.size()) - count;
  // Removed from the list first, because its capacity allows each connection once.
  std::array<LoopUser*, kWokenInTurn> fed{};
  std::copy_n(waiting_for_memory_.begin(), count, fed.begin());
  waiting_for_memory_.erase(waiting_for_memory_.begin(),
                            waiting_for_memory_.begin() + static_cast<std::ptrdiff_t>(count));
  for (std::size_t i = 0; i < count; ++i) fed[i]->in_.memory = false;
  for (std::size_t i = 0; i < count; ++i) fed[i]->on_memory();
}

void LoopState::want_flush(LoopUser& connection) noexcept {
  if (connection.in_.flush) return;
  connection.in_.flush = true;
  dirty_.push_back(&connection);
  loop_.nudge();
}

void LoopState::want_reap(LoopUser& connection) noexcept {
  if (connection.in_.reap) return;
  connection.in_.reap = true;
  reap_.push_back(&connection);
  loop_.nudge();
}

void LoopState::forget(LoopUser& connection) noexcept {
  remove(connection);
  if (std::exchange(connection.in_.attached, false)) --attached_connections_;
  if (std::exchange(connection.in_.reap, false)) std::erase(reap_, &connection);
}

// At least one, so that every iteration makes progress.
void LoopState::reap(Most most) {
  for (bool first = true; !reap_.empty(); first = false) {
    if (!first && most == Most::kShare && !has_share_left()) break;
    const Spending spending(*this);
    LoopUser* connection = reap_.front();
    reap_.erase(reap_.begin());
    connection->in_.reap = false;
    connection->reap();
  }
  release_parked(most);
  drop_lost_contexts();
}

bool LoopState::has_parked_to_release() const noexcept {
  return std::any_of(contexts_.begin(), contexts_.end(),
                     [](const auto& context) { return context->may_release_parked(); });
}

void LoopState::release_parked(Most most) {
  for (const auto& context : contexts_)
    for (bool first = true; context->may_release_parked(); first = false) {
      if (!first && most == Most::kShare && !has_share_left()) break;
      const Spending spending(*this);
      context->release_one_parked();
    }
}

bool LoopState::may_go(const std::shared_ptr<Context>& context) {
  return context->lost() && !context->has_parked() && context.use_count() == 1;
}

bool LoopState::has_lost_context() const noexcept {
  return std::any_of(contexts_.begin(), contexts_.end(), may_go);
}

bool LoopState::has_share_left() const noexcept {
  const ae::Duration now =
      spending_ ? std::chrono::steady_clock::now() - spending_since_ : ae::Duration::zero();
  return spent_ + now < kShare;
}

// Freeing what many connections left behind may take several iterations.
void LoopState::drop_lost_contexts() {
  std::erase_if(contexts_, [this](const std::shared_ptr<Context>& context) {
    if (!may_go(context)) return false;
    for (bool more = true; more;) {
      const Spending spending(*this);
      more = context->give_back_one();
      if (more && !has_share_left()) return false;
    }
    unwatch(*context);
    return true;
  });
}

// The removal waits until everything on the device is closed, including unused objects.
void LoopState::on_device_removed(ibv_context* cm_handle) {
  if (cm_handle == nullptr || cm_handle == removed_) return;
  removed_ = cm_handle;
  for (const auto& context : contexts_)
    if (context->name() == ibv_get_device_name(cm_handle->device)) context->set_lost();
  let_go_of_device(cm_handle);
  watch_what_librdmacm_opened();
}

// --- work in each iteration ----------------------------------------------------------------------

void LoopState::on_cm_readable(Most most) {
  if (inherited()) return;
  for (int left = kCmBudget; left != 0; --left) {
    if (left != kCmBudget && most == Most::kShare && !has_share_left()) return;
    const Spending spending(*this);
    const std::optional<CmEvent> event = cm_->next();
    if (!event) return;
    ++statistics_.cm_events;
    const bool removal = event->type == RDMA_CM_EVENT_DEVICE_REMOVAL && event->id != nullptr;
    if (removal) on_device_removed(event->id->verbs);
    rdma_cm_id* owner = event->type == RDMA_CM_EVENT_CONNECT_REQUEST ? event->listen_id : event->id;
    if (owner == nullptr) continue;
    if (owner->context != nullptr) {
      static_cast<CmUser*>(owner->context)->on_cm_event(*event);
    } else {
      // A request queued at a paused listener, whose sender or device is gone; or an id that was
      // given up while it connected.
      for (LoopListener* listener : listeners_) listener->drop_request(owner);
      for (const auto& context : contexts_) context->on_event_of_nobody(*event);
    }
    if (removal) drop_lost_contexts();
  }
}

void LoopState::drain_cm() {
  for (std::uint64_t before = ~statistics_.cm_events; before != statistics_.cm_events;) {
    before = statistics_.cm_events;
    on_cm_readable(Most::kAll);
  }
}

void LoopState::take_completions() {
  poll_more_ = false;
  // NOLINTNEXTLINE(modernize-loop-convert): the list may change meanwhile
  for (std::size_t i = 0; i < contexts_.size(); ++i)
    if (contexts_[i]->completions().needs_poll())
      (void)contexts_[i]->completions().poll(kPollBudget, &poll_more_);
}

std::size_t LoopState::process_pending() {
  ++turn_;
  spent_ = {};
  if (std::exchange(ask_listeners_, false))
    for (LoopListener* listener : listeners_) listener->retry_if_down();
  take_completions();
  turn_wheel();
  reap(Most::kShare);
  if (has_memory_waiters_to_wake()) wake_memory_waiters();
  return ready_.process_pending();
}

void LoopState::flush() {
  flushing_.swap(dirty_);
  // NOLINTNEXTLINE(modernize-loop-convert): the list may change meanwhile
  for (std::size_t i = 0; i < flushing_.size(); ++i) {
    LoopUser* connection = std::exchange(flushing_[i], nullptr);
    if (connection == nullptr) continue;
    connection->in_.flush = false;
    connection->post_due();
    posted_ = true;
  }
  flushing_.clear();
}

bool LoopState::arm() {
  // A fast peer may already have answered what was just posted; then arming and sleeping are
  // useless. If such answers are rare, the poll is made rarely.
  if (std::exchange(posted_, false) && (looks_missed_ < kLooks || turn_ % kLooks == 0)) {
    take_completions();
    const bool found = poll_more_ || has_pending() || !dirty_.empty();
    looks_missed_ = found ? 0 : looks_missed_ + 1;
    if (found) return false;
  }
  bool quiet = true;
  // NOLINTNEXTLINE(modernize-loop-convert): the list may change meanwhile
  for (std::size_t i = 0; i < contexts_.size(); ++i)
    quiet = contexts_[i]->completions().arm() && quiet;
  return quiet && !has_pending() && dirty_.empty();
}

const ae::Spin* LoopState::spin() const {
  return wheel_.size() == 0 || spin_.mode == ae::Spin::Mode::kNo ? nullptr : &spin_;
}

bool LoopState::has_pending_now() {
  std::size_t taken = 0;
  // NOLINTNEXTLINE(modernize-loop-convert): the list may change meanwhile
  for (std::size_t i = 0; i < contexts_.size(); ++i)
    taken += contexts_[i]->completions().poll(kPollBudget);
  return taken != 0 || has_pending();
}

void LoopState::catch_up(Most most) {
  on_cm_readable(most);
  // NOLINTNEXTLINE(modernize-loop-convert): the list may change meanwhile
  for (std::size_t i = 0; i < contexts_.size(); ++i) contexts_[i]->completions().drain();
}

}}}  // namespace conn::rdma
