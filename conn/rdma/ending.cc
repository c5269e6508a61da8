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

// --- disconnecting from the peer -----------------------------------------------------------------

void Ending::queue_stop() noexcept { step(EndStep::kStopQueued); }

bool Ending::stop() noexcept {
  const IterationBudget::Spending spending(link_.state().iteration());
  step(EndStep::kUnsent);
  if (link_.inherited()) return false;
  const CmId& id = link_.id();
  const DeviceContext* context = link_.context();
  if (id && context != nullptr) {
    const Device& device = context->device();
    if (device.asks_port_first() || unreachable_ || device.port_down(id->port_num))
      link_.ask_port();
  }
  // On iWARP, stopping the queue pair would reset the TCP stream, which may still have to transmit
  // bytes that the device has reported as complete. So after a clean end the queue pair is not
  // stopped, and the disconnect follows the last byte.
  if (!(delivered_ && context->device().iwarp())) link_.stop();
  // Before rdma_cm knows that the connection is established, rdma_disconnect() would send nothing
  // and report success. The disconnect then waits for the event ESTABLISHED or the deadline.
  // (rdma_notify() is no solution: after it, Linux repeats its answer to the connection request for
  // a minute, and rdma_destroy_id() waits until that ends.)
  return (link_.stage.handshake() >= Handshake::kKnown || !link_.can_disconnect()) && disconnect();
}

// Calls rdma_disconnect(), which sends our disconnect or answers that of the peer. Returns true if
// no answer is expected, because the peer is already gone or nothing could be sent.
bool Ending::disconnect() noexcept {
  const CmId& id = link_.id();
  const bool sent = id && link_.can_disconnect() && rdma_disconnect(id.get()) == 0;
  if (link_.stage.handshake() == Handshake::kGone || !sent) return true;
  if (at_ != EndStep::kSent) step(EndStep::kSent);
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

// --- phase kDead: nothing is expected from the peer any more -------------------------------------

void Ending::finish() noexcept {
  link_.stage.move(Phase::kDead);
  step(EndStep::kToReap);
}

bool Ending::has_reports_to_come() noexcept {
  if (link_.queue_pair() == nullptr || !link_.pair.was_connected()) return false;
  // Stops the queue pair if it is not stopped yet: reap() usually has stopped it, but the deadline
  // may expire before the loop calls reap().
  link_.stop();
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
