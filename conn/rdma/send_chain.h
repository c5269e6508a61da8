// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// A chain of work requests that is posted with one doorbell. It is built on the stack and posted
// once; the connection keeps track of the posted requests.

#include <array>
#include <cstdint>
#include <span>

#include "ae/abi.h"
#include "conn/rdma/device/device.h"
#include "conn/rdma/device/verbs.h"
#include "conn/rdma/memory/receive_window.h"
#include "conn/rdma/memory/staging_queue.h"
#include "conn/rdma/protocol/wire.h"

namespace conn { inline namespace AECONN_ABI { namespace rdma {

class SendChain {
 public:
  static constexpr std::size_t kLimit = 16;

  /// For at most `room` requests; the first gets the sequence number after `posted`.
  SendChain(std::size_t room, std::uint32_t posted)
      : room_(room < kLimit ? room : kLimit), next_(posted + 1) {}
  SendChain(const SendChain&) = delete;
  SendChain& operator=(const SendChain&) = delete;

  std::size_t size() const noexcept { return size_; }
  bool full() const noexcept { return size_ == room_; }
  std::size_t room() const noexcept { return room_ - size_; }
  std::uint32_t next_sequence() const noexcept { return next_ + static_cast<std::uint32_t>(size_); }

  /// Binds the window's key to this queue pair, or invalidates it, according to its state.
  void change_key(ReceiveWindow& window);
  /// Copies the message into the request.
  void send_inline(const ControlBytes& message);
  /// Sends from registered memory, which must stay valid until completion.
  void send(const std::byte* message, std::uint32_t lkey);
  /// Writes at most kMostPieces pieces, contiguous at the peer. Only a single piece may be `copied`
  /// into the request: of several, irdma before rdma-core 44 copies only the first, and hns before
  /// 47 copies beyond their capacity.
  void write(std::span<const StagingQueue::Segment> from, std::uint64_t to, std::uint32_t rkey,
             bool copied);
  /// Turns the last write() into a WRITE_WITH_IMM.
  void with_immediate(std::uint32_t value);
  /// A write of zero bytes: uses no receive of the peer and needs no key.
  void write_nothing(std::uint64_t to, std::uint32_t rkey);
  void signal(std::size_t index);

  struct Result {
    std::size_t posted;
    int error;   ///< errno of the first request that was not posted
    bool known;  ///< `posted` is reported by the driver, not a guess
  };
  Result post(ibv_qp* qp);

 private:
  ibv_send_wr& add(ibv_wr_opcode opcode);
  void attach(ibv_send_wr& request, std::span<const StagingQueue::Segment> from);

  std::size_t room_, size_ = 0, pieces_used_ = 0;
  std::uint32_t next_;
  std::array<ibv_send_wr, kLimit> requests_;
  std::array<ibv_sge, kLimit * kMostPieces> pieces_;
  std::array<ControlBytes, kLimit> messages_;
};

}}}  // namespace conn::rdma
