// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// A connection request from rdma_cm, before any verbs object exists for it. It can be moved to
// another loop: its rdma_cm id is moved to that loop's event channel. Once it is accepted, this is
// impossible: the queue pair, its completion queue, its receive windows and the events of the
// connection belong to the loop that created them.

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
  /// Stores a connection request. `id`: its rdma_cm id. `channel`: the event channel of `id`.
  /// `data`: the private data of the request.
  RdmaPending(std::shared_ptr<CmChannel> channel, CmId id, std::span<const std::byte> data)
      : channel_(std::move(channel)), id_(std::move(id)), data_(data.begin(), data.end()) {}
  std::string peer() const override { return id_.peer().to_string(); }
  void refuse(std::string_view why) noexcept override { reject(id_.get(), why); }

  CmId& id() noexcept { return id_; }
  std::span<const std::byte> private_data() const noexcept { return data_; }
  /// Moves the request to another event channel. Call it on the thread of the loop that owns the
  /// present channel. Returns false if the request could not be moved. An event of the request that
  /// arrives during the move is lost: the request then cannot be accepted, or the connection is
  /// ended by accept-timeout.
  bool move_to(std::shared_ptr<CmChannel> channel) noexcept {
    if (channel == channel_) return true;
    if (!channel->take_over(id_)) return false;
    channel_ = std::move(channel);
    return true;
  }

 private:
  // Event channel of id_. Ownership is shared, because the channel must outlive the id, even if its
  // loop is destroyed before.
  std::shared_ptr<CmChannel> channel_;
  CmId id_;
  std::vector<std::byte> data_;  // private data of the request
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
