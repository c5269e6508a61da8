// What happens to a work request between ibv_post_send() and its completion: the reliable
// connection of InfiniBand's transport, as far as a program can tell.

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "tests/simulation/objects.h"

namespace simulation {
namespace {

World& world() { return *World::current(); }

// What a responder does with a request.
enum class Answer { kDone, kNoReceive, kTooLong, kNoAccess, kNobody };

QueuePair* find(std::uint32_t number) {
  const auto found = world().queue_pairs.find(number);
  return found == world().queue_pairs.end() ? nullptr : found->second;
}

bool is_send(ibv_wr_opcode opcode) {
  return opcode == IBV_WR_SEND || opcode == IBV_WR_SEND_WITH_IMM;
}
bool has_immediate(ibv_wr_opcode opcode) {
  return opcode == IBV_WR_RDMA_WRITE_WITH_IMM || opcode == IBV_WR_SEND_WITH_IMM;
}

bool inside(std::uint64_t address, std::uint64_t length, std::uint64_t begin, std::uint64_t size) {
  return address >= begin && length <= size && address - begin <= size - length;
}

bool inside(std::uint64_t address, std::uint64_t length, const Region& region) {
  return inside(address, length, reinterpret_cast<std::uintptr_t>(region.addr), region.length);
}

// May what arrives at `qp` do this to that memory with that key?
bool allows(const QueuePair& qp, std::uint64_t address, std::uint64_t length, std::uint32_t key,
            unsigned access) {
  if (const auto found = world().windows.find(key); found != world().windows.end()) {
    const Window& window = *found->second;
    return access == IBV_ACCESS_REMOTE_WRITE && window.bound == &qp && window.region != nullptr &&
           inside(address, length, window.begin, window.length);
  }
  const auto found = world().regions.find(key);
  if (found == world().regions.end() || found->second->pd != qp.pd) return false;
  return (found->second->access & access) != 0 && inside(address, length, *found->second);
}

std::uint64_t retry_delay(int ack_timeout) { return std::uint64_t{4096} << ack_timeout; }

// Codes of ibv_modify_qp(3), in hundredths of a millisecond.
Nanoseconds rnr_delay(int code) {
  static constexpr std::array<int, 32> kHundredths = {
      65536, 1,    2,    3,    4,    6,     8,     12,    16,    24,   32,
      48,    64,   96,   128,  192,  256,   384,   512,   768,   1024, 1536,
      2048,  3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768, 49152};
  return 10us * kHundredths[static_cast<std::size_t>(code & 31)];
}

ibv_wc blank(const QueuePair& qp, std::uint64_t wr_id, ibv_wc_opcode opcode, ibv_wc_status status) {
  ibv_wc completion{};
  completion.wr_id = wr_id;
  completion.status = status;
  completion.opcode = opcode;
  completion.qp_num = qp.qp_num;
  return completion;
}

ibv_wc_opcode completion_opcode(ibv_wr_opcode opcode) {
  if (is_send(opcode)) return IBV_WC_SEND;
  return opcode == IBV_WR_BIND_MW ? IBV_WC_BIND_MW : IBV_WC_RDMA_WRITE;
}

// The front request is over: the queue moves on, and its completion shows it where one was asked
// for or it failed.
void complete_front(QueuePair& qp, ibv_wc_status status) {
  const Request& request = qp.requests.front();
  ++qp.unsignaled;
  if ((request.work.send_flags & IBV_SEND_SIGNALED) != 0 || status != IBV_WC_SUCCESS)
    static_cast<Queue*>(qp.send_cq)
        ->push({blank(qp, request.work.wr_id, completion_opcode(request.work.opcode), status),
                std::exchange(qp.unsignaled, 0u)});
  qp.requests.pop_front();
}

void fail_with(QueuePair& qp, ibv_wc_status status) {
  complete_front(qp, status);
  fail(qp);
}

// --- the responder -------------------------------------------------------------------------------

Answer take_receive(QueuePair& to, const Request& request, const std::byte* bytes) {
  auto* shared = static_cast<SharedReceives*>(to.srq);
  std::deque<Receive>& posted = shared != nullptr ? shared->posted : to.receives;
  if (posted.empty()) return Answer::kNoReceive;
  const Receive receive = posted.front();
  posted.pop_front();
  if (shared != nullptr && shared->limit != 0 && posted.size() < shared->limit) {
    shared->limit = 0;
    ibv_async_event event{};
    event.event_type = IBV_EVENT_SRQ_LIMIT_REACHED;
    event.element.srq = shared;
    static_cast<Handle*>(to.context)->raise(event);
  }
  const ibv_wr_opcode opcode = request.work.opcode;
  const std::uint32_t length = request.piece.length;
  auto& queue = *static_cast<Queue*>(to.recv_cq);
  if (is_send(opcode) && length > receive.length) {
    queue.push({blank(to, receive.wr_id, IBV_WC_RECV, IBV_WC_LOC_LEN_ERR)});
    return Answer::kTooLong;
  }
  if (is_send(opcode) && length != 0)
    std::memcpy(reinterpret_cast<void*>(receive.address), bytes, length);
  ibv_wc completion = blank(
      to, receive.wr_id, is_send(opcode) ? IBV_WC_RECV : IBV_WC_RECV_RDMA_WITH_IMM, IBV_WC_SUCCESS);
  completion.byte_len = length;
  if (has_immediate(opcode)) {
    completion.imm_data = request.work.imm_data;
    completion.wc_flags = IBV_WC_WITH_IMM;
  }
  queue.push({completion});
  return Answer::kDone;
}

bool has_receive(const QueuePair& to) {
  return to.srq != nullptr ? !static_cast<SharedReceives*>(to.srq)->posted.empty()
                           : !to.receives.empty();
}

Answer deliver(QueuePair& from, QueuePair& to, const Request& request, const std::byte* bytes) {
  if (to.state != IBV_QPS_RTR && to.state != IBV_QPS_RTS) return Answer::kNobody;
  if (to.peer != from.qp_num) return Answer::kNobody;
  const ibv_wr_opcode opcode = request.work.opcode;
  if ((is_send(opcode) || has_immediate(opcode)) && !has_receive(to)) return Answer::kNoReceive;
  if (!is_send(opcode) && request.piece.length != 0) {
    const auto& rdma = request.work.wr.rdma;
    const unsigned access =
        opcode == IBV_WR_RDMA_READ ? IBV_ACCESS_REMOTE_READ : IBV_ACCESS_REMOTE_WRITE;
    if (!allows(to, rdma.remote_addr, request.piece.length, rdma.rkey, access))
      return Answer::kNoAccess;
    auto* remote = reinterpret_cast<std::byte*>(rdma.remote_addr);
    if (opcode == IBV_WR_RDMA_READ)
      std::memcpy(reinterpret_cast<void*>(request.piece.addr), remote, request.piece.length);
    else
      std::memcpy(remote, bytes, request.piece.length);
  }
  ++world().messages;
  if (!is_send(opcode) && !has_immediate(opcode)) return Answer::kDone;
  return take_receive(to, request, bytes);
}

// --- the requester -------------------------------------------------------------------------------

void pump(std::uint32_t number);

void pump_after(const QueuePair& qp, Nanoseconds delay) {
  world().after(delay, [number = qp.qp_num] {
    if (QueuePair* found = find(number)) found->pumping = false;
    pump(number);
  });
}

void acknowledge(QueuePair& qp) {
  // Acknowledgements keep the order of the requests.
  qp.last_ack = std::max(qp.last_ack, world().now() + world().data_delay());
  world().after(qp.last_ack - world().now(), [number = qp.qp_num] {
    QueuePair* found = find(number);
    if (found == nullptr || found->requests.empty() || !found->requests.front().delivered) return;
    if (found->state == IBV_QPS_RTS) complete_front(*found, IBV_WC_SUCCESS);
  });
}

ibv_wc_status bind(QueuePair& qp, const Request& request) {
  const auto& wish = request.work.bind_mw;
  auto* window = static_cast<Window*>(wish.mw);
  auto* region = static_cast<Region*>(wish.bind_info.mr);
  if (world().failing("IBV_WR_BIND_MW", EIO) != 0 || region->pd != qp.pd ||
      (region->access & IBV_ACCESS_MW_BIND) == 0 ||
      !inside(wish.bind_info.addr, wish.bind_info.length, *region))
    return IBV_WC_MW_BIND_ERR;
  window->bound = &qp;
  window->region = region;
  window->begin = wish.bind_info.addr;
  window->length = wish.bind_info.length;
  window->rkey = wish.rkey;
  ++qp.bound_windows;
  ++region->windows;
  world().windows[window->rkey] = window;
  return IBV_WC_SUCCESS;
}

const std::byte* bytes_of(const QueuePair& qp, const Request& request, bool& good) {
  good = true;
  if ((request.work.send_flags & IBV_SEND_INLINE) != 0) return request.inlined.data();
  if (request.piece.length == 0) return nullptr;
  const auto found = world().regions.find(request.piece.lkey);
  good = found != world().regions.end() && found->second->pd == qp.pd &&
         inside(request.piece.addr, request.piece.length, *found->second);
  return reinterpret_cast<const std::byte*>(request.piece.addr);
}

// The first request that was not delivered reaches the other side.
void pump(std::uint32_t number) {
  QueuePair* qp = find(number);
  if (qp == nullptr || qp->state != IBV_QPS_RTS || qp->pumping) return;
  const auto next = std::find_if(qp->requests.begin(), qp->requests.end(),
                                 [](const Request& request) { return !request.delivered; });
  if (next == qp->requests.end()) return;
  qp->pumping = true;
  if (next->arrives > world().now()) return pump_after(*qp, next->arrives - world().now());

  if (next->work.opcode == IBV_WR_BIND_MW) {
    const ibv_wc_status status = bind(*qp, *next);
    next->delivered = true;
    if (status != IBV_WC_SUCCESS) return fail_with(*qp, status);
    acknowledge(*qp);
    return pump_after(*qp, 0ns);
  }
  bool good = false;
  const std::byte* bytes = bytes_of(*qp, *next, good);
  if (!good) {
    world().violation("a send names memory that is not registered");
    return fail_with(*qp, IBV_WC_LOC_PROT_ERR);
  }
  QueuePair* to = find(qp->peer);
  const bool reaches = to != nullptr && world().path_open(qp->device_of(), to->device_of());
  const Answer answer = reaches ? deliver(*qp, *to, *next, bytes) : Answer::kNobody;
  switch (answer) {
    case Answer::kDone:
      qp->tries = 0;
      next->delivered = true;
      acknowledge(*qp);
      return pump_after(*qp, 0ns);
    case Answer::kNobody:
      // Retried until the count is used up; 0 turns the timer off.
      if (qp->tries++ < qp->retry_count)
        return pump_after(*qp, Nanoseconds(retry_delay(qp->ack_timeout)));
      return fail_with(*qp, IBV_WC_RETRY_EXC_ERR);
    case Answer::kNoReceive:
      ++world().receives_missing;
      if (qp->rnr_retry == 7 || qp->tries++ < qp->rnr_retry)
        return pump_after(*qp, rnr_delay(to->rnr_timer));
      return fail_with(*qp, IBV_WC_RNR_RETRY_EXC_ERR);
    case Answer::kTooLong:
      fail(*to);
      return fail_with(*qp, IBV_WC_REM_INV_REQ_ERR);
    case Answer::kNoAccess:
      fail(*to);
      return fail_with(*qp, IBV_WC_REM_ACCESS_ERR);
  }
}

}  // namespace

void send(QueuePair& qp, Request request) {
  qp.last_arrival = std::max(qp.last_arrival, world().now() + world().data_delay());
  request.arrives = qp.last_arrival;
  qp.requests.push_back(std::move(request));
  if (qp.state == IBV_QPS_ERR) return complete_front(qp, IBV_WC_WR_FLUSH_ERR);
  pump(qp.qp_num);
}

void fail(QueuePair& qp) {
  if (qp.state == IBV_QPS_ERR) return;
  qp.state = IBV_QPS_ERR;
  while (!qp.requests.empty()) {
    // Earlier ones were acknowledged, only the news of it had not come.
    complete_front(qp, IBV_WC_WR_FLUSH_ERR);
  }
  for (const Receive& receive : std::exchange(qp.receives, {}))
    static_cast<Queue*>(qp.recv_cq)
        ->push({blank(qp, receive.wr_id, IBV_WC_RECV, IBV_WC_WR_FLUSH_ERR)});
  if (qp.srq == nullptr) return;
  ibv_async_event event{};
  event.event_type = IBV_EVENT_QP_LAST_WQE_REACHED;
  event.element.qp = &qp;
  static_cast<Handle*>(qp.context)->raise(event);
}

}  // namespace simulation
