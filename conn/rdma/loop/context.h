// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// What one loop shares on one device: a handle of its own, its completion queues with one channel
// whose descriptor is in the loop, and the shared domain. It knows queue pairs only through
// QueuePairUser.

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "ae/abi.h"
#include "conn/kit/resolver.h"
#include "conn/rdma/device/cm.h"
#include "conn/rdma/device/device.h"
#include "conn/rdma/device/orphans.h"
#include "conn/rdma/memory/domain.h"
#include "conn/rdma/memory/prepared.h"
#include "conn/rdma/memory/queues.h"
#include "conn/rdma/settings.h"

namespace conn { inline namespace AECONN_ABI { namespace rdma {

/// Whoever owns a queue pair: facts about it arrive here. None of them may run a user's handler.
class QueuePairUser {
 public:
  /// The send numbered `sequence` and all before it are done.
  virtual void on_sends_done(std::uint32_t sequence) = 0;
  /// A WRITE_WITH_IMM arrived.
  virtual void on_immediate(std::uint32_t length) = 0;
  /// A SEND arrived; `bytes` is a private copy.
  virtual void on_message(std::span<const std::byte> bytes) = 0;
  /// A work request failed; the queue pair is dead. `sequence`: of a send, its number.
  virtual void on_work_failed(ibv_wc_status status, bool was_send, std::uint32_t sequence) = 0;
  /// The device or the kernel says the connection cannot go on, in words.
  virtual void on_device_event(const std::string& what) = 0;
  /// There was no memory to take a completion of its own.
  virtual void on_no_memory() noexcept = 0;
  /// The peer was heard before rdma_cm said so.
  virtual void on_communication_established() = 0;
  /// The peer did what its device may not do here.
  virtual void on_refusal() = 0;
  /// The queue pair is in its error state, and uses shared receives no more.
  virtual void on_last_receive() = 0;
  /// A port of the device has been down for so long.
  virtual void on_port_down(int port, ae::Duration since) = 0;
  /// GID table of the device changed; these addresses the machine has now.
  virtual void on_address_change(const std::vector<SocketAddress>& present) = 0;
  /// Where its receives are: of its own, or its domain's shared ones.
  virtual ReceiveQueue* receives() noexcept = 0;

 protected:
  ~QueuePairUser() = default;
};

class Context {
 public:
  /// Opens the device. Borrows `pages`. `loop`: its index in its listener group. Throws VerbsError.
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
  /// The device was removed or died: no new connections here.
  bool lost() const noexcept { return lost_; }
  void set_lost() noexcept { lost_ = true; }

  // --- ids that cannot go yet: the kernel would wait, and the loop with it ---
  /// Until its port is up again or the device is lost.
  void park(CmId id) noexcept { keep(parked_, std::move(id)); }
  bool has_parked() const noexcept { return !parked_.empty() || !connecting_.empty(); }
  /// Of memory that nobody uses; a slow call. False: there is none.
  bool give_back_one() noexcept {
    return prepared_.drop_one() || (shared_ && shared_->give_back_one()) ||
           (second_ && second_->give_back_one());
  }
  bool may_release_parked() const noexcept;
  void release_one_parked() noexcept;
  /// Until rdma_cm has said how its connect ended: on iWARP rdma_destroy_id() waits for that.
  void park_connecting(CmId id) noexcept { keep(connecting_, std::move(id)); }
  /// The loop ends: those that would hold it up go to `to`.
  void give_up_parked(Orphans& to) noexcept;
  /// An event came for an id that nobody owns.
  void on_event_of_nobody(const CmEvent& event) noexcept;
  /// No more connections can be parked, so none are made.
  bool full_of_parked() const noexcept;

  /// The domain a new connection belongs to. Throws VerbsError.
  std::shared_ptr<Domain> domain(const Settings& settings, std::uint32_t own_receives);
  /// Why a connection of isolation=window cannot be.
  Failure no_windows() const;
  /// Binding was refused to the only user of this domain: it keeps it for itself, and new
  /// connections get domains of their own. Throws std::bad_alloc.
  void give_up_binding(Domain& domain);
  /// Makes one queue pair, key and first window ready for connections of these settings, unless so
  /// many are. True: more are to be made. None are made where connections share no receive queue.
  /// Throws VerbsError or std::bad_alloc.
  bool prepare_one(const Settings& settings);
  std::optional<PreparedQueuePair> take_prepared(const QueuePairShape& shape) noexcept {
    return prepared_.take(shape);
  }
  /// One that nobody asks for any more. False: there is none.
  bool drop_one_prepared() noexcept;
  std::size_t prepared() const noexcept { return prepared_.size(); }
  /// Throws VerbsError if no completion queue of that depth can be had.
  CqLease lease(std::uint32_t entries) { return queues_.lease(entries, shared_depth()); }

  /// Makes room to park its id, too.
  void attach(std::uint32_t qp_number, QueuePairUser* user);
  void detach(std::uint32_t qp_number) noexcept { users_.erase(qp_number); }
  std::size_t queue_pairs() const noexcept { return users_.size(); }

  /// Takes up to `budget` completions and tells their owners. Returns how many it took.
  /// `more` is set if a queue had as much as its share.
  std::size_t poll(std::size_t budget, bool* more = nullptr);
  /// Polls one queue until nothing is left that was there before.
  void drain(CompletionQueue& queue);
  /// The same for all.
  void drain();
  /// True if a completion queue is not armed, so that only polling would see its completions.
  bool needs_poll() const noexcept { return !queues_.unarmed().empty(); }
  /// Takes events from the completion channel; those queues have to be polled and armed again.
  void on_completion_event() { counters_.completion_events += queues_.take_events(); }
  /// Asks for events on every queue, then looks once more. False: completions came in between.
  bool arm();
  /// Reads asynchronous events of the device.
  void on_async_event() noexcept;

  /// Now and then: gives back shared receives that wait for a batch or were lost, frees what nobody
  /// needs.
  void tick(ae::TimePoint now) noexcept;
  /// Every fraction of a second while a port is down: asks it again, and tells who is on it.
  void tell_of_ports(ae::TimePoint now) noexcept;
  /// tick() has nothing to do as long as nobody comes.
  bool at_rest() const noexcept;

  struct Counters {
    std::uint64_t completions = 0, completion_events = 0, arms = 0, async_events = 0;
    std::uint64_t receive_shortages = 0, receives_lost = 0;
    Counters& operator+=(const Counters& other) noexcept;
  };
  const Counters& counters() const noexcept { return counters_; }
  std::size_t completion_queues() const noexcept { return queues_.all().size(); }

 private:
  /// One that finds no memory to hear of it ends, and the others hear of it all the same.
  template <class Visit>
  static void tell(QueuePairUser& user, const Visit& visit) noexcept {
    try {
      visit(user);
    } catch (const std::exception&) {
      user.on_no_memory();
    }
  }
  /// Needs no memory. `visit` must not attach anybody, nor come here again.
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
  /// The one for connections that wish so; made at first.
  std::shared_ptr<Domain>& common_domain(const Settings& settings, bool bind);
  std::uint32_t shared_depth() const noexcept;
  std::size_t poll_queue(CompletionQueue& queue, std::size_t budget);
  void arm_srq_limit() noexcept;

  PagePool& pages_;
  Device device_;  // destroyed last
  bool lost_ = false;
  bool addresses_changed_ = false;  // and nobody has been told
  std::vector<CmId> parked_, connecting_;
  std::vector<QueuePairUser*> visited_;  // has room for all users
  std::shared_ptr<Domain> shared_;
  std::shared_ptr<Domain> second_;  // for connections that wish the other kind; without an SRQ
  CompletionQueues queues_;
  PreparedQueuePairs prepared_;
  std::unordered_map<std::uint32_t, QueuePairUser*> users_;
  std::array<ae::TimePoint, Device::kPorts> port_down_since_{};
  Counters counters_;
};

}}}  // namespace conn::rdma
