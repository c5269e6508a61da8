// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Owners of verbs objects. Each destroys its object and checks the return code: EBUSY means that an
// owner was destroyed before its user, which is our bug and is asserted on; any other error is
// external (a device that was pulled out) and is counted in teardown_failures(). In a child of
// fork() the objects are the parent's and are not destroyed: the child closes its copies of the
// descriptors, and memory that the libraries allocated stays until the child ends. Creation throws
// VerbsError, which the set-up paths turn into a Failure or an Error.

#include <unistd.h>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "ae/abi.h"
#include "ae/core/fork.h"
#include "conn/error.h"
#include "conn/rdma/device/functions.h"

namespace conn { inline namespace AECONN_ABI { namespace rdma {

/// A verbs or rdma_cm call that failed.
class VerbsError : public std::exception {
 public:
  static constexpr std::uint64_t kRings = 64 * 1024;  ///< approximate size of a queue pair's rings
  /// `memory`: bytes that were to be pinned, as far as known, to find the limit that was reached.
  VerbsError(const std::string& what_failed, int err, std::uint64_t memory = kRings);
  explicit VerbsError(Failure failure) : failure_(std::move(failure)) {}
  const char* what() const noexcept override { return failure_.text.c_str(); }
  const Failure& failure() const noexcept { return failure_; }

 private:
  Failure failure_;
};

/// Number of destroy calls that failed since the process began. Any thread.
std::uint64_t teardown_failures() noexcept;
void note_teardown_failure(const char* call, int err) noexcept;

namespace detail {
inline void close_copies(ibv_context* device) {
  ::close(device->cmd_fd);
  ::close(device->async_fd);
}
inline void close_copies(ibv_comp_channel* channel) { ::close(channel->fd); }
inline void close_copies(const void*) {}

template <auto Destroy>
struct Deleter {
  ae::MadeHere made_here;
  template <class T>
  void operator()(T* object) const noexcept {
    if (made_here.inherited()) return close_copies(object);
    if (const int err = Destroy(object); err != 0) note_teardown_failure(name(object), err);
  }
  static const char* name(ibv_pd*) { return "ibv_dealloc_pd"; }
  static const char* name(ibv_mr*) { return "ibv_dereg_mr"; }
  static const char* name(ibv_mw*) { return "ibv_dealloc_mw"; }
  static const char* name(ibv_comp_channel*) { return "ibv_destroy_comp_channel"; }
  static const char* name(ibv_cq*) { return "ibv_destroy_cq"; }
  static const char* name(ibv_srq*) { return "ibv_destroy_srq"; }
  static const char* name(ibv_qp*) { return "ibv_destroy_qp"; }
  static const char* name(ibv_context*) { return "ibv_close_device"; }
};
inline int dealloc_mw(ibv_mw* mw) { return ibv_dealloc_mw(mw); }
inline int dereg_mr(ibv_mr* mr) { return ibv_dereg_mr(mr); }
}  // namespace detail

using DeviceHandle = std::unique_ptr<ibv_context, detail::Deleter<ibv_close_device>>;
using Pd = std::unique_ptr<ibv_pd, detail::Deleter<ibv_dealloc_pd>>;
using Mr = std::unique_ptr<ibv_mr, detail::Deleter<detail::dereg_mr>>;
using Mw = std::unique_ptr<ibv_mw, detail::Deleter<detail::dealloc_mw>>;
using CompChannel = std::unique_ptr<ibv_comp_channel, detail::Deleter<ibv_destroy_comp_channel>>;
using Srq = std::unique_ptr<ibv_srq, detail::Deleter<ibv_destroy_srq>>;
using Qp = std::unique_ptr<ibv_qp, detail::Deleter<ibv_destroy_qp>>;

DeviceHandle open_device(ibv_device* device);
Pd alloc_pd(ibv_context* device);
CompChannel create_comp_channel(ibv_context* device);
Srq create_srq(ibv_pd* pd, std::uint32_t depth);
/// Throws EINVAL also where a driver refuses without a reason (bnxt_re leaves errno unchanged).
Qp create_qp(ibv_pd* pd, ibv_qp_init_attr& attributes);
/// A type 2 memory window: an rkey that works on one queue pair only. Null, with errno, if none is
/// available.
Mw alloc_mw(ibv_pd* pd) noexcept;

/// The errno that ibv_post_send() and similar calls returned: some drivers return it negated
/// (erdma, cxgb4, siw, bnxt_re), some return -1 and set errno.
int post_error(int result) noexcept;

}}}  // namespace conn::rdma
