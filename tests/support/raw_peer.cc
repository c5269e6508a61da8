// SPDX-License-Identifier: BSD-3-Clause
#if AECONN_RDMA
#include "tests/support/raw_peer.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <span>
#include <stdexcept>
#include <utility>

#include "conn/kit/resolver.h"

namespace testing {
namespace {

constexpr std::size_t kReceiveSize = 32;
constexpr std::size_t kSendMemory = 4 << 20;

void check(bool good, const char* what) {
  if (!good)
    throw std::runtime_error(std::string("raw peer: ") + what + ": " + std::strerror(errno));
}

std::uint64_t get(std::string_view from, std::size_t at, std::size_t size) {
  std::uint64_t value = 0;
  for (std::size_t i = 0; i < size; ++i)
    value = value << 8 | static_cast<unsigned char>(from[at + i]);
  return value;
}

void set_nonblocking(int fd) { check(fcntl(fd, F_SETFL, O_NONBLOCK) == 0, "fcntl"); }

conn::SocketAddress numeric(const std::string& host, std::uint16_t port) {
  conn::SocketAddress address;
  check(conn::numeric_address(host, port, address), "not an address");
  return address;
}

}  // namespace

// --- set-up and end ------------------------------------------------------------------------------

RawPeer::RawPeer(RawNet& net, RawOptions options) : net_(net), options_(std::move(options)) {}

RawPeer::~RawPeer() {
  stop_polling();
  if (id_ != nullptr) {
    if (established && !over()) rdma_disconnect(id_);
    if (id_->qp != nullptr) rdma_destroy_qp(id_);
  }
  if (cq_ != nullptr) ibv_destroy_cq(cq_);
  if (channel_ != nullptr) ibv_destroy_comp_channel(channel_);
  for (const Memory& memory : memory_) {
    ibv_dereg_mr(memory.mr);
    munmap(memory.data, memory.size);
  }
  if (pd_ != nullptr) ibv_dealloc_pd(pd_);
  if (id_ != nullptr) rdma_destroy_id(id_);
}

RawPeer::Memory RawPeer::make_memory(std::size_t size, int access) {
  Memory memory;
  memory.size = size;
  void* at = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  check(at != MAP_FAILED, "mmap");
  memory.data = static_cast<std::byte*>(at);
  memory.mr = ibv_reg_mr(pd_, memory.data, size, access);
  check(memory.mr != nullptr, "ibv_reg_mr");
  memory_.push_back(memory);
  return memory;
}

void RawPeer::resolve(const std::string& host, std::uint16_t port) {
  check(rdma_create_id(net_.channel_, &id_, this, RDMA_PS_TCP) == 0, "rdma_create_id");
  conn::SocketAddress to = numeric(host, port), from;
  if (!options_.source.empty()) from = numeric(options_.source, 0);
  check(rdma_resolve_addr(id_, from.size != 0 ? from.get() : nullptr, to.get(), 2000) == 0,
        "rdma_resolve_addr");
}

void RawPeer::make_queue_pair() {
  check((pd_ = ibv_alloc_pd(id_->verbs)) != nullptr, "ibv_alloc_pd");
  check((channel_ = ibv_create_comp_channel(id_->verbs)) != nullptr, "ibv_create_comp_channel");
  set_nonblocking(channel_->fd);
  const int entries = static_cast<int>(kSends + options_.receives);
  check((cq_ = ibv_create_cq(id_->verbs, entries, nullptr, channel_, 0)) != nullptr,
        "ibv_create_cq");
  ibv_qp_init_attr attributes{};
  attributes.send_cq = attributes.recv_cq = cq_;
  attributes.qp_type = IBV_QPT_RC;
  attributes.cap = {kSends, std::max(options_.receives, 1u), 1, 1, 64};
  check(rdma_create_qp(id_, pd_, &attributes) == 0, "rdma_create_qp");
  constexpr int kWritable = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;
  receives_ = make_memory(std::max(options_.receives, 1u) * kReceiveSize, IBV_ACCESS_LOCAL_WRITE);
  sends_ = make_memory(kSendMemory, IBV_ACCESS_LOCAL_WRITE);
  window_ = make_memory(options_.window, kWritable);
  for (unsigned slot = 0; slot < options_.receives; ++slot) post_receive(slot);
  poll_again();
}

void RawPeer::accept(rdma_cm_id* id) {
  server_ = true;
  id_ = id;
  id_->context = this;
  make_queue_pair();
  rdma_conn_param parameters{};
  parameters.responder_resources = parameters.initiator_depth = 1;
  parameters.retry_count = 5;
  parameters.rnr_retry_count = options_.rnr_retry;
  parameters.private_data = options_.private_data.data();
  parameters.private_data_len = static_cast<std::uint8_t>(options_.private_data.size());
  check(rdma_accept(id_, &parameters) == 0, "rdma_accept");
}

void RawPeer::on_event(const rdma_cm_event& event) {
  if (event.param.conn.private_data != nullptr &&
      (event.event == RDMA_CM_EVENT_ESTABLISHED || event.event == RDMA_CM_EVENT_REJECTED))
    private_data.assign(static_cast<const char*>(event.param.conn.private_data),
                        event.param.conn.private_data_len);
  switch (event.event) {
    case RDMA_CM_EVENT_ADDR_RESOLVED:
      check(rdma_resolve_route(id_, 2000) == 0, "rdma_resolve_route");
      return;
    case RDMA_CM_EVENT_ROUTE_RESOLVED: {
      rdma_conn_param parameters{};
      // Without a queue pair the number is a unique dummy, and no "ready to use" message is sent.
      static std::uint32_t number = 0x700000;
      parameters.qp_num = ++number;
      if (options_.completes) make_queue_pair();
      if (options_.at_request) options_.private_data = options_.at_request(*this);
      parameters.responder_resources = parameters.initiator_depth = 1;
      parameters.retry_count = 6;
      parameters.rnr_retry_count = options_.rnr_retry;
      parameters.private_data = options_.private_data.data();
      parameters.private_data_len = static_cast<std::uint8_t>(options_.private_data.size());
      check(rdma_connect(id_, &parameters) == 0, "rdma_connect");
      requested = true;
      return;
    }
    case RDMA_CM_EVENT_CONNECT_RESPONSE:
      answered = true;
      return;
    case RDMA_CM_EVENT_ESTABLISHED:
      return on_established();
    case RDMA_CM_EVENT_DISCONNECTED:
      disconnected = true;
      rdma_disconnect(id_);
      return;
    case RDMA_CM_EVENT_REJECTED:
      reject_status = event.status;
      failed = true;
      return;
    case RDMA_CM_EVENT_TIMEWAIT_EXIT:
      return;
    default:
      failed = true;
  }
}

void RawPeer::on_established() {
  established = true;
  if (id_->qp == nullptr) return;  // dropped: the other side's first message came earlier
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_RTS;
  attributes.min_rnr_timer = 12;
  ibv_modify_qp(id_->qp, &attributes, IBV_QP_STATE | IBV_QP_MIN_RNR_TIMER);
  if (options_.announce) announce();
  push();
  if (options_.at_established) options_.at_established(*this);
}

void RawPeer::disconnect() { rdma_disconnect(id_); }

void RawPeer::drop_queue_pair() {
  stop_polling();
  rdma_destroy_qp(id_);
  outstanding_ = kSends;  // nothing more can be posted
  pending_.clear();
}

void RawPeer::reject() { check(rdma_reject(id_, "no", 2) == 0, "rdma_reject"); }

int RawPeer::port() const { return ntohs(rdma_get_src_port(id_)); }

// --- receiving -----------------------------------------------------------------------------------

void RawPeer::post_receive(unsigned slot) {
  ibv_sge piece{reinterpret_cast<std::uintptr_t>(receives_.data + slot * kReceiveSize),
                kReceiveSize, receives_.mr->lkey};
  ibv_recv_wr request{};
  request.wr_id = std::uint64_t{1} << 63 | slot;
  request.sg_list = &piece;
  request.num_sge = 1;
  ibv_recv_wr* bad = nullptr;
  ibv_post_recv(id_->qp, &request, &bad);
}

void RawPeer::post_receives(unsigned count) {
  for (; count != 0 && !spare_receives_.empty(); --count) {
    post_receive(spare_receives_.back());
    spare_receives_.pop_back();
  }
}

void RawPeer::stop_polling() {
  if (!std::exchange(polls_, false)) return;
  net_.loop_.remove_file_event(channel_->fd, ae::kReadable);
}

void RawPeer::poll_again() {
  if (std::exchange(polls_, true)) return;
  net_.loop_.add_file_event(channel_->fd, ae::kReadable,
                            [this](int, ae::Mask) { take_completions(); });
  take_completions();
}

void RawPeer::take_completions() {
  ibv_cq* cq = nullptr;
  void* unused = nullptr;
  while (ibv_get_cq_event(channel_, &cq, &unused) == 0) ibv_ack_cq_events(cq_, 1);
  drain();
  ibv_req_notify_cq(cq_, 0);
  drain();
}

void RawPeer::drain() {
  std::array<ibv_wc, 64> batch;
  for (int count; (count = ibv_poll_cq(cq_, static_cast<int>(batch.size()), batch.data())) > 0;) {
    for (const ibv_wc& wc : std::span(batch).first(static_cast<std::size_t>(count))) {
      const bool receive = wc.wr_id >> 63 != 0;
      if (!receive) --outstanding_;
      if (wc.status != IBV_WC_SUCCESS)
        errors.push_back(wc.status);
      else if (receive)
        on_receive(wc);
    }
    push();
  }
}

void RawPeer::on_receive(const ibv_wc& wc) {
  const auto slot = static_cast<unsigned>(wc.wr_id);
  ++messages;
  std::string copy;
  const bool message = wc.opcode == IBV_WC_RECV && (wc.wc_flags & IBV_WC_WITH_IMM) == 0;
  if (message)
    copy.assign(reinterpret_cast<const char*>(receives_.data + slot * kReceiveSize), wc.byte_len);
  if (options_.reposts)
    post_receive(slot);
  else
    spare_receives_.push_back(slot);
  if (message) return on_message(copy);
  const std::uint32_t length = ntohl(wc.imm_data);
  immediates.push_back(length);
  if (length > window_.size - window_used_) {
    overrun = true;
    return;
  }
  received.append(reinterpret_cast<const char*>(window_.data) + window_used_, length);
  window_used_ += length;
  if (window_used_ == window_.size && options_.announce) {
    ++renewals;
    announce();
  }
}

void RawPeer::on_message(std::string_view bytes) {
  if (bytes.size() != 32) {
    errors.push_back(IBV_WC_LOC_LEN_ERR);
    return;
  }
  switch (get(bytes, 0, 2)) {
    case 0: {
      const auto select = static_cast<std::uint16_t>(get(bytes, 2, 2));
      if (!server_) return answers.emplace_back(select, get(bytes, 24, 8)), void();
      unanswered.push_back(select);
      if (options_.answers_features) answer_features();
      return;
    }
    case 1:
      ++set_features;
      return;
    case 2:
      ++keepalives;
      return;
    case 3:
      offers.push_back({get(bytes, 16, 8), static_cast<std::uint32_t>(get(bytes, 24, 4)),
                        static_cast<std::uint32_t>(get(bytes, 28, 4))});
      offer_used = 0;
      return;
    default:
      errors.push_back(IBV_WC_GENERAL_ERR);
  }
}

// --- RawNet --------------------------------------------------------------------------------------

RawNet::RawNet(ae::EventLoop& loop) : loop_(loop), channel_(rdma_create_event_channel()) {
  check(channel_ != nullptr, "rdma_create_event_channel");
  set_nonblocking(channel_->fd);
  loop_.add_file_event(channel_->fd, ae::kReadable, [this](int, ae::Mask) { on_readable(); });
}

RawNet::~RawNet() {
  accepted.clear();
  for (rdma_cm_id* id : ignored_) rdma_destroy_id(id);
  if (listener_ != nullptr) rdma_destroy_id(listener_);
  loop_.remove_file_event(channel_->fd, ae::kReadable);
  rdma_destroy_event_channel(channel_);
}

std::unique_ptr<RawPeer> RawNet::connect(const conn::Endpoint& to, RawOptions options) {
  auto peer = std::make_unique<RawPeer>(*this, std::move(options));
  peer->resolve(to.hosts.front().name, to.port);
  return peer;
}

conn::Endpoint RawNet::listen(RawOptions options, Answer answer, std::uint16_t port) {
  accept_options_ = std::move(options);
  answer_ = answer;
  const std::string host = std::getenv("AECONN_RDMA_ADDRESS");
  check(rdma_create_id(channel_, &listener_, nullptr, RDMA_PS_TCP) == 0, "rdma_create_id");
  conn::SocketAddress here = numeric(host, port);
  check(rdma_bind_addr(listener_, here.get()) == 0, "rdma_bind_addr");
  check(rdma_listen(listener_, 1024) == 0, "rdma_listen");
  return conn::Endpoint::parse("rdma://" + host + ":" +
                               std::to_string(ntohs(rdma_get_src_port(listener_))));
}

void RawNet::on_readable() {
  rdma_cm_event* event = nullptr;
  while (rdma_get_cm_event(channel_, &event) == 0) {
    rdma_cm_event copy = *event;
    std::string data;
    if (copy.event == RDMA_CM_EVENT_CONNECT_REQUEST || copy.event == RDMA_CM_EVENT_REJECTED ||
        copy.event == RDMA_CM_EVENT_ESTABLISHED) {
      if (copy.param.conn.private_data != nullptr)
        data.assign(static_cast<const char*>(copy.param.conn.private_data),
                    copy.param.conn.private_data_len);
    }
    copy.param.conn.private_data = data.empty() ? nullptr : data.data();
    rdma_ack_cm_event(event);
    if (copy.event == RDMA_CM_EVENT_CONNECT_REQUEST) {
      ++requests;
      request_data = data;
      if (answer_ == Answer::kIgnore) {
        copy.id->context = nullptr;
        ignored_.push_back(copy.id);
      } else if (answer_ == Answer::kReject) {
        const std::string& why = accept_options_.private_data;
        rdma_reject(copy.id, why.data(), static_cast<std::uint8_t>(why.size()));
        rdma_destroy_id(copy.id);
      } else if (answer_ == Answer::kVanish) {
        rdma_destroy_id(copy.id);
      } else {
        accepted.push_back(std::make_unique<RawPeer>(*this, accept_options_));
        accepted.back()->accept(copy.id);
      }
      continue;
    }
    if (copy.id != nullptr && copy.id->context != nullptr)
      static_cast<RawPeer*>(copy.id->context)->on_event(copy);
  }
}

}  // namespace testing
#endif
