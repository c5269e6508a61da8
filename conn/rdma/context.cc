#include "conn/rdma/context.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

namespace conn::rdma {
namespace {

constexpr int kPollBatch = 32;
// Shared receives are given back so many at a time; the queue is far longer.
constexpr std::size_t kReceiveBatch = 64;
// Completion queue entries to begin with; it grows with the connections.
constexpr std::uint32_t kFirstEntries = 2048;

void set_nonblocking(int fd, const char* what) {
  const int flags = fcntl(fd, F_GETFL);
  if (flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) != 0) throw VerbsError(what, errno);
}

}  // namespace

CqLease::~CqLease() {
  if (context_ != nullptr) context_->queues_[queue_].leased -= entries_;
}
ibv_cq* CqLease::cq() const noexcept { return context_->queues_[queue_].cq->get(); }

Context::Context(ibv_device* device, const Settings& settings)
    : settings_(settings), name_(ibv_get_device_name(device)), device_(open_device(device)) {
  if (const int err = ibv_query_device(device_.get(), &attributes_); err != 0)
    throw VerbsError("ibv_query_device " + name_, err);
  can_bind_keys_ = (attributes_.device_cap_flags & IBV_DEVICE_MEM_WINDOW_TYPE_2B) != 0;
  channel_ = create_comp_channel(device_.get());
  set_nonblocking(channel_->fd, "fcntl on the completion channel");
  set_nonblocking(device_->async_fd, "fcntl on the device's event descriptor");
}

Context::~Context() = default;

std::uint32_t Context::max_send_queue() const noexcept {
  return static_cast<std::uint32_t>(std::max(attributes_.max_qp_wr, 1));
}

// --- domains and completion queues
// -------------------------------------------------------------------

std::shared_ptr<Domain> Context::domain(const Settings& settings) {
  const bool bind = can_bind_keys_ && (settings.isolation == Isolation::kAuto ||
                                       settings.isolation == Isolation::kWindow);
  if (settings.isolation == Isolation::kWindow && !bind)
    throw VerbsError("isolation=window: " + name_ + " has no type 2 memory windows", EOPNOTSUPP);
  Domain::Config config;
  if (!bind && settings.isolation != Isolation::kNone) {
    config.slab = StagingPool::kSizes[2];  // one connection's worth
    return std::make_shared<Domain>(device_.get(), config);
  }
  if (shared_ && shared_->bind_keys() == bind) return shared_;
  // Mixed wishes are rare: the first keeps the shared receive queue, the other gets its own
  // receives.
  if (attributes_.max_srq > 0 && attributes_.max_srq_wr > 0 && !shared_)
    // Each of them may complete on one completion queue, where the sends need room besides.
    config.shared_receives =
        std::min({settings.shared_receive_queue, static_cast<std::uint32_t>(attributes_.max_srq_wr),
                  static_cast<std::uint32_t>(attributes_.max_cqe) / 2});
  config.bind_keys = bind;
  if (shared_) {
    if (!second_) second_ = std::make_shared<Domain>(device_.get(), config);
    return second_;
  }
  shared_ = std::make_shared<Domain>(device_.get(), config);
  arm_srq_limit();
  return shared_;
}

std::uint32_t Context::shared_depth() const noexcept {
  return shared_ && shared_->srq() != nullptr ? shared_->shared_receives()->depth() : 0;
}

// Every receive of the shared queue may complete on any one completion queue.
std::uint32_t Context::room(const Queue& queue) const noexcept {
  const std::uint32_t taken = queue.leased + shared_depth();
  const auto entries = static_cast<std::uint32_t>(queue.cq->entries());
  return entries > taken ? entries - taken : 0;
}

CqLease Context::lease(std::uint32_t entries) {
  const auto limit = static_cast<std::uint32_t>(std::max(attributes_.max_cqe, 1));
  for (std::size_t i = 0; i < queues_.size(); ++i) {
    Queue& queue = queues_[i];
    const std::uint32_t needed = queue.leased + shared_depth() + entries;
    if (room(queue) < entries && needed <= limit) {
      std::uint32_t grown = std::max(static_cast<std::uint32_t>(queue.cq->entries()) * 2, needed);
      grown = std::min(grown, limit);
      (void)queue.cq->resize(static_cast<int>(grown));
    }
    if (room(queue) >= entries) {
      queue.leased += entries;
      return {this, i, entries};
    }
  }
  const std::uint32_t needed = entries + shared_depth();
  if (needed > limit)
    throw VerbsError(
        fmt::format("a completion queue of {} entries on {} (it allows {})", needed, name_, limit),
        EINVAL);
  const std::uint32_t wanted = std::min(std::max(needed, kFirstEntries + shared_depth()), limit);
  Queue queue;
  queue.cq = std::make_unique<Cq>(device_.get(), static_cast<int>(wanted), channel_.get());
  queue.leased = entries;
  queues_.push_back(std::move(queue));
  return {this, queues_.size() - 1, entries};
}

void Context::attach(std::uint32_t qp_number, QueuePairUser* user) {
  const std::size_t ids = parked_.size() + users_.size() + 1;
  if (parked_.capacity() < ids) parked_.reserve(std::max(ids, 2 * parked_.capacity()));
  if (visited_.capacity() < ids) visited_.reserve(parked_.capacity());
  users_[qp_number] = user;
}

void Context::arm_srq_limit() noexcept {
  ibv_srq_attr limit{};
  limit.srq_limit = shared_depth() / 4;
  // Advice: a device without the event still works, receives are replenished as they complete.
  if (limit.srq_limit != 0) (void)ibv_modify_srq(shared_->srq(), &limit, IBV_SRQ_LIMIT);
}

// --- completions
// -------------------------------------------------------------------------------------

std::size_t Context::poll(std::size_t budget, bool* more) {
  // Each queue has its share, so that a busy one does not starve the others.
  const std::size_t share =
      std::max<std::size_t>(budget / std::max<std::size_t>(queues_.size(), 1), kPollBatch);
  std::size_t total = 0;
  for (Queue& queue : queues_) {
    const std::size_t taken = poll_queue(queue, share);
    if (more != nullptr && taken >= share) *more = true;
    total += taken;
  }
  return total;
}

std::size_t Context::poll_queue(Queue& queue, std::size_t budget) {
  std::array<ibv_wc, kPollBatch> completions;
  std::size_t total = 0;
  while (total < budget) {
    const int count = ibv_poll_cq(queue.cq->get(), kPollBatch, completions.data());
    if (count <= 0) break;
    for (int i = 0; i < count; ++i) {
      const ibv_wc& completion = completions[static_cast<std::size_t>(i)];
      try {
        dispatch(completion);
      } catch (const std::exception&) {  // no memory: that connection ends, the others lose nothing
        if (const auto found = users_.find(completion.qp_num); found != users_.end())
          found->second->on_device_event("out of memory");
      }
    }
    total += static_cast<std::size_t>(count);
    // Before anybody looks at what came: the peers' next messages need receives.
    if (shared_ && shared_->srq() != nullptr) {
      ReceiveQueue& receives = *shared_->shared_receives();
      const std::size_t batch = std::min<std::size_t>(kReceiveBatch, receives.depth() / 8);
      if (receives.missing() != 0 && receives.missing() >= batch) (void)receives.replenish();
    }
    if (count < kPollBatch) break;
  }
  counters_.completions += total;
  return total;
}

void Context::replenish() noexcept {
  if (shared_ && shared_->srq() != nullptr && shared_->shared_receives()->missing() != 0)
    (void)shared_->shared_receives()->replenish();
}

void Context::drain() {
  for (int rounds = 64; rounds != 0 && poll(1024) != 0; --rounds) {
  }
}

void Context::dispatch(const ibv_wc& completion) {
  // A queue pair that is gone may leave completions behind; only their receives matter.
  const auto found = users_.find(completion.qp_num);
  QueuePairUser* user = found == users_.end() ? nullptr : found->second;
  if ((completion.wr_id & kReceiveId) != 0) return on_receive(completion, user);
  if (user == nullptr) return;
  if (completion.status == IBV_WC_SUCCESS)
    user->on_sends_done(static_cast<std::uint32_t>(completion.wr_id));
  else
    user->on_work_failed(completion.status, true);
}

void Context::on_receive(const ibv_wc& completion, QueuePairUser* user) {
  const auto slot = static_cast<std::uint32_t>(completion.wr_id);
  const bool own = (completion.wr_id & kOwnReceiveId) != 0;
  ReceiveQueue* receives = nullptr;
  if (own) receives = user != nullptr ? user->own_receives() : nullptr;
  if (!own && shared_) receives = shared_->shared_receives();
  if (receives == nullptr || !receives->owns(slot)) return;
  if (completion.status != IBV_WC_SUCCESS) {
    receives->consumed(slot);
    if (user != nullptr) user->on_work_failed(completion.status, false);
    return;
  }
  const bool immediate = completion.opcode == IBV_WC_RECV_RDMA_WITH_IMM;
  ControlBytes copy{};
  std::size_t length = 0;
  if (!immediate) {
    const std::span<const std::byte> bytes = receives->buffer(slot, completion.byte_len);
    length = completion.byte_len <= kControlSize ? bytes.size() : 0;
    std::memcpy(copy.data(), bytes.data(), bytes.size());
  }
  receives->consumed(slot);
  if (user == nullptr) return;
  if (own && receives->missing() * 8 >= receives->depth()) (void)receives->replenish();
  if (immediate)
    user->on_immediate(ntohl(completion.imm_data));
  else
    user->on_message({copy.data(), length});
}

bool Context::needs_poll() const noexcept {
  return std::any_of(queues_.begin(), queues_.end(),
                     [](const Queue& queue) { return !queue.cq->armed(); });
}

void Context::on_completion_event() {
  // One event at most for each armed queue, so no further read is needed to learn that none is
  // left.
  for (std::size_t left = queues_.size(); left != 0; --left) {
    ibv_cq* cq = nullptr;
    void* unused = nullptr;
    if (ibv_get_cq_event(channel_.get(), &cq, &unused) != 0) return;
    ++counters_.completion_events;
    for (Queue& queue : queues_)
      if (queue.cq->get() == cq) queue.cq->on_event();
  }
}

bool Context::arm() {
  bool changed = false;
  for (Queue& queue : queues_) {
    if (queue.cq->armed()) continue;
    ++counters_.arms;
    if (!queue.cq->arm()) return true;  // the device is gone; its events tell the rest
    changed = true;
  }
  if (!changed) return true;
  // What completed between the last poll and the arming raised no event.
  constexpr std::size_t kBudget = 256;
  bool more = false;
  const std::size_t taken = poll(kBudget, &more);
  if (more)  // and more of the kind may lie there: look again before relying on events
    for (Queue& queue : queues_) queue.cq->forget_armed();
  return taken == 0;
}

// --- asynchronous events
// -----------------------------------------------------------------------------

void Context::for_each_user(const std::function<void(QueuePairUser&)>& visit) {
  visited_.clear();
  for (const auto& [number, user] : users_) visited_.push_back(user);
  for (QueuePairUser* user : visited_) visit(*user);
}

void Context::look_at_port(int port) noexcept {
  if (port_down(port)) return;
  ibv_port_attr attributes{};
  if (ibv_query_port(device_.get(), static_cast<std::uint8_t>(port), &attributes) == 0 &&
      attributes.state != IBV_PORT_ACTIVE)
    down_ports_ |= std::uint64_t{1} << (port & 63);
}

void Context::on_async_event() {
  ibv_async_event event{};
  // Bounded, so that a device that reports the same for ever cannot hold the loop.
  for (int left = 64; left != 0 && ibv_get_async_event(device_.get(), &event) == 0; --left) {
    ++counters_.async_events;
    const ibv_event_type type = event.event_type;
    QueuePairUser* user = nullptr;
    switch (type) {
      case IBV_EVENT_QP_FATAL:
      case IBV_EVENT_QP_REQ_ERR:
      case IBV_EVENT_QP_ACCESS_ERR:
      case IBV_EVENT_COMM_EST:
      case IBV_EVENT_PATH_MIG_ERR:
        if (const auto found = users_.find(event.element.qp->qp_num); found != users_.end())
          user = found->second;
        break;
      default:
        break;
    }
    const int port = event.element.port_num;  // of port events
    // Destroying an object waits for its unacknowledged events, so this comes first.
    ibv_ack_async_event(&event);
    std::string text;
    try {
      text = fmt::format("{}: {}", name_, ibv_event_type_str(type));
    } catch (const std::bad_alloc&) {  // it counts without words, too
    }
    switch (type) {
      case IBV_EVENT_COMM_EST:
        if (user != nullptr) user->on_communication_established();
        break;
      case IBV_EVENT_QP_FATAL:
      case IBV_EVENT_QP_REQ_ERR:
      case IBV_EVENT_QP_ACCESS_ERR:
      case IBV_EVENT_PATH_MIG_ERR:
        if (user != nullptr) user->on_device_event(text);
        break;
      case IBV_EVENT_DEVICE_FATAL:
      case IBV_EVENT_CQ_ERR:
      case IBV_EVENT_SRQ_ERR:
        lost_ = true;
        for_each_user([&](QueuePairUser& each) { each.on_device_event(text); });
        break;
      case IBV_EVENT_PORT_ACTIVE:
        down_ports_ &= ~(std::uint64_t{1} << (port & 63));
        break;
      case IBV_EVENT_PORT_ERR:
        down_ports_ |= std::uint64_t{1} << (port & 63);
        for_each_user([&](QueuePairUser& each) { each.on_port_error(port, text); });
        break;
      case IBV_EVENT_GID_CHANGE: {
        const std::vector<SocketAddress> present = local_addresses();
        if (!present.empty())
          for_each_user([&](QueuePairUser& each) { each.on_address_change(present); });
        break;
      }
      case IBV_EVENT_SRQ_LIMIT_REACHED:
        ++counters_.receive_shortages;
        if (shared_ && shared_->srq() != nullptr) {
          drain();
          (void)shared_->shared_receives()->replenish();
          arm_srq_limit();
        }
        break;
      default:
        break;  // LID, SM, client re-register, path migrated: nothing of ours ends
    }
  }
}

}  // namespace conn::rdma
