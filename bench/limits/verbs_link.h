// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// One minimal Valkey Over RDMA connection: a queue pair, our receive window and what is known of
// the peer's.

#include <optional>

#include "verbs_device.h"

namespace limits {

class Link {
 public:
  static constexpr std::uint32_t kSlots = 32;  ///< of the send queue
  static constexpr std::uint32_t kSignalEvery = 16;
  static constexpr std::uint32_t kInline = 64;

  /// Creates the queue pair and the window. Throws std::system_error.
  Link(Device& device, CmId id, std::size_t window);
  Link(const Link&) = delete;
  Link& operator=(const Link&) = delete;
  virtual ~Link();

  std::uint32_t number() const noexcept { return id_->qp->qp_num; }
  rdma_cm_id* id() const noexcept { return id_.get(); }
  /// Either side of rdma_cm's handshake; both use the same parameters.
  void connect();
  void accept();
  /// The connection is established. May be called repeatedly.
  void established();
  void disconnect() noexcept;

  /// Handles a completion of this queue pair. The first failure or protocol violation breaks the
  /// link.
  void take(const ibv_wc& completion);
  bool broken() const noexcept { return broken_; }

  // --- our window --------------------------------------------------------------------------------
  const std::byte* window() const noexcept { return window_.data(); }
  std::uint32_t window_key() const noexcept { return window_.lkey(); }
  std::uint32_t filled() const noexcept { return filled_; }
  bool full() const noexcept { return offered_ && filled_ == window_.size(); }
  /// RDMA writes may still be reading from the window, so it must not be offered.
  bool window_in_use() const noexcept { return last_read_ > completed_; }

  // --- sending: post() sends everything added since the last post()
  //  ------------------------------
  /// Whether the peer's first window is known.
  bool open() const noexcept { return peer_.length > 0; }
  /// Bytes that one add_write() accepts; also 0 if the send queue is full.
  std::uint32_t room() const noexcept { return slots() > 0 ? peer_.length - peer_.used : 0; }
  /// `size` must be 1 to room(). Up to kInline bytes are copied; longer data must stay valid until
  /// window_in_use() is false again.
  void add_write(const std::byte* bytes, std::uint32_t size, std::uint32_t lkey);
  /// Offers the window from its beginning. Returns false if the send queue is full.
  bool add_offer();
  /// Requests a completion for the work request added last.
  void signal_last() noexcept;
  void post();

 protected:
  friend class Worker;
  bool listed_ = false;  // in the worker's list of links to serve

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
  std::uint64_t posted_ = 0, completed_ = 0;  // work requests; the chain counts as posted
  std::uint64_t last_read_ = 0;               // the last work request that reads memory when sent
  std::uint32_t unsignaled_ = 0;
  std::array<std::uint16_t, 8> questions_;  // GetServerFeature pages still to be answered
  std::size_t questions_size_ = 0;
};

}  // namespace limits
