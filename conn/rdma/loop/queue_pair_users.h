// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The owners of the queue pairs of one event loop on one device, found by the number of the queue
// pair. Each queue pair has at most one owner. Capacity to visit all owners is reserved in advance,
// so that the failure of a device can be reported to them without allocating memory.
//
// The owner is looked up for each completion, so the owners are in a special hash table: at most
// half of its slots are used, and a search goes from the slot that the number hashes to until it
// finds the number or a free slot.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "ae/abi.h"
#include "ae/time.h"
#include "conn/kit/resolver.h"
#include "conn/rdma/device/verbs.h"

namespace conn { inline namespace AECONN_ABI { namespace rdma {

class ReceiveQueue;

/// An event of a queue pair, of its port or of its device's addresses, as reported by the device or
/// the kernel.
struct QueuePairEvent {
  enum class Kind : std::uint8_t {
    /// Data has arrived before rdma_cm has reported that the connection is established.
    kDataBeforeEstablished,
    kRefusal,  ///< the peer sent a request that our device has refused
    /// The queue pair is in the error state and will consume no more shared receives.
    kLastReceive,
    kFailed,     ///< the connection cannot continue, for the reason `what`
    kPortDown,   ///< port number `port` of the device has been down for the time `since`
    kAddresses,  ///< the device's GID table has changed; `present` are the machine's addresses
  };
  Kind kind;
  const std::string* what = nullptr;  ///< reason for kFailed; empty if there was no memory for it
  int port = 0;
  ae::Duration since{};
  const std::vector<SocketAddress>* present = nullptr;
};

/// Interface of the owner of a queue pair, which handles its completions and events. The functions
/// must not run handlers of the user.
class QueuePairUser {
 public:
  /// Called when the send request with number `sequence`, and thus all earlier ones, have
  /// completed.
  virtual void on_sends_done(std::uint32_t sequence) = 0;
  /// Called when an RDMA WRITE WITH IMMEDIATE has arrived. `length`: its immediate value, in host
  /// byte order, which states the number of bytes written.
  virtual void on_immediate(std::uint32_t length) = 0;
  /// Called when a SEND has arrived; `bytes` is a copy of the message.
  virtual void on_message(std::span<const std::byte> bytes) = 0;
  /// Called when a work request has failed, after which the queue pair is unusable. `sequence`:
  /// number of the failed send request; 0 for a receive.
  virtual void on_work_failed(ibv_wc_status status, bool was_send, std::uint32_t sequence) = 0;
  /// Called when the device or the kernel reports an event that concerns the queue pair.
  virtual void on_event(const QueuePairEvent& event) = 0;
  /// Called when there was no memory to process an event of this queue pair.
  virtual void on_no_memory() noexcept = 0;
  /// Returns the queue pair's own receive queue, or the shared one of its domain.
  virtual ReceiveQueue* receives() noexcept = 0;

 protected:
  ~QueuePairUser() = default;
};

class QueuePairUsers {
 public:
  /// An entry of the table: the number of a queue pair, its owner, and the receive queue that the
  /// owner's receives() returns, which stays the same.
  struct Owner {
    std::uint32_t qp_number = 0;
    QueuePairUser* user = nullptr;  // null: this slot of the table is free
    ReceiveQueue* receives = nullptr;
  };

  /// Adds the owner of a queue pair. Throws std::bad_alloc, and then changes nothing.
  void add(std::uint32_t qp_number, QueuePairUser* user) {
    const std::size_t users = count_ + 1;
    if (visited_.capacity() < users) visited_.reserve(std::max(users, 2 * visited_.capacity()));
    if (2 * users > slots_.size()) grow();
    put({qp_number, user, user->receives()});
  }
  void remove(std::uint32_t qp_number) noexcept {
    const std::size_t hole = find_slot(qp_number);
    if (slots_[hole].user == nullptr) return;
    --count_;
    slots_[hole] = {};
    // Inserts the entries that follow the freed slot again, up to the next free slot: a search
    // stops at the first free slot, and would not find them any more.
    for (std::size_t at = next(hole); slots_[at].user != nullptr; at = next(at)) {
      --count_;
      put(std::exchange(slots_[at], {}));
    }
  }
  /// Returns the owner of this queue pair; its `user` is null if the queue pair has been destroyed.
  /// The reference is valid until add() or remove() is called.
  const Owner& find_owner(std::uint32_t qp_number) const noexcept {
    return slots_[find_slot(qp_number)];
  }
  /// Returns the owner of this queue pair; null if the queue pair has been destroyed.
  QueuePairUser* find(std::uint32_t qp_number) const noexcept { return find_owner(qp_number).user; }
  std::size_t size() const noexcept { return count_; }

  /// Calls visit(user) for the owner of a queue pair. If that throws (only for lack of memory),
  /// calls the owner's on_no_memory().
  template <class Visit>
  static void tell(QueuePairUser& user, const Visit& visit) noexcept {
    try {
      visit(user);
    } catch (const std::exception&) {
      user.on_no_memory();
    }
  }
  /// Calls visit(user) for the owner of each queue pair, as tell() does for one. Allocates no
  /// memory. `visit` must not add owners and must not call this function.
  template <class Visit>
  void tell_all(const Visit& visit) noexcept {
    visited_.clear();
    for (const Owner& each : slots_)
      if (each.user != nullptr) visited_.push_back(each.user);
    for (QueuePairUser* user : visited_) tell(*user, visit);
  }

 private:
  // Returns the index of the slot with this queue pair number, or of the free slot in which it is
  // to be put.
  std::size_t find_slot(std::uint32_t qp_number) const noexcept {
    std::size_t at = (qp_number * kSpread) >> shift_;
    for (;; at = next(at)) {
      const Owner& slot = slots_[at];
      if (slot.qp_number == qp_number || slot.user == nullptr) [[likely]]
        return at;
    }
  }
  std::size_t next(std::size_t at) const noexcept { return (at + 1) & (slots_.size() - 1); }
  void put(const Owner& owner) noexcept {
    Owner& slot = slots_[find_slot(owner.qp_number)];
    if (slot.user == nullptr) ++count_;
    slot = owner;
  }
  void grow() {
    std::vector<Owner> before(2 * slots_.size());
    before.swap(slots_);
    --shift_;
    count_ = 0;
    for (const Owner& each : before)
      if (each.user != nullptr) put(each);
  }

  // Factor of the hash, 2^32 divided by the golden ratio: the upper bits of its products with queue
  // pair numbers differ, even if a driver numbers queue pairs in steps of a large power of two.
  static constexpr std::uint32_t kSpread = 0x9e3779b9;
  static constexpr int kFirstBits = 4;
  std::vector<Owner> slots_ = std::vector<Owner>(1u << kFirstBits);  // the size is a power of two
  int shift_ = 32 - kFirstBits;  // shifts a 32-bit hash right, to the index of a slot
  std::size_t count_ = 0;
  std::vector<QueuePairUser*> visited_;  // used in tell_all(); has capacity for all owners
};

}}}  // namespace conn::rdma
