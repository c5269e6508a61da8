// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Interface between the rdma_cm calls (cm.cc) and the messages between the machines
// (cm_messages.cc).

#include <functional>
#include <vector>

#include "tests/simulation/objects.h"

namespace simulation::cm {

/// How long rdma_cm retransmits its messages before it gives up (measured with Linux 6.1).
constexpr Nanoseconds kGivesUp = 102s;
/// Reject reasons of InfiniBand's connection manager.
constexpr int kNoListener = 8, kStaleConnection = 10, kByConsumer = 28;

CmId* find(std::uint64_t key);
CmId* new_id(rdma_event_channel* channel, void* context);
inline sockaddr_in& source(rdma_cm_id& id) { return id.route.addr.src_sin; }
inline sockaddr_in& destination(rdma_cm_id& id) { return id.route.addr.dst_sin; }
inline bool is_iwarp(const CmId& id) { return id.device != nullptr && id.device->profile.iwarp; }
Device* device_at(const in_addr& address);
void bind_to(CmId& id, Device& device);
void found_path(CmId& id, ibv_mtu mtu);
/// The listener for requests to `target`; with `device`, only one that is bound to it, or to none.
CmId* listener_at(const sockaddr_in& target, const Device* device = nullptr);

void queue_event(CmId& id, rdma_cm_event_type type, int status = 0,
                 const std::vector<std::byte>& data = {}, CmId* child = nullptr);
/// Removes the event from the lists of the ids that it names.
void take_off(Event& event);
/// Calls `what` for the other end if the path between both machines is still open.
void tell(CmId& from, std::uint64_t to, std::function<void(CmId&)> what);
void after_for(const CmId& id, Nanoseconds delay, std::function<void(CmId&)> what);
/// Changes the state of a queue pair as librdmacm does for one that it has created.
void modify(rdma_cm_id* id, ibv_qp_state state);

// --- messages and their effects ------------------------------------------------------------------
void send_request(std::uint64_t key, const rdma_conn_param& parameters,
                  const std::vector<std::byte>& data);
void send_answer(CmId& id, const rdma_conn_param& parameters, const std::vector<std::byte>& data);
void established(CmId& id);
/// iWARP's kernel moves the queue pair to RTS itself. False: there is no queue pair in a state from
/// which that is possible.
bool join_stream(CmId& id);
void say_reject(CmId& id, const std::vector<std::byte>& data);
void start_disconnect(CmId& id);
void answer_disconnect(CmId& id);
/// iWARP: ends the stream in order, after all posted requests.
void close_stream(CmId& id);
/// Tells the other side what it learns when an id is destroyed without a disconnect.
void leave(CmId& id);

}  // namespace simulation::cm
