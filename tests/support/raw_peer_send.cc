// SPDX-License-Identifier: BSD-3-Clause
#if AECONN_RDMA
// Sending by a raw peer: the protocol's messages, and all other operations that a queue pair can
// post.
#include <arpa/inet.h>

#include <algorithm>
#include <cstring>

#include "tests/support/raw_peer.h"

namespace testing {
namespace {

template <class Number>
void put(std::string& into, std::size_t at, Number value) {
  for (std::size_t i = 0; i < sizeof value; ++i)
    into[at + i] = static_cast<char>(value >> (8 * (sizeof value - 1 - i)));
}

}  // namespace

std::string raw_control(std::uint16_t opcode) {
  std::string bytes(32, '\0');
  put(bytes, 0, opcode);
  return bytes;
}

std::string raw_register(std::uint64_t address, std::uint32_t length, std::uint32_t key) {
  std::string bytes = raw_control(3);
  put(bytes, 16, address);
  put(bytes, 24, length);
  put(bytes, 28, key);
  return bytes;
}

std::string raw_feature(std::uint16_t opcode, std::uint16_t select, std::uint64_t features) {
  std::string bytes = raw_control(opcode);
  put(bytes, 2, select);
  put(bytes, 24, features);
  return bytes;
}

std::string raw_hello(std::uint32_t flags, std::uint32_t keepalive_ms) {
  std::string bytes("AECN\x01", 5);
  bytes.resize(16);
  put(bytes, 8, flags);
  put(bytes, 12, keepalive_ms);
  return bytes;
}

void RawPeer::post(ibv_send_wr& request, std::string_view bytes) {
  ibv_sge piece{};
  if (!bytes.empty()) {
    if (sends_used_ + bytes.size() > sends_.size) sends_used_ = 0;
    std::memcpy(sends_.data + sends_used_, bytes.data(), bytes.size());
    piece = {reinterpret_cast<std::uintptr_t>(sends_.data + sends_used_),
             static_cast<std::uint32_t>(bytes.size()), sends_.mr->lkey};
    sends_used_ += bytes.size();
    request.sg_list = &piece;
    request.num_sge = 1;
  }
  request.send_flags = IBV_SEND_SIGNALED;
  ibv_send_wr* bad = nullptr;
  if (ibv_post_send(id_->qp, &request, &bad) == 0) ++outstanding_;
}

void RawPeer::send(std::string_view bytes) {
  ibv_send_wr request{};
  request.opcode = IBV_WR_SEND;
  post(request, bytes);
}

void RawPeer::write(std::string_view bytes, std::uint64_t address, std::uint32_t key,
                    std::optional<std::uint32_t> immediate) {
  ibv_send_wr request{};
  request.opcode = immediate ? IBV_WR_RDMA_WRITE_WITH_IMM : IBV_WR_RDMA_WRITE;
  request.imm_data = htonl(immediate.value_or(0));
  request.wr.rdma.remote_addr = address;
  request.wr.rdma.rkey = key;
  post(request, bytes);
}

void RawPeer::read(std::uint32_t size, std::uint64_t address, std::uint32_t key) {
  ibv_send_wr request{};
  request.opcode = IBV_WR_RDMA_READ;
  request.wr.rdma.remote_addr = address;
  request.wr.rdma.rkey = key;
  post(request, std::string(size, '\0'));  // provides the memory for the answer
}

void RawPeer::post_atomic(ibv_wr_opcode opcode, std::uint64_t address, std::uint32_t key) {
  ibv_send_wr request{};
  request.opcode = opcode;
  request.wr.atomic.remote_addr = address;
  request.wr.atomic.rkey = key;
  request.wr.atomic.swap = 1;
  post(request, std::string(8, '\0'));
}

void RawPeer::fetch_and_add(std::uint64_t address, std::uint32_t key) {
  post_atomic(IBV_WR_ATOMIC_FETCH_AND_ADD, address, key);
}

void RawPeer::compare_and_swap(std::uint64_t address, std::uint32_t key) {
  post_atomic(IBV_WR_ATOMIC_CMP_AND_SWP, address, key);
}

void RawPeer::send_with_immediate(std::string_view bytes, std::uint32_t value) {
  ibv_send_wr request{};
  request.opcode = IBV_WR_SEND_WITH_IMM;
  request.imm_data = htonl(value);
  post(request, bytes);
}

void RawPeer::send_and_invalidate(std::string_view bytes, std::uint32_t key) {
  ibv_send_wr request{};
  request.opcode = IBV_WR_SEND_WITH_INV;
  request.invalidate_rkey = key;
  post(request, bytes);
}

void RawPeer::immediate(std::uint32_t value) { write({}, 0, 0, value); }

void RawPeer::stream(std::string_view bytes) {
  pending_ += bytes;
  push();
}

void RawPeer::push() {
  // Pieces small enough that the ring of send memory never overwrites bytes in flight.
  while (!pending_.empty() && !offers.empty() && can_post() && outstanding_ < 16) {
    const std::size_t left = offer().length - offer_used;
    const std::size_t size = std::min({pending_.size(), left, sends_.size / 32});
    if (size == 0) return;
    write(std::string_view(pending_).substr(0, size), offer().address + offer_used, offer().key,
          static_cast<std::uint32_t>(size));
    offer_used += static_cast<std::uint32_t>(size);
    pending_.erase(0, size);
  }
}

void RawPeer::announce() {
  window_used_ = 0;
  const Offer window = own_window();
  send(raw_register(window.address, window.length, window.key));
}

void RawPeer::announce_new(std::uint32_t length) {
  window_ = make_memory(length, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
  announce();
}

RawPeer::Offer RawPeer::own_window() const {
  return {reinterpret_cast<std::uintptr_t>(window_.data), static_cast<std::uint32_t>(window_.size),
          window_.mr->rkey};
}

RawPeer::Offer RawPeer::unwritable_memory() const {
  return {reinterpret_cast<std::uintptr_t>(sends_.data), 65536, sends_.mr->rkey};
}

void RawPeer::answer_features() {
  for (; !unanswered.empty(); unanswered.pop_front()) send(raw_feature(0, unanswered.front(), 0));
}

}  // namespace testing
#endif
