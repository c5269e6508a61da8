// SPDX-License-Identifier: BSD-3-Clause
#include "verbs_link.h"

#include <arpa/inet.h>
#include <endian.h>

#include <cerrno>
#include <cstring>
#include <utility>

namespace limits {
namespace {

enum : std::uint16_t { kGetServerFeature, kSetClientFeature, kKeepalive, kRegisterXferMemory };

template <class T>
T load(const std::byte* from) {
  T value;
  std::memcpy(&value, from, sizeof value);
  return value;
}
template <class T>
void store(std::byte* to, T value) {
  std::memcpy(to, &value, sizeof value);
}

rdma_conn_param parameters() {
  rdma_conn_param parameters{};
  parameters.responder_resources = 1;
  parameters.initiator_depth = 1;
  parameters.retry_count = 6;
  parameters.rnr_retry_count = 7;
  return parameters;
}

}  // namespace

Link::Link(Device& device, CmId id, std::size_t window)
    : device_(device),
      id_(std::move(id)),
      window_(device.pd(), window, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE) {
  ibv_qp_init_attr attributes{};
  attributes.send_cq = attributes.recv_cq = device.cq();
  attributes.srq = device.srq();
  attributes.qp_type = IBV_QPT_RC;
  attributes.cap.max_send_wr = kSlots;
  attributes.cap.max_send_sge = 1;
  attributes.cap.max_inline_data = kInline;
  std::uint8_t timeout = 14;  // 67 ms
  rdma_set_option(id_.get(), RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT, &timeout, sizeof timeout);
  if (rdma_create_qp(id_.get(), device.pd(), &attributes) != 0) fail("rdma_create_qp");
}

Link::~Link() { rdma_destroy_qp(id_.get()); }

void Link::connect() {
  rdma_conn_param values = parameters();
  if (rdma_connect(id_.get(), &values) != 0) fail("rdma_connect");
}

void Link::accept() {
  rdma_conn_param values = parameters();
  if (rdma_accept(id_.get(), &values) != 0) fail("rdma_accept");
}

void Link::established() {
  if (std::exchange(established_, true)) return;
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_RTS;
  attributes.min_rnr_timer = 1;  // 10 us
  ibv_modify_qp(id_->qp, &attributes, IBV_QP_STATE | IBV_QP_MIN_RNR_TIMER);
  add_offer();
  post();
}

void Link::disconnect() noexcept { rdma_disconnect(id_.get()); }

void Link::take(const ibv_wc& completion) {
  const bool sent = (completion.wr_id & Device::kSend) != 0;
  if (completion.status != IBV_WC_SUCCESS) {
    broken_ = true;
  } else if (sent) {
    completed_ = completion.wr_id & ~Device::kSend;
  } else if (completion.opcode == IBV_WC_RECV_RDMA_WITH_IMM) {
    const std::uint32_t size = ntohl(completion.imm_data);
    if (size <= window_.size() - filled_) {
      filled_ += size;
    } else {
      broken_ = true;
    }
  } else if (completion.byte_len == Device::kReceiveSize) {
    take_control(device_.received(completion.wr_id));
  } else {
    broken_ = true;
  }
  device_.give_back(completion);
}

void Link::take_control(std::span<const std::byte> message) {
  const std::byte* const bytes = message.data();
  switch (ntohs(load<std::uint16_t>(bytes))) {
    case kGetServerFeature:
      if (questions_size_ == questions_.size()) {
        broken_ = true;
      } else {
        questions_[questions_size_++] = load<std::uint16_t>(bytes + 2);
      }
      break;
    case kSetClientFeature:
    case kKeepalive:
      break;
    case kRegisterXferMemory:
      peer_ = {be64toh(load<std::uint64_t>(bytes + 16)), ntohl(load<std::uint32_t>(bytes + 24)),
               ntohl(load<std::uint32_t>(bytes + 28)), 0};
      break;
    default:
      broken_ = true;
  }
}

ibv_send_wr& Link::add(ibv_wr_opcode opcode, const void* bytes, std::uint32_t size,
                       std::uint32_t lkey) {
  Chain& chain = device_.chain();
  ibv_sge& piece = chain.pieces[chain.size];
  piece = {reinterpret_cast<std::uintptr_t>(bytes), size, lkey};
  ibv_send_wr& request = chain.requests[chain.size];
  request = {};
  if (chain.size > 0) chain.requests[chain.size - 1].next = &request;
  ++chain.size;
  request.wr_id = Device::kSend | ++posted_;
  request.sg_list = &piece;
  request.num_sge = 1;
  request.opcode = opcode;
  if (size <= kInline) {
    request.send_flags = IBV_SEND_INLINE;
  } else {
    last_read_ = posted_;
  }
  if (++unsignaled_ == kSignalEvery) signal_last();
  return request;
}

void Link::signal_last() noexcept {
  Chain& chain = device_.chain();
  if (chain.size == 0) return;
  chain.requests[chain.size - 1].send_flags |= IBV_SEND_SIGNALED;
  unsignaled_ = 0;
}

void Link::add_write(const std::byte* bytes, std::uint32_t size, std::uint32_t lkey) {
  ibv_send_wr& request = add(IBV_WR_RDMA_WRITE_WITH_IMM, bytes, size, lkey);
  request.imm_data = htonl(size);
  request.wr.rdma.remote_addr = peer_.address + peer_.used;
  request.wr.rdma.rkey = peer_.key;
  peer_.used += size;
}

ibv_send_wr& Link::add_control(std::uint16_t opcode) {
  auto& message = device_.chain().messages[device_.chain().size];
  message = {};
  store(message.data(), htons(opcode));
  return add(IBV_WR_SEND, message.data(), Device::kReceiveSize, 0);
}

bool Link::add_offer() {
  if (slots() == 0) return false;
  std::byte* const message = device_.chain().messages[device_.chain().size].data();
  add_control(kRegisterXferMemory);
  store(message + 16, htobe64(reinterpret_cast<std::uintptr_t>(window_.data())));
  store(message + 24, htonl(window_.size()));
  store(message + 28, htonl(window_.rkey()));
  filled_ = 0;
  offered_ = true;
  return true;
}

void Link::add_answers() {
  while (questions_size_ > 0 && slots() > 0) {
    std::byte* const message = device_.chain().messages[device_.chain().size].data();
    add_control(kGetServerFeature);
    store(message + 2, questions_[--questions_size_]);
  }
}

void Link::post() {
  if (questions_size_ > 0) add_answers();
  Chain& chain = device_.chain();
  if (chain.size == 0) return;
  ibv_send_wr* bad = nullptr;
  if (ibv_post_send(id_->qp, chain.requests.data(), &bad) != 0) broken_ = true;
  chain.size = 0;
}

}  // namespace limits
