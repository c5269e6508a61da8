// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// A completion queue of the device: the events that announce its completions, and when they are
// acknowledged.

#include <cstdint>
#include <memory>

#include "ae/abi.h"
#include "conn/rdma/device/functions.h"
#include "conn/rdma/device/verbs.h"

namespace conn { inline namespace AECONN_ABI { namespace rdma {

/// A completion queue that counts the events it must acknowledge. ibv_destroy_cq() waits until
/// every event taken from the channel is acknowledged; each acknowledgement locks a mutex, so it is
/// made for many events at once.
class Cq {
 public:
  /// Creates a completion queue. `user` is the pointer that its events return. Throws VerbsError.
  Cq(ibv_context* device, std::uint32_t entries, ibv_comp_channel* channel, int vector, void* user);
  Cq(const Cq&) = delete;
  Cq& operator=(const Cq&) = delete;
  ~Cq() {
    if (!cq_.get_deleter().made_here.inherited()) acknowledge();
  }

  ibv_cq* get() const noexcept { return cq_.get(); }
  /// Number of usable entries: as many as were requested, although the queue may be deeper (bnxt_re
  /// makes twice as many and needs the rest for itself).
  std::uint32_t entries() const noexcept { return entries_; }
  /// Counts an event of this queue that the caller has taken from the completion channel. To get
  /// another event, arm the queue again.
  void on_event() noexcept;
  bool armed() const noexcept { return armed_; }
  /// Makes armed() return false, so that the queue is polled and armed again; an extra event does
  /// no harm.
  void forget_armed() noexcept { armed_ = false; }
  /// Requests an event for the next completion. Poll the queue once more after arming and before
  /// sleeping, because earlier completions cause no event. Returns false if the device refuses.
  bool arm() noexcept;

 private:
  void acknowledge() noexcept;
  std::unique_ptr<ibv_cq, detail::Deleter<ibv_destroy_cq>> cq_;
  std::uint32_t entries_;
  unsigned unacknowledged_ = 0;
  bool armed_ = false;
};

}}}  // namespace conn::rdma
