// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// A completion queue of the device, and the handling of its events: requesting, counting and
// acknowledging them.

#include <cstdint>
#include <memory>

#include "ae/abi.h"
#include "conn/rdma/device/functions.h"
#include "conn/rdma/device/verbs.h"

namespace conn { inline namespace AECONN_ABI { namespace rdma {

/// A completion queue that counts the events it must acknowledge. ibv_destroy_cq() waits until
/// every event that was taken from the channel is acknowledged. Each acknowledgement locks a mutex,
/// so many events are acknowledged with one call.
class Cq {
 public:
  /// Creates a completion queue with at least `entries` entries. `vector`: the completion vector
  /// (interrupt). `user`: the pointer that ibv_get_cq_event() returns with its events. Throws
  /// VerbsError.
  Cq(ibv_context* device, std::uint32_t entries, ibv_comp_channel* channel, int vector, void* user);
  Cq(const Cq&) = delete;
  Cq& operator=(const Cq&) = delete;
  ~Cq() {
    if (!cq_.get_deleter().made_here.inherited()) acknowledge();
  }

  ibv_cq* get() const noexcept { return cq_.get(); }
  /// Returns the number of usable entries: as many as were requested. The queue may have more
  /// (bnxt_re creates twice as many, and needs the others itself).
  std::uint32_t entries() const noexcept { return entries_; }
  /// Counts an event of this queue that the caller has taken from the completion channel. The queue
  /// raises no other event until arm() is called again.
  void on_event() noexcept;
  bool armed() const noexcept { return armed_; }
  /// Makes armed() return false, so that the loop polls the queue and requests an event (arms it)
  /// again. The event requested before may still arrive, which does no harm.
  void forget_armed() noexcept { armed_ = false; }
  /// Requests an event for the next completion (ibv_req_notify_cq()). Poll the queue once more
  /// after this call and before sleeping, because earlier completions cause no event. Returns false
  /// if the device refuses.
  bool arm() noexcept;

 private:
  void acknowledge() noexcept;
  std::unique_ptr<ibv_cq, detail::Deleter<ibv_destroy_cq>> cq_;
  std::uint32_t entries_;
  unsigned unacknowledged_ = 0;
  bool armed_ = false;
};

}}}  // namespace conn::rdma
