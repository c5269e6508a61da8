// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// What one loop shares on one device: its own device handle, its completion queues with one
// completion channel whose descriptor is watched by the loop, and the shared protection domain. It
// knows the users of queue pairs only as QueuePairUser.

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "ae/abi.h"
#include "conn/kit/resolver.h"
#include "conn/rdma/config/settings.h"
#include "conn/rdma/device/cm.h"
#include "conn/rdma/device/device.h"
#include "conn/rdma/device/orphans.h"
#include "conn/rdma/memory/domain.h"
#include "conn/rdma/memory/prepared.h"
#include "conn/rdma/memory/queues.h"

namespace conn { inline namespace AECONN_ABI { namespace rdma {

/// Owner of a queue pair; receives its events. These functions must not run a user's handler.
class QueuePairUser {
 public:
  /// The send with number `sequence` and all before it are complete.
  virtual void on_sends_done(std::uint32_t sequence) = 0;
  /// A WRITE_WITH_IMM arrived.
  virtual void on_immediate(std::uint32_t length) = 0;
  /// A SEND arrived; `bytes` is a private copy.
  virtual void on_message(std::span<const std::byte> bytes) = 0;
  /// A work request failed; the queue pair is unusable. `sequence` is the number of a failed send.
  virtual void on_work_failed(ibv_wc_status status, bool was_send, std::uint32_t sequence) = 0;
  /// The device or the kernel reports that the connection cannot continue; `what` says why.
  virtual void on_device_event(const std::string& what) = 0;
  /// There was no memory to process one of its events.
  virtual void on_no_memory() noexcept = 0;
  /// Data from the peer arrived before rdma_cm reported the connection as established.
  virtual void on_communication_established() = 0;
  /// The peer did something that the device does not permit.
  virtual void on_refusal() = 0;
  /// The queue pair is in its error state and uses no more shared receives.
  virtual void on_last_receive() = 0;
  /// A port of the device has been down for the time `since`.
  virtual void on_port_down(int port, ae::Duration since) = 0;
  /// The device's GID table changed; `present` are the machine's addresses now.
  virtual void on_address_change(const std::vector<SocketAddress>& present) = 0;
  /// Its own receive queue, or the shared one of its domain.
  virtual ReceiveQueue* receives() noexcept = 0;

 protected:
  ~QueuePairUser() = default;
};

class Context {
 public:
  /// Opens the device. Borrows `pages`. `loop`: index in the listener group. Throws VerbsError.
  Context(ibv_device* device, const Settings& settings, PagePool& pages,
          std::optional<std::size_t> loop);
  ~Context();
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

  Device& device() noexcept { return device_; }
  const Device& device() const noexcept { return device_; }
  const std::string& name() const noexcept { return device_.name(); }
  int completion_fd() const noexcept { return queues_.fd(); }
  int event_fd() const noexcept { return device_.event_fd(); }
  /// The device was removed or failed: no new connections on it.
  bool lost() const noexcept { return lost_; }
  void set_lost() noexcept { lost_ = true; }

  // --- ids that cannot be destroyed yet: the kernel would block the loop ---
  /// Keeps the id until its port is up again or the device is lost.
  void park(CmId id) noexcept { keep(parked_, std::move(id)); }
  bool has_parked() const noexcept { return !parked_.empty() || !connecting_.empty(); }
  /// Frees one block of unused memory; a slow call. False: there is none.
  bool give_back_one() noexcept {
    return prepared_.drop_one() || (shared_ && shared_->give_back_one()) ||
           (second_ && second_->give_back_one());
  }
  bool may_release_parked() const noexcept;
  void release_one_parked() noexcept;
  /// Keeps the id until rdma_cm has reported the end of its connect: on iWARP rdma_destroy_id()
  /// blocks until then.
  void park_connecting(CmId id) noexcept { keep(connecting_, std::move(id)); }
  /// The loop ends: ids that would block it move to `to`.
  void give_up_parked(Orphans& to) noexcept;
  /// An event arrived for an id without an owner.
  void on_event_of_nobody(const CmEvent& event) noexcept;
  /// The limit of parked ids is reached, so no connections are made.
  bool full_of_parked() const noexcept;

  /// The protection domain for a new connection. Throws VerbsError.
  std::shared_ptr<Domain> domain(const Settings& settings, std::uint32_t own_receives);
  /// Why a connection with isolation=window cannot be made.
  Failure no_windows() const;
  /// The device refused to bind a key for the only user of this domain: the user keeps the domain
  /// to itself, and new connections get domains of their own. Throws std::bad_alloc.
  void give_up_binding(Domain& domain);
  /// Prepares one queue pair, key and first window for connections with these settings, up to
  /// settings.prepared. True: more are to be made. None are made where connections do not share a
  /// receive queue. Throws VerbsError or std::bad_alloc.
  bool prepare_one(const Settings& settings);
  std::optional<PreparedQueuePair> take_prepared(const QueuePairShape& shape) noexcept {
    return prepared_.take(shape);
  }
  /// Drops one prepared queue pair that is not needed any more. False: there is none.
  bool drop_one_prepared() noexcept;
  std::size_t prepared() const noexcept { return prepared_.size(); }
  /// Throws VerbsError if no completion queue of that depth is available.
  CqLease lease(std::uint32_t entries) { return queues_.lease(entries, shared_depth()); }

  /// Also reserves capacity to park the id later.
  void attach(std::uint32_t qp_number, QueuePairUser* user);
  void detach(std::uint32_t qp_number) noexcept { users_.erase(qp_number); }
  std::size_t queue_pairs() const noexcept { return users_.size(); }

  /// Takes up to `budget` completions and passes them to their owners. Returns how many it took.
  /// Sets `more` if a queue used up its share.
  std::size_t poll(std::size_t budget, bool* more = nullptr);
  /// Polls one queue until everything that was in it at the call is taken.
  void drain(CompletionQueue& queue);
  /// drain() for all queues.
  void drain();
  /// True if a completion queue is not armed, so that only polling would see its completions.
  bool needs_poll() const noexcept { return !queues_.unarmed().empty(); }
  /// Takes events from the completion channel; those queues must be polled and armed again.
  void on_completion_event() { counters_.completion_events += queues_.take_events(); }
  /// Arms every queue, then polls once more. False: completions arrived in between.
  bool arm();
  /// Reads asynchronous events of the device.
  void on_async_event() noexcept;

  /// Periodic: reposts shared receives that wait for a batch or were lost, frees unused resources.
  void tick(ae::TimePoint now) noexcept;
  /// Periodic while a port is down: queries it again and notifies the users on it.
  void tell_of_ports(ae::TimePoint now) noexcept;
  /// tick() has nothing to do until a new connection arrives.
  bool at_rest() const noexcept;

  struct Counters {
    std::uint64_t completions = 0, completion_events = 0, arms = 0, async_events = 0;
    std::uint64_t receive_shortages = 0, receives_lost = 0;
    Counters& operator+=(const Counters& other) noexcept;
  };
  const Counters& counters() const noexcept { return counters_; }
  std::size_t completion_queues() const noexcept { return queues_.all().size(); }

 private:
  /// A user without memory for the event gets on_no_memory(); the others are notified anyway.
  template <class Visit>
  static void tell(QueuePairUser& user, const Visit& visit) noexcept {
    try {
      visit(user);
    } catch (const std::exception&) {
      user.on_no_memory();
    }
  }
  /// Allocates nothing. `visit` must not attach users or call this function again.
  template <class Visit>
  void for_each_user(const Visit& visit) noexcept {
    visited_.clear();
    for (const auto& [number, user] : users_) visited_.push_back(user);
    for (QueuePairUser* user : visited_) tell(*user, visit);
  }
  void look_at_addresses() noexcept;
  static void keep(std::vector<CmId>& list, CmId id) noexcept {
    if (list.size() < list.capacity()) list.push_back(std::move(id));
  }
  void dispatch(const ibv_wc& completion);
  void on_receive(const ibv_wc& completion, QueuePairUser* user);
  bool binds(const Settings& settings) const;
  /// The shared domain of the kind that `bind` says; created on first use.
  std::shared_ptr<Domain>& common_domain(const Settings& settings, bool bind);
  std::uint32_t shared_depth() const noexcept;
  std::size_t poll_queue(CompletionQueue& queue, std::size_t budget);
  void arm_srq_limit() noexcept;

  PagePool& pages_;
  Device device_;  // destroyed last
  bool lost_ = false;
  bool addresses_changed_ = false;  // but users could not be notified yet
  std::vector<CmId> parked_, connecting_;
  std::vector<QueuePairUser*> visited_;  // has capacity for all users
  std::shared_ptr<Domain> shared_;
  std::shared_ptr<Domain> second_;  // for the other kind of isolation; without an SRQ
  CompletionQueues queues_;
  PreparedQueuePairs prepared_;
  std::unordered_map<std::uint32_t, QueuePairUser*> users_;
  std::array<ae::TimePoint, Device::kPorts> port_down_since_{};
  Counters counters_;
};

}}}  // namespace conn::rdma
