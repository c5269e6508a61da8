// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Smart pointers for verbs objects. Each destroys its object and checks the return code. EBUSY
// means that another object still uses the destroyed one: this is a bug of this library and fails
// an assertion. Any other error has an external cause, such as a device that was pulled out, and is
// counted in teardown_failures(). In a child of fork() the objects belong to the parent and are not
// destroyed: the child only closes its copies of the file descriptors, and memory that the
// libraries allocated stays until the child ends. Functions that create objects throw VerbsError.

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

/// The error of a verbs or rdma_cm call that failed.
class VerbsError : public std::exception {
 public:
  /// Approximate size of a queue pair's rings in bytes.
  static constexpr std::uint64_t kRings = 64 * 1024;
  /// `memory`: approximate number of bytes that the call would have pinned. For ENOMEM and EPERM
  /// the text also names the limit that was reached, if it can be determined.
  VerbsError(const std::string& what_failed, int err, std::uint64_t memory = kRings);
  explicit VerbsError(Failure failure) : failure_(std::move(failure)) {}
  const char* what() const noexcept override { return failure_.text.c_str(); }
  const Failure& failure() const noexcept { return failure_; }

 private:
  Failure failure_;
};

/// Returns the number of failed calls to destroy a verbs or rdma_cm object since the process began.
/// Thread-safe.
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
/// Creates a queue pair. Throws VerbsError; its code is EINVAL if the driver fails without setting
/// errno (bnxt_re).
Qp create_qp(ibv_pd* pd, ibv_qp_init_attr& attributes);
/// Allocates a type 2 memory window, whose key works on one queue pair only. Returns null and sets
/// errno on failure.
Mw alloc_mw(ibv_pd* pd) noexcept;

/// Converts the return value of ibv_post_send() and similar calls to an errno value, 0 for success.
/// Some drivers return the errno negated (erdma, cxgb4, siw, bnxt_re), some return -1 and set
/// errno.
int post_error(int result) noexcept;

}}}  // namespace conn::rdma
