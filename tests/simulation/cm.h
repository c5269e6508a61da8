// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Between rdma_cm's calls (cm.cc) and the messages that go from machine to machine
// (cm_messages.cc).

#include <functional>
#include <vector>

#include "tests/simulation/objects.h"

namespace simulation::cm {

/// rdma_cm asks again for its messages' answers and then gives up (measured with Linux 6.1).
constexpr Nanoseconds kGivesUp = 102s;
/// Why a request was rejected: reasons of InfiniBand's connection manager.
constexpr int kNoListener = 8, kStaleConnection = 10, kByConsumer = 28;

CmId* find(std::uint64_t key);
CmId* new_id(rdma_event_channel* channel, void* context);
inline sockaddr_in& source(rdma_cm_id& id) { return id.route.addr.src_sin; }
inline sockaddr_in& destination(rdma_cm_id& id) { return id.route.addr.dst_sin; }
inline bool is_iwarp(const CmId& id) { return id.device != nullptr && id.device->profile.iwarp; }
Device* device_at(const in_addr& address);
void bind_to(CmId& id, Device& device);
void found_path(CmId& id, ibv_mtu mtu);
CmId* listener_at(const sockaddr_in& target);

void queue_event(CmId& id, rdma_cm_event_type type, int status = 0,
                 const std::vector<std::byte>& data = {}, CmId* child = nullptr);
/// Out of the lists of those that it names.
void take_off(Event& event);
/// `what` happens to the other end if both machines still talk.
void tell(CmId& from, std::uint64_t to, std::function<void(CmId&)> what);
void after_for(const CmId& id, Nanoseconds delay, std::function<void(CmId&)> what);
/// What librdmacm does to a queue pair that it has made.
void modify(rdma_cm_id* id, ibv_qp_state state);

// --- what is sent, and what comes of it ---
void send_request(std::uint64_t key, const rdma_conn_param& parameters,
                  const std::vector<std::byte>& data);
void send_answer(CmId& id, const rdma_conn_param& parameters, const std::vector<std::byte>& data);
void established(CmId& id);
/// iWARP's kernel makes the queue pair ready itself. False: there is none that could be.
bool join_stream(CmId& id);
void say_reject(CmId& id, const std::vector<std::byte>& data);
void start_disconnect(CmId& id);
void answer_disconnect(CmId& id);
/// iWARP: the stream ends in order, after what was posted.
void close_stream(CmId& id);
/// What the other side learns when an id goes without a word.
void leave(CmId& id);

}  // namespace simulation::cm
