// SPDX-License-Identifier: BSD-3-Clause
// The life of a work request between ibv_post_send() and its completion: InfiniBand's reliable
// connection transport, as far as a program can observe it.

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "tests/simulation/objects.h"

namespace simulation {
namespace {

World& world() { return *World::current(); }

// The responder's reaction to a request.
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

// Whether a request that arrives at `qp` may access that memory with that key.
bool allows(const QueuePair& qp, std::uint64_t address, std::uint64_t length, std::uint32_t key,
            unsigned access) {
  if (const auto found = world().windows.find(key); found != world().windows.end()) {
    const Window& window = *found->second;
    if (access != IBV_ACCESS_REMOTE_WRITE || window.bound != &qp || window.region == nullptr)
      return false;
    if (!qp.device_of().profile.binds_parts) return inside(address, length, *window.region);
    return inside(address, length, window.begin, window.length);
  }
  const auto found = world().regions.find(key);
  if (found == world().regions.end() || found->second->pd != qp.pd) return false;
  return (found->second->access & access) != 0 && inside(address, length, *found->second);
}

std::uint64_t retry_delay(int ack_timeout) { return std::uint64_t{4096} << ack_timeout; }

// Timer codes of ibv_modify_qp(3), in hundredths of a millisecond.
Nanoseconds rnr_delay(int code) {
  static constexpr std::array<int, 32> kHundredths = {
      65536, 1,    2,    3,    4,    6,     8,     12,    16,    24,   32,
      48,    64,   96,   128,  192,  256,   384,   512,   768,   1024, 1536,
      2048,  3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768, 49152};
  return 10us * kHundredths[static_cast<std::size_t>(code & 31)];
}

Completion blank(const QueuePair& qp, std::uint64_t wr_id, ibv_wc_opcode opcode,
                 ibv_wc_status status) {
  Completion entry{};
  entry.wc.wr_id = wr_id;
  entry.wc.status = status;
  entry.wc.opcode = opcode;
  entry.wc.qp_num = qp.qp_num;
  entry.owner = qp.serial;
  return entry;
}

ibv_wc_opcode completion_opcode(ibv_wr_opcode opcode) {
  if (is_send(opcode)) return IBV_WC_SEND;
  if (opcode == IBV_WR_LOCAL_INV) return IBV_WC_LOCAL_INV;
  return opcode == IBV_WR_BIND_MW ? IBV_WC_BIND_MW : IBV_WC_RDMA_WRITE;
}

// Ends the request: the queue moves on, and a completion is queued if one was requested or the
// request failed.
void complete(QueuePair& qp, Request& request, ibv_wc_status status) {
  request.completed = true;
  ++qp.unsignaled;
  if ((request.work.send_flags & IBV_SEND_SIGNALED) == 0 && status == IBV_WC_SUCCESS) return;
  Completion entry = blank(qp, request.work.wr_id, completion_opcode(request.work.opcode), status);
  entry.frees = std::exchange(qp.unsignaled, 0u);
  static_cast<Queue*>(qp.send_cq)->push(entry);
}

void complete_front(QueuePair& qp, ibv_wc_status status) {
  complete(qp, qp.requests.front(), status);
  qp.requests.pop_front();
}

void fail_with(QueuePair& qp, ibv_wc_status status) {
  if (qp.requests.front().completed)  // a stream has completed it already
    qp.requests.pop_front();
  else
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
  const std::uint32_t length = request.length;
  const bool too_long = is_send(opcode) && length > receive.length;
  Completion entry =
      blank(to, receive.wr_id, is_send(opcode) ? IBV_WC_RECV : IBV_WC_RECV_RDMA_WITH_IMM,
            too_long ? IBV_WC_LOC_LEN_ERR : IBV_WC_SUCCESS);
  // With other profiles the slot is free as soon as the receive is used.
  if (to.device_of().profile.leftovers != Leftovers::kStay) entry.shared = shared;
  if (!too_long && is_send(opcode) && length != 0)
    std::memcpy(reinterpret_cast<void*>(receive.address), bytes, length);
  entry.wc.byte_len = length;
  if (to.device_of().profile.immediate_is_plain) entry.wc.opcode = IBV_WC_RECV;
  if (has_immediate(opcode)) {
    entry.wc.imm_data = request.work.imm_data;
    entry.wc.wc_flags = IBV_WC_WITH_IMM;
  }
  static_cast<Queue*>(to.recv_cq)->push(entry);
  return too_long ? Answer::kTooLong : Answer::kDone;
}

bool has_receive(const QueuePair& to) {
  return to.srq != nullptr ? !static_cast<SharedReceives*>(to.srq)->posted.empty()
                           : !to.receives.empty();
}

// Packets that exceed the network's MTU are lost; packets of a length that the other end does not
// expect are refused.
Answer fits_path(const QueuePair& from, const QueuePair& to, const Request& request) {
  if (from.device_of().profile.iwarp) return Answer::kDone;
  const auto bytes = [](ibv_mtu mtu) { return 128u << static_cast<unsigned>(mtu); };
  const ibv_mtu network = std::min(from.device_of().active_mtu, to.device_of().active_mtu);
  if (std::min(request.length, bytes(from.path_mtu)) > bytes(network)) return Answer::kNobody;
  const bool differ = from.path_mtu != to.path_mtu;
  return differ && request.length > bytes(std::min(from.path_mtu, to.path_mtu)) ? Answer::kTooLong
                                                                                : Answer::kDone;
}

Answer deliver(QueuePair& from, QueuePair& to, const Request& request, const std::byte* bytes) {
  if (to.actual != IBV_QPS_RTR && to.actual != IBV_QPS_RTS) return Answer::kNobody;
  if (to.peer != from.qp_num) return Answer::kNobody;
  if (const Answer answer = fits_path(from, to, request); answer != Answer::kDone) return answer;
  const ibv_wr_opcode opcode = request.work.opcode;
  if ((is_send(opcode) || has_immediate(opcode)) && !has_receive(to)) return Answer::kNoReceive;
  if (!is_send(opcode) && request.length != 0) {
    const auto& rdma = request.work.wr.rdma;
    const unsigned access =
        opcode == IBV_WR_RDMA_READ ? IBV_ACCESS_REMOTE_READ : IBV_ACCESS_REMOTE_WRITE;
    if (!allows(to, rdma.remote_addr, request.length, rdma.rkey, access)) return Answer::kNoAccess;
    auto* remote = reinterpret_cast<std::byte*>(rdma.remote_addr);
    if (opcode == IBV_WR_RDMA_READ)
      std::memcpy(reinterpret_cast<void*>(request.pieces.front().addr), remote, request.length);
    else
      std::memcpy(remote, bytes, request.length);
  }
  ++world().messages;
  to.heard = true;
  if (!is_send(opcode) && !has_immediate(opcode)) return Answer::kDone;
  return take_receive(to, request, bytes);
}

// --- the requester -------------------------------------------------------------------------------

bool is_stream(const QueuePair& qp) { return qp.device_of().profile.stream; }

void pump(std::uint32_t number);

void pump_after(const QueuePair& qp, Nanoseconds delay) {
  world().after(delay, [number = qp.qp_num, serial = qp.serial] {
    QueuePair* found = find(number);
    if (found == nullptr || found->serial != serial) return;
    found->pumping = false;
    pump(number);
  });
}

void acknowledge(QueuePair& qp) {
  // Acknowledgements keep the order of the requests.
  qp.last_ack = std::max(qp.last_ack, world().now() + world().data_delay());
  world().after(qp.last_ack - world().now(), [number = qp.qp_num, serial = qp.serial] {
    QueuePair* found = find(number);
    if (found == nullptr || found->serial != serial || found->requests.empty()) return;
    if (found->actual == IBV_QPS_RTS && found->requests.front().delivered)
      complete_front(*found, IBV_WC_SUCCESS);
  });
}

ibv_wc_status bind(QueuePair& qp, const Request& request) {
  const auto& wish = request.work.bind_mw;
  auto* window = static_cast<Window*>(wish.mw);
  auto* region = static_cast<Region*>(wish.bind_info.mr);
  if (const int status = qp.device_of().profile.bind_status; status != 0)
    return static_cast<ibv_wc_status>(status);
  // A bound window must be invalidated before the next bind, and must be named by its current key.
  if (world().failing("IBV_WR_BIND_MW", EIO) != 0 || region->pd != qp.pd ||
      window->region != nullptr || request.window_key != window->key ||
      (region->access & IBV_ACCESS_MW_BIND) == 0 ||
      !inside(wish.bind_info.addr, wish.bind_info.length, *region))
    return IBV_WC_MW_BIND_ERR;
  window->bound = &qp;
  window->region = region;
  window->begin = wish.bind_info.addr;
  window->length = wish.bind_info.length;
  window->key = (window->key & ~0xffu) | (wish.rkey & 0xffu);
  qp.windows.push_back(window);
  ++region->windows;
  world().windows[window->key] = window;
  return IBV_WC_SUCCESS;
}

ibv_wc_status invalidate(const QueuePair& qp, const Request& request) {
  const auto found = world().windows.find(request.work.invalidate_rkey);
  if (world().failing("IBV_WR_LOCAL_INV", EIO) != 0 || found == world().windows.end() ||
      found->second->bound != &qp)
    return IBV_WC_MW_BIND_ERR;
  unbind(*found->second);
  return IBV_WC_SUCCESS;
}

const std::byte* bytes_of(const QueuePair& qp, Request& request, bool& good) {
  good = true;
  if ((request.work.send_flags & IBV_SEND_INLINE) != 0 || !request.inlined.empty())
    return request.inlined.data();
  if (request.length == 0) return nullptr;
  good = std::all_of(request.pieces.begin(), request.pieces.end(), [&](const ibv_sge& piece) {
    const auto found = world().regions.find(piece.lkey);
    return found != world().regions.end() && found->second->pd == qp.pd &&
           inside(piece.addr, piece.length, *found->second);
  });
  if (request.pieces.size() == 1)
    return reinterpret_cast<const std::byte*>(request.pieces.front().addr);
  if (good) request.gathered = gather(request);
  return request.gathered.data();
}

// --- over a byte stream --------------------------------------------------------------------------

// How long a stream retransmits (Linux: 15 times).
constexpr Nanoseconds kStreamGivesUp = 900s;

// The stream has taken the bytes: for the program the request is complete, whether they arrive or
// not.
void hand_over(QueuePair& qp, Request& request) {
  bool good = false;
  const bool reads = request.work.opcode == IBV_WR_RDMA_READ;
  const std::byte* bytes = bytes_of(qp, request, good);
  if (!good) return;  // the delivery reports the error
  if (!reads && request.inlined.empty() && request.length != 0)
    request.inlined.assign(bytes, bytes + request.length);
  qp.last_ack = std::max(qp.last_ack, world().now() + 1us);
  world().after(qp.last_ack - world().now(), [number = qp.qp_num, serial = qp.serial] {
    QueuePair* found = find(number);
    if (found == nullptr || found->serial != serial || found->actual != IBV_QPS_RTS) return;
    for (Request& each : found->requests)
      if (!each.completed) {
        complete(*found, each, IBV_WC_SUCCESS);
        break;
      }
    while (!found->requests.empty() && found->requests.front().completed &&
           found->requests.front().delivered)
      found->requests.pop_front();
  });
}

void delivered_on_stream(QueuePair& qp) {
  while (!qp.requests.empty() && qp.requests.front().completed && qp.requests.front().delivered)
    qp.requests.pop_front();
}

// --- both ----------------------------------------------------------------------------------------

void nobody_answers(QueuePair& qp, const QueuePair* to) {
  const bool soon = to != nullptr && to->actual != IBV_QPS_ERR && to->peer == 0;
  if (soon && qp.device_of().profile.iwarp) return pump_after(qp, 100us);  // behind its answer
  if (is_stream(qp)) {
    if (qp.silent_since < 0ns) qp.silent_since = world().now();
    if (world().now() - qp.silent_since > kStreamGivesUp) return fail(qp);
    return pump_after(qp, 50ms);
  }
  // Retried until the count is used up; time-out 0 turns the timer off.
  const bool for_ever = qp.retry_count == 7 && qp.device_of().profile.seven_is_for_ever;
  if (for_ever || qp.tries++ < qp.retry_count)
    return pump_after(qp, Nanoseconds(retry_delay(qp.ack_timeout)));
  fail_with(qp, IBV_WC_RETRY_EXC_ERR);
}

void no_receive(QueuePair& qp, QueuePair& to) {
  ++world().receives_missing;
  if (is_stream(qp)) return fail(to);  // its end also ends the stream
  if (qp.rnr_retry == 7 || qp.tries++ < qp.rnr_retry)
    return pump_after(qp, rnr_delay(to.rnr_timer));
  fail_with(qp, IBV_WC_RNR_RETRY_EXC_ERR);
}

void refused(QueuePair& qp, QueuePair& to, ibv_wc_status status) {
  if (const int type = to.device_of().profile.refusal_event; type != 0) {
    ibv_async_event event{};
    event.event_type = static_cast<ibv_event_type>(type);
    event.element.qp = &to;
    static_cast<Handle*>(to.context)->raise(event);
  }
  fail(to);
  if (!is_stream(qp)) fail_with(qp, status);
}

// Delivers the first undelivered request to the other side.
void pump(std::uint32_t number) {
  QueuePair* qp = find(number);
  if (qp == nullptr || qp->actual != IBV_QPS_RTS || qp->stuck || qp->pumping) return;
  const auto next = std::find_if(qp->requests.begin(), qp->requests.end(),
                                 [](const Request& request) { return !request.delivered; });
  if (next == qp->requests.end()) return;
  qp->pumping = true;
  if (next->arrives > world().now()) return pump_after(*qp, next->arrives - world().now());

  const ibv_wr_opcode opcode = next->work.opcode;
  if (opcode == IBV_WR_BIND_MW || opcode == IBV_WR_LOCAL_INV) {
    const ibv_wc_status status =
        opcode == IBV_WR_BIND_MW ? bind(*qp, *next) : invalidate(*qp, *next);
    if (status != IBV_WC_SUCCESS) {
      // Everything before it has been carried out, although not yet reported.
      while (&qp->requests.front() != &*next) complete_front(*qp, IBV_WC_SUCCESS);
      return fail_with(*qp, status);
    }
    next->delivered = true;
    acknowledge(*qp);
    return pump_after(*qp, 0ns);
  }
  if (!qp->device_of().has_route) return fail_with(*qp, IBV_WC_LOC_QP_OP_ERR);
  bool good = false;
  const std::byte* bytes = bytes_of(*qp, *next, good);
  if (!good) {
    world().violation("a send names memory that is not registered");
    return fail_with(*qp, IBV_WC_LOC_PROT_ERR);
  }
  QueuePair* to = find(qp->peer);
  const bool reaches = to != nullptr && world().path_open(qp->device_of(), to->device_of());
  switch (reaches ? deliver(*qp, *to, *next, bytes) : Answer::kNobody) {
    case Answer::kDone:
      qp->tries = 0;
      qp->silent_since = Nanoseconds(-1);
      next->delivered = true;
      if (is_stream(*qp))
        delivered_on_stream(*qp);
      else
        acknowledge(*qp);
      return pump_after(*qp, 0ns);
    case Answer::kNobody:
      return nobody_answers(*qp, reaches ? to : nullptr);
    case Answer::kNoReceive:
      return no_receive(*qp, *to);
    case Answer::kTooLong:
      return refused(*qp, *to, IBV_WC_REM_INV_REQ_ERR);
    case Answer::kNoAccess:
      return refused(*qp, *to, IBV_WC_REM_ACCESS_ERR);
  }
}

// When the request's last byte leaves the device, behind everything sent before.
Nanoseconds on_the_wire(Device& device, const Request& request) {
  const double rate = world().config.weather.bytes_per_second;
  if (rate == 0) return world().now();
  const std::chrono::duration<double> takes(request.length / rate);
  device.line_free =
      std::max(device.line_free, world().now()) + std::chrono::duration_cast<Nanoseconds>(takes);
  return device.line_free;
}

}  // namespace

std::vector<std::byte> gather(const Request& request) {
  std::vector<std::byte> bytes;
  bytes.reserve(request.length);
  for (const ibv_sge& piece : request.pieces) {
    const auto* from = reinterpret_cast<const std::byte*>(piece.addr);
    bytes.insert(bytes.end(), from, from + piece.length);
  }
  return bytes;
}

void send(QueuePair& qp, Request request) {
  const bool behind = world().config.weather.in_step && world().now() - qp.last_post < 1us;
  qp.last_post = world().now();
  const Nanoseconds arrival = on_the_wire(qp.device_of(), request) + world().data_delay();
  qp.last_arrival = behind && world().config.weather.bytes_per_second == 0
                        ? std::max(qp.last_arrival + 50ns, world().now())
                        : std::max(qp.last_arrival, arrival);
  request.arrives = qp.last_arrival;
  qp.requests.push_back(std::move(request));
  if (qp.actual == IBV_QPS_ERR) return complete_front(qp, IBV_WC_WR_FLUSH_ERR);
  if (qp.actual == IBV_QPS_RTS && is_stream(qp)) hand_over(qp, qp.requests.back());
  pump(qp.qp_num);
}

void ready_to_send(QueuePair& qp) {
  if (is_stream(qp))
    for (Request& each : qp.requests)
      if (!each.completed) hand_over(qp, each);
  pump(qp.qp_num);
}

void fail(QueuePair& qp) {
  if (qp.actual == IBV_QPS_ERR) return;
  const Profile& profile = qp.device_of().profile;
  qp.actual = IBV_QPS_ERR;
  while (!qp.requests.empty()) {
    // Earlier requests were acknowledged; only the acknowledgement was still under way.
    if (qp.requests.front().completed)
      qp.requests.pop_front();
    else
      complete_front(qp, IBV_WC_WR_FLUSH_ERR);
  }
  for (const Receive& receive : std::exchange(qp.receives, {}))
    static_cast<Queue*>(qp.recv_cq)
        ->push(blank(qp, receive.wr_id, IBV_WC_RECV, IBV_WC_WR_FLUSH_ERR));
  if (profile.iwarp) stream_broken(qp);
  auto* shared = static_cast<SharedReceives*>(qp.srq);
  if (shared == nullptr) return;
  // If a message was in progress, its receive belongs to the device.
  const QueuePair* from = find(qp.peer);
  const bool under_way =
      from != nullptr && std::any_of(from->requests.begin(), from->requests.end(),
                                     [](const Request& each) { return !each.delivered; });
  if (profile.flush_keeps_receive && under_way && !shared->posted.empty())
    shared->posted.pop_front();
  if (!profile.last_wqe_reached) return;
  ibv_async_event event{};
  event.event_type = IBV_EVENT_QP_LAST_WQE_REACHED;
  event.element.qp = &qp;
  static_cast<Handle*>(qp.context)->raise(event);
}

void unbind(Window& window) {
  if (window.bound != nullptr) std::erase(window.bound->windows, &window);
  if (window.region != nullptr) {
    --window.region->windows;
    world().windows.erase(window.key);
  }
  window.bound = nullptr;
  window.region = nullptr;
}

}  // namespace simulation
