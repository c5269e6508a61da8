// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// One connection that speaks Valkey Over RDMA, as barely as can be: a queue pair, a window of ours
// and what is known of the peer's.

#include <optional>

#include "verbs_device.h"

namespace limits {

class Link {
 public:
  static constexpr std::uint32_t kSlots = 32;  ///< of the send queue
  static constexpr std::uint32_t kSignalEvery = 16;
  static constexpr std::uint32_t kInline = 64;

  /// Makes queue pair and window. Throws std::system_error.
  Link(Device& device, CmId id, std::size_t window);
  Link(const Link&) = delete;
  Link& operator=(const Link&) = delete;
  virtual ~Link();

  std::uint32_t number() const noexcept { return id_->qp->qp_num; }
  rdma_cm_id* id() const noexcept { return id_.get(); }
  /// Either end of rdma_cm's handshake; the same values for both.
  void connect();
  void accept();
  /// The connection stands. May be called more than once.
  void established();
  void disconnect() noexcept;

  /// A completion of this queue pair. The first failure or breach of the protocol breaks the link.
  void take(const ibv_wc& completion);
  bool broken() const noexcept { return broken_; }

  // --- our window --------------------------------------------------------------------------------
  const std::byte* window() const noexcept { return window_.data(); }
  std::uint32_t window_key() const noexcept { return window_.lkey(); }
  std::uint32_t filled() const noexcept { return filled_; }
  bool full() const noexcept { return offered_ && filled_ == window_.size(); }
  /// Writes from the window may still be under way, so it must not be offered.
  bool window_in_use() const noexcept { return last_read_ > completed_; }

  // --- sending: everything added since the last post() leaves with it ----------------------------
  /// Whether the peer's first window is known.
  bool open() const noexcept { return peer_.length > 0; }
  /// How much one add_write() takes; 0 also if the send queue is full.
  std::uint32_t room() const noexcept { return slots() > 0 ? peer_.length - peer_.used : 0; }
  /// `size` is 1 to room(). At most kInline bytes are copied, others read until window_in_use() is
  /// false again.
  void add_write(const std::byte* bytes, std::uint32_t size, std::uint32_t lkey);
  /// Offers the window from its beginning. False if the send queue is full.
  bool add_offer();
  /// Asks for a completion of what was added last.
  void signal_last() noexcept;
  void post();

 protected:
  friend class Worker;
  bool listed_ = false;  // the worker will serve it

 private:
  struct PeerWindow {
    std::uint64_t address = 0;
    std::uint32_t length = 0, key = 0, used = 0;
  };
  std::uint32_t slots() const noexcept {
    return kSlots - static_cast<std::uint32_t>(posted_ - completed_);
  }
  void take_control(std::span<const std::byte> message);
  ibv_send_wr& add(ibv_wr_opcode opcode, const void* bytes, std::uint32_t size, std::uint32_t lkey);
  ibv_send_wr& add_control(std::uint16_t opcode);
  void add_answers();

  Device& device_;
  CmId id_;
  Memory window_;
  PeerWindow peer_;
  std::uint32_t filled_ = 0;
  bool offered_ = false, established_ = false, broken_ = false;
  std::uint64_t posted_ = 0, completed_ = 0;  // work requests, counted; the chain's are posted
  std::uint64_t last_read_ = 0;               // the last one that reads memory when it is sent
  std::uint32_t unsignaled_ = 0;
  std::array<std::uint16_t, 8> questions_;  // pages of GetServerFeature to be answered
  std::size_t questions_size_ = 0;
};

}  // namespace limits
