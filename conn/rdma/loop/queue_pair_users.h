// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The owners of the queue pairs of one event loop on one device, found by the number of the queue
// pair. Each queue pair has at most one owner. Capacity to visit all owners is reserved in advance,
// so that the failure of a device can be reported to them without allocating memory.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "ae/abi.h"
#include "ae/time.h"
#include "conn/kit/resolver.h"
#include "conn/rdma/device/verbs.h"

namespace conn { inline namespace AECONN_ABI { namespace rdma {

class ReceiveQueue;

/// What a device or the kernel reports about a queue pair, its port or its addresses.
struct QueuePairEvent {
  enum class Kind : std::uint8_t {
    kDataBeforeEstablished,  ///< data has arrived before rdma_cm has reported the connection
    kRefusal,                ///< the peer sent a request that the device does not permit
    kLastReceive,  ///< the queue pair is in the error state and consumes no more shared receives
    kFailed,       ///< the connection cannot continue, for the reason `what`
    kPortDown,     ///< port number `port` of the device has been down for the time `since`
    kAddresses,    ///< the device's GID table has changed; `present` are the machine's addresses
  };
  Kind kind;
  const std::string* what = nullptr;  ///< the text is empty if there was no memory for it
  int port = 0;
  ae::Duration since{};
  const std::vector<SocketAddress>* present = nullptr;
};

/// Interface of the owner of a queue pair, which receives its events. These functions must not run
/// a user's handler.
class QueuePairUser {
 public:
  /// The send with number `sequence` and all sends before it are complete.
  virtual void on_sends_done(std::uint32_t sequence) = 0;
  /// An RDMA WRITE WITH IMMEDIATE arrived. Its immediate value is `length`, the bytes it wrote.
  virtual void on_immediate(std::uint32_t length) = 0;
  /// A SEND arrived; `bytes` is a copy of it.
  virtual void on_message(std::span<const std::byte> bytes) = 0;
  /// A work request failed, and the queue pair can no longer be used. `sequence` is the number of
  /// the failed send; 0 for a receive.
  virtual void on_work_failed(ibv_wc_status status, bool was_send, std::uint32_t sequence) = 0;
  /// The device or the kernel reports something about the queue pair.
  virtual void on_event(const QueuePairEvent& event) = 0;
  /// There was no memory to process an event of this queue pair.
  virtual void on_no_memory() noexcept = 0;
  /// Returns the queue pair's own receive queue, or the shared one of its domain.
  virtual ReceiveQueue* receives() noexcept = 0;

 protected:
  ~QueuePairUser() = default;
};

class QueuePairUsers {
 public:
  void add(std::uint32_t qp_number, QueuePairUser* user) {
    const std::size_t users = users_.size() + 1;
    if (visited_.capacity() < users) visited_.reserve(std::max(users, 2 * visited_.capacity()));
    users_[qp_number] = user;
  }
  void remove(std::uint32_t qp_number) noexcept { users_.erase(qp_number); }
  /// Returns the owner of this queue pair; null if the queue pair has been destroyed.
  QueuePairUser* find(std::uint32_t qp_number) const {
    const auto found = users_.find(qp_number);
    return found == users_.end() ? nullptr : found->second;
  }
  std::size_t size() const noexcept { return users_.size(); }

  /// Calls visit(user). If that throws, which means that it had no memory, calls the user's
  /// on_no_memory().
  template <class Visit>
  static void tell(QueuePairUser& user, const Visit& visit) noexcept {
    try {
      visit(user);
    } catch (const std::exception&) {
      user.on_no_memory();
    }
  }
  /// Calls tell(user, visit) for each user. Allocates no memory. `visit` must not add users or call
  /// this function.
  template <class Visit>
  void tell_all(const Visit& visit) noexcept {
    visited_.clear();
    for (const auto& [number, user] : users_) visited_.push_back(user);
    for (QueuePairUser* user : visited_) tell(*user, visit);
  }

 private:
  std::unordered_map<std::uint32_t, QueuePairUser*> users_;
  std::vector<QueuePairUser*> visited_;  // the users that tell_all() visits; has capacity for all
};

}}}  // namespace conn::rdma
