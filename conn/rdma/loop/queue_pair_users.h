// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The owners of the queue pairs of one loop on one device, found by the number of their queue pair.
// Each queue pair has at most one owner. There is always capacity to visit all owners, so that a
// failing device can be reported to them without memory.

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

class QueuePairUsers {
 public:
  void add(std::uint32_t qp_number, QueuePairUser* user) {
    const std::size_t users = users_.size() + 1;
    if (visited_.capacity() < users) visited_.reserve(std::max(users, 2 * visited_.capacity()));
    users_[qp_number] = user;
  }
  void remove(std::uint32_t qp_number) noexcept { users_.erase(qp_number); }
  /// Null if the queue pair has been destroyed.
  QueuePairUser* find(std::uint32_t qp_number) const {
    const auto found = users_.find(qp_number);
    return found == users_.end() ? nullptr : found->second;
  }
  std::size_t size() const noexcept { return users_.size(); }

  /// A user without memory for the event gets on_no_memory().
  template <class Visit>
  static void tell(QueuePairUser& user, const Visit& visit) noexcept {
    try {
      visit(user);
    } catch (const std::exception&) {
      user.on_no_memory();
    }
  }
  /// tell() for each user. Allocates nothing. `visit` must not add users or call this function
  /// again.
  template <class Visit>
  void tell_all(const Visit& visit) noexcept {
    visited_.clear();
    for (const auto& [number, user] : users_) visited_.push_back(user);
    for (QueuePairUser* user : visited_) tell(*user, visit);
  }

 private:
  std::unordered_map<std::uint32_t, QueuePairUser*> users_;
  std::vector<QueuePairUser*> visited_;  // has capacity for all users
};

}}}  // namespace conn::rdma
