// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// A connection request from rdma_cm, before any verbs object exists for it. The request is moved to
// another loop by moving its rdma_cm id to that loop's event channel. A later move is impossible: a
// queue pair, its completion queue, its windows and the events of an established connection belong
// to the loop that created them.

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ae/abi.h"
#include "conn/core/pending_connection.h"
#include "conn/rdma/device/cm.h"
#include "conn/rdma/device/reject_reason.h"

namespace conn { inline namespace AECONN_ABI { namespace rdma {

class RdmaPending final : public PendingConnection {
 public:
  /// Stores a connection request. `id`: its rdma_cm id. `channel`: the event channel to which `id`
  /// belongs. `data`: the private data that the peer sent in the request.
  RdmaPending(std::shared_ptr<CmChannel> channel, CmId id, std::span<const std::byte> data)
      : channel_(std::move(channel)), id_(std::move(id)), data_(data.begin(), data.end()) {}
  std::string peer() const override { return id_.peer().to_string(); }
  void refuse(std::string_view why) noexcept override { reject(id_.get(), why); }

  CmId& id() noexcept { return id_; }
  std::span<const std::byte> private_data() const noexcept { return data_; }
  /// Moves the request to another event channel. Call it on the thread of the loop that owns the
  /// current channel. Returns false if the request was not moved. An event that arrives for the
  /// request during the move is lost: accepting it then fails, or nothing happens until
  /// accept-timeout.
  bool move_to(std::shared_ptr<CmChannel> channel) noexcept {
    if (channel == channel_) return true;
    if (!channel->take_over(id_)) return false;
    channel_ = std::move(channel);
    return true;
  }

 private:
  // Event channel of id_. The ownership is shared, because the channel must outlive the id even if
  // the loop of the channel does not.
  std::shared_ptr<CmChannel> channel_;
  CmId id_;
  std::vector<std::byte> data_;  // private data that the peer sent in its connection request
};

/// Moves connection requests to the loop that owns an event channel.
class RdmaHandoff final : public Handoff {
 public:
  explicit RdmaHandoff(std::shared_ptr<CmChannel> channel) : channel_(std::move(channel)) {}
  bool pass(PendingConnection& arrival) const noexcept override {
    return static_cast<RdmaPending&>(arrival).move_to(channel_);
  }
  const std::shared_ptr<CmChannel>& channel() const noexcept { return channel_; }

 private:
  const std::shared_ptr<CmChannel> channel_;
};

}}}  // namespace conn::rdma
