// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Finds the owner of a queue pair by the number of the queue pair, for one event loop and one
// device. Each queue pair has at most one owner. Capacity to visit all owners is reserved in
// advance, so that the failure of a device can be reported to them without allocating memory.

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
  const std::string* what = nullptr;  ///< the text is empty if there was no memory for it
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

  /// Calls visit(user). If that throws (only for lack of memory), calls the user's on_no_memory().
  template <class Visit>
  static void tell(QueuePairUser& user, const Visit& visit) noexcept {
    try {
      visit(user);
    } catch (const std::exception&) {
      user.on_no_memory();
    }
  }
  /// Calls tell(user, visit) for each user. Allocates no memory. `visit` must not add users and
  /// must not call this function.
  template <class Visit>
  void tell_all(const Visit& visit) noexcept {
    visited_.clear();
    for (const auto& [number, user] : users_) visited_.push_back(user);
    for (QueuePairUser* user : visited_) tell(*user, visit);
  }

 private:
  std::unordered_map<std::uint32_t, QueuePairUser*> users_;
  std::vector<QueuePairUser*> visited_;  // scratch list of tell_all(), with capacity for all users
};

}}}  // namespace conn::rdma
