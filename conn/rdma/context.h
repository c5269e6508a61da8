#pragma once
// What one loop shares on one device: a handle of its own, one completion channel whose descriptor
// is in the loop, completion queues as deep as everything that can be posted to them, and the
// shared domain. It knows queue pairs only through QueuePairUser.

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "conn/rdma/cm.h"
#include "conn/rdma/domain.h"
#include "conn/rdma/settings.h"
#include "conn/rdma/verbs.h"
#include "conn/resolver.h"

namespace conn::rdma {

class Context;

/// Whoever owns a queue pair: facts about it arrive here. None of them may run a user's handler.
class QueuePairUser {
 public:
  /// The send numbered `sequence` and all before it are done.
  virtual void on_sends_done(std::uint32_t sequence) = 0;
  /// A WRITE_WITH_IMM arrived.
  virtual void on_immediate(std::uint32_t length) = 0;
  /// A SEND arrived; `bytes` is a private copy.
  virtual void on_message(std::span<const std::byte> bytes) = 0;
  /// A work request failed; the queue pair is dead.
  virtual void on_work_failed(ibv_wc_status status, bool was_send) = 0;
  /// The device or the kernel says the connection cannot go on, in words.
  virtual void on_device_event(const std::string& what) = 0;
  /// The peer was heard before rdma_cm said so.
  virtual void on_communication_established() = 0;
  /// A port of the device went down.
  virtual void on_port_error(int port, const std::string& what) = 0;
  /// GID table of the device changed; these addresses the machine has now.
  virtual void on_address_change(const std::vector<SocketAddress>& present) = 0;
  /// Receives of the queue pair's own; null with a shared receive queue.
  virtual ReceiveQueue* own_receives() noexcept = 0;

 protected:
  ~QueuePairUser() = default;
};

/// Room in a completion queue for everything one queue pair can have posted.
class CqLease {
 public:
  CqLease() = default;
  CqLease(Context* context, std::size_t queue, std::uint32_t entries)
      : context_(context), queue_(queue), entries_(entries) {}
  CqLease(CqLease&& other) noexcept { *this = std::move(other); }
  CqLease& operator=(CqLease&& other) noexcept {
    std::swap(context_, other.context_);
    std::swap(queue_, other.queue_);
    std::swap(entries_, other.entries_);
    return *this;
  }
  ~CqLease();
  ibv_cq* cq() const noexcept;

 private:
  Context* context_ = nullptr;
  std::size_t queue_ = 0;
  std::uint32_t entries_ = 0;
};

class Context {
 public:
  /// Opens the device. Throws VerbsError.
  Context(ibv_device* device, const Settings& settings);
  ~Context();
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

  const std::string& name() const noexcept { return name_; }
  ibv_context* verbs() const noexcept { return device_.get(); }
  int completion_fd() const noexcept { return channel_->fd; }
  int event_fd() const noexcept { return device_->async_fd; }
  /// The device was removed or died: no new connections here.
  bool lost() const noexcept { return lost_; }
  void set_lost() noexcept { lost_ = true; }
  /// The port has no link. rdma_cm must send nothing through it: its goodbye waits in the kernel,
  /// rdma_destroy_id() with it, and on rxe for ever.
  bool port_down(int port) const noexcept { return ((down_ports_ >> (port & 63)) & 1) != 0; }
  /// Asks the device, whose event about it may come later than what it broke.
  void look_at_port(int port) noexcept;
  /// Keeps an id until its port is up again or the device is lost.
  void park(CmId id) noexcept {
    if (parked_.size() < parked_.capacity()) parked_.push_back(std::move(id));
  }
  bool has_parked() const noexcept { return !parked_.empty(); }
  bool may_release_parked() const noexcept {
    return !parked_.empty() && (lost_ || down_ports_ == 0);
  }
  void release_one_parked() noexcept { parked_.pop_back(); }

  /// The domain a new connection belongs to. Throws VerbsError.
  std::shared_ptr<Domain> domain(const Settings& settings);
  /// Binding keys failed on this device after all: new connections get domains of their own.
  void give_up_binding() noexcept { can_bind_keys_ = false; }
  bool can_bind_keys() const noexcept { return can_bind_keys_; }
  /// Throws VerbsError if no completion queue of that depth can be had.
  CqLease lease(std::uint32_t entries);
  std::uint32_t max_send_queue() const noexcept;

  /// Makes room to park its id, too.
  void attach(std::uint32_t qp_number, QueuePairUser* user);
  void detach(std::uint32_t qp_number) noexcept { users_.erase(qp_number); }
  std::size_t queue_pairs() const noexcept { return users_.size(); }

  /// Takes up to `budget` completions and tells their owners. Returns how many it took.
  /// `more` is set if a queue had as much as its share.
  std::size_t poll(std::size_t budget, bool* more = nullptr);
  /// Polls until nothing is left (bounded by what can be posted).
  void drain();
  /// Gives back the shared receives that wait for a batch. Call it now and then.
  void replenish() noexcept;
  /// True if a completion queue is not armed, so that only polling would see its completions.
  bool needs_poll() const noexcept;
  /// Takes events from the completion channel; those queues have to be polled and armed again.
  void on_completion_event();
  /// Asks for events on every queue, then looks once more. False: completions came in between.
  bool arm();
  /// Reads asynchronous events of the device.
  void on_async_event();

  struct Counters {
    std::uint64_t completions = 0, completion_events = 0, arms = 0, async_events = 0;
    std::uint64_t receive_shortages = 0;
  };
  const Counters& counters() const noexcept { return counters_; }
  /// Needs no memory. `visit` must not attach anybody, nor come here again.
  void for_each_user(const std::function<void(QueuePairUser&)>& visit);

 private:
  friend class CqLease;
  struct Queue {
    std::unique_ptr<Cq> cq;
    std::uint32_t leased = 0;
  };
  void dispatch(const ibv_wc& completion);
  void on_receive(const ibv_wc& completion, QueuePairUser* user);
  std::uint32_t room(const Queue& queue) const noexcept;
  std::uint32_t shared_depth() const noexcept;
  std::size_t poll_queue(Queue& queue, std::size_t budget);
  void arm_srq_limit() noexcept;

  Settings settings_;
  std::string name_;
  DeviceHandle device_;  // destroyed last
  ibv_device_attr attributes_{};
  bool can_bind_keys_ = false;
  bool lost_ = false;
  std::uint64_t down_ports_ = 0;  // a bit for each port
  std::vector<CmId> parked_;
  std::vector<QueuePairUser*> visited_;  // has room for all users
  std::shared_ptr<Domain> shared_;
  std::shared_ptr<Domain> second_;  // for connections that wish the other kind; without an SRQ
  CompChannel channel_;
  std::vector<Queue> queues_;
  std::unordered_map<std::uint32_t, QueuePairUser*> users_;
  Counters counters_;
};

}  // namespace conn::rdma
