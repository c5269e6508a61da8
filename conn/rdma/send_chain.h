// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// A chain of work requests that is posted with one call and one doorbell. A chain is built on the
// stack and posted once; Sender records the posted requests.

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

  /// Creates an empty chain for at most `room` requests, and at most kLimit. `posted`: sequence
  /// number of the last request posted before; the first request of the chain gets the next number.
  SendChain(std::size_t room, std::uint32_t posted)
      : room_(room < kLimit ? room : kLimit), next_(posted + 1) {}
  SendChain(const SendChain&) = delete;
  SendChain& operator=(const SendChain&) = delete;

  std::size_t size() const noexcept { return size_; }
  bool full() const noexcept { return size_ == room_; }
  std::size_t room() const noexcept { return room_ - size_; }
  std::uint32_t next_sequence() const noexcept { return next_ + static_cast<std::uint32_t>(size_); }

  /// Adds the request that the state of `window` (memory for the peer's data) requires: to bind its
  /// key to this queue pair, or to invalidate the key.
  void change_key(ReceiveWindow& window);
  /// Adds a SEND of a control message, which is copied into the work request.
  void send_inline(const ControlBytes& message);
  /// Adds a SEND of a control message in registered memory, which must stay unchanged until the
  /// SEND completes.
  void send(const std::byte* message, std::uint32_t lkey);
  /// Adds an RDMA write from `from`, at most kMostPieces pieces of our memory, to the peer's
  /// address `to`. `copied`: the bytes are copied into the request (inline). This is allowed for a
  /// single piece only: of several pieces, irdma before rdma-core 44 copies only the first, and hns
  /// before rdma-core 47 overruns its buffer.
  void write(std::span<const StagingQueue::Segment> from, std::uint64_t to, std::uint32_t rkey,
             bool copied);
  /// Turns the RDMA write that was added last into a WRITE_WITH_IMM with this immediate value.
  void with_immediate(std::uint32_t value);
  /// Adds a write of zero bytes, which consumes no receive of the peer. The `rkey` need not be
  /// valid.
  void write_nothing(std::uint64_t to, std::uint32_t rkey);
  void signal(std::size_t index);
  /// Returns how many of the first `count` requests contain their data (inline).
  std::size_t inlined(std::size_t count) const noexcept;

  struct Result {
    std::size_t posted;
    /// Errno value for the first request that the device refused; 0 if all requests were posted.
    int error;
    /// True if the driver reported how many requests it accepted; false: `posted` is 0, but this is
    /// a guess.
    bool known;
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
