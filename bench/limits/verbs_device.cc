// SPDX-License-Identifier: BSD-3-Clause
#include "verbs_device.h"

#include <fcntl.h>
#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <system_error>

namespace limits {
namespace {

int completions_of(ibv_context* context) {
  ibv_device_attr attributes{};
  if (ibv_query_device(context, &attributes) != 0) fail("ibv_query_device");
  return std::min(attributes.max_cqe, 16384);
}

ibv_srq* create_srq(ibv_pd* pd, std::uint32_t receives) {
  ibv_srq_init_attr attributes{};
  attributes.attr.max_wr = receives;
  attributes.attr.max_sge = 1;
  return made(ibv_create_srq(pd, &attributes), "ibv_create_srq");
}

}  // namespace

void fail(const char* what) { throw std::system_error(errno, std::generic_category(), what); }

Memory::Memory(ibv_pd* pd, std::size_t size, int access)
    : size_(size),
      data_(static_cast<std::byte*>(
          ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0))) {
  if (data_ == MAP_FAILED) fail("mmap");
  mr_.reset(ibv_reg_mr(pd, data_, size, access));
  if (!mr_) {
    ::munmap(data_, size_);
    fail("ibv_reg_mr");
  }
}

Memory::~Memory() {
  mr_.reset();
  ::munmap(data_, size_);
}

Device::Device(ibv_context* context)
    : pd_(made(ibv_alloc_pd(context), "ibv_alloc_pd")),
      channel_(made(ibv_create_comp_channel(context), "ibv_create_comp_channel")),
      cq_(made(ibv_create_cq(context, completions_of(context), nullptr, channel_.get(), 0),
               "ibv_create_cq")),
      srq_(create_srq(pd_.get(), kReceives)),
      receives_(pd_.get(), kReceives * kReceiveSize, IBV_ACCESS_LOCAL_WRITE) {
  if (::fcntl(fd(), F_SETFL, O_NONBLOCK) != 0) fail("fcntl");
  for (std::uint64_t i = 0; i < kReceives; ++i) give_back(i);
}

Device::~Device() {
  if (events_ > 0) ibv_ack_cq_events(cq_.get(), events_);
}

bool Device::arm() {
  if (armed_) return false;
  if (ibv_req_notify_cq(cq_.get(), 0) != 0) fail("ibv_req_notify_cq");
  return armed_ = true;
}

void Device::take_event() {
  ibv_cq* cq = nullptr;
  void* context = nullptr;
  if (ibv_get_cq_event(channel_.get(), &cq, &context) != 0) return;
  armed_ = false;
  if (++events_ < 128) return;
  ibv_ack_cq_events(cq_.get(), events_);
  events_ = 0;
}

void Device::give_back(std::uint64_t receive) {
  unposted_[unposted_size_++] = receive;
  if (unposted_size_ == unposted_.size()) post_receives();
}

void Device::post_receives() {
  std::array<ibv_recv_wr, 64> requests;
  std::array<ibv_sge, 64> pieces;
  for (std::size_t i = 0; i < unposted_size_; ++i) {
    pieces[i] = {reinterpret_cast<std::uintptr_t>(received(unposted_[i]).data()), kReceiveSize,
                 receives_.lkey()};
    requests[i] = {unposted_[i], &requests[i + 1], &pieces[i], 1};
  }
  requests[unposted_size_ - 1].next = nullptr;
  ibv_recv_wr* bad = nullptr;
  if (ibv_post_srq_recv(srq_.get(), requests.data(), &bad) != 0) fail("ibv_post_srq_recv");
  unposted_size_ = 0;
}

}  // namespace limits
