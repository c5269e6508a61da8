// SPDX-License-Identifier: BSD-3-Clause
#include "conn/rdma/ending.h"

#include <cassert>

namespace conn { inline namespace AECONN_ABI { namespace rdma {

void Ending::step(EndStep next) noexcept {
  assert(allowed(at_, next) && fits(next, link_.stage.phase()));
  at_ = next;
}

bool Ending::stream_over() noexcept {
  if (at_ == EndStep::kStreamOver) return false;
  step(EndStep::kStreamOver);
  return true;
}

// --- disconnecting -------------------------------------------------------------------------------

void Ending::queue_stop() noexcept { step(EndStep::kStopQueued); }

bool Ending::stop() noexcept {
  const IterationBudget::Spending spending(link_.state().iteration());
  step(EndStep::kUntold);
  if (link_.inherited()) return false;
  const CmId& id = link_.id();
  const DeviceContext* context = link_.context();
  if (id && context != nullptr) {
    const Device& device = context->device();
    if (device.asks_port_first() || unreachable_ || device.port_down(id->port_num))
      link_.ask_port();
  }
  // iWARP completes what its stream has taken, and the error state would reset the stream: after a
  // clean end, the disconnect follows the last byte without it.
  if (!(delivered_ && context->device().iwarp())) link_.stop();
  // Before rdma_cm knows the connection, rdma_disconnect() would send nothing and report success.
  // (rdma_notify() is no solution: Linux then repeats its answer to the request for a minute, and
  // rdma_destroy_id() waits for the end of that.) ESTABLISHED will come, or the deadline.
  return (link_.stage.handshake() >= Handshake::kKnown || !link_.can_disconnect()) && disconnect();
}

// Asks the peer to close, or confirms its close. If nothing can be sent, no answer will come.
bool Ending::disconnect() noexcept {
  const CmId& id = link_.id();
  const bool told = id && link_.can_disconnect() && rdma_disconnect(id.get()) == 0;
  if (link_.stage.handshake() == Handshake::kGone || !told) return true;
  if (at_ != EndStep::kTold) step(EndStep::kTold);
  return false;
}

bool Ending::on_known() noexcept { return at_ != EndStep::kStopQueued && disconnect(); }

void Ending::on_no_answer() noexcept {
  if (link_.id() && link_.context() != nullptr) link_.ask_port();
}

bool Ending::delivery_settled() const noexcept {
  return link_.stage.phase() != Phase::kClosing &&
         (link_.stage.phase() != Phase::kDisconnecting || !delivered_ ||
          link_.stage.handshake() == Handshake::kGone);
}

// --- dead ----------------------------------------------------------------------------------------

void Ending::finish() noexcept {
  link_.stage.move(Phase::kDead);
  step(EndStep::kToReap);
}

bool Ending::has_reports_to_come() noexcept {
  if (link_.queue_pair() == nullptr || !link_.was_connected()) return false;
  link_.stop();  // its deadline may have expired before reap() stopped it
  if (at_ == EndStep::kQuieting) return false;
  if (!link_.quiet()) link_.context()->on_async_event();
  return !link_.quiet();
}

void Ending::abandon(bool undelivered) noexcept {
  const CmId& id = link_.id();
  const bool may_be_up =
      link_.stage.open() || link_.stage.phase() == Phase::kAccepting || at_ == EndStep::kStopQueued;
  if (!link_.inherited() && id && may_be_up) {
    const bool graceful =
        link_.context() != nullptr && link_.context()->device().iwarp() && !undelivered;
    if (!graceful) link_.stop();
    if (link_.can_disconnect() && link_.stage.handshake() != Handshake::kUnderWay)
      (void)rdma_disconnect(id.get());
  }
  if (link_.stage.phase() != Phase::kDead) link_.stage.move(Phase::kDead);
  if (at_ != EndStep::kGone) step(EndStep::kGone);
}

}}}  // namespace conn::rdma
