// SPDX-License-Identifier: BSD-3-Clause
#include "conn/rdma/device/verbs.h"

#include <atomic>
#include <cassert>
#include <cerrno>

#include "conn/rdma/device/memory.h"

namespace conn { inline namespace AECONN_ABI { namespace rdma {
namespace {

std::atomic<std::uint64_t> teardown_failure_count{0};

template <class Owner, class Object>
Owner own(Object* object, const char* call) {
  if (object == nullptr) throw VerbsError(call, errno);
  return Owner(object);
}

}  // namespace

VerbsError::VerbsError(const std::string& what_failed, int err, std::uint64_t memory)
    : failure_(errno_failure(err, what_failed)) {
  failure_.text += limit_hint(err, memory);
}

std::uint64_t teardown_failures() noexcept { return teardown_failure_count.load(); }

void note_teardown_failure(const char*, int err) noexcept {
  // `err` may be any return value: rdma_cm functions and some older verbs functions return -1 and
  // set errno; other verbs functions return the errno.
  if (err == -1) err = errno;
  assert(err != EBUSY && "an owner was destroyed before its user");
  ++teardown_failure_count;
}

int post_error(int result) noexcept {
  if (result >= 0) return result;
  return result == -1 && errno != 0 ? errno : -result;
}

DeviceHandle open_device(ibv_device* device) {
  return own<DeviceHandle>(ibv_open_device(device), "ibv_open_device");
}
Pd alloc_pd(ibv_context* device) { return own<Pd>(ibv_alloc_pd(device), "ibv_alloc_pd"); }
CompChannel create_comp_channel(ibv_context* device) {
  return own<CompChannel>(ibv_create_comp_channel(device), "ibv_create_comp_channel");
}
Srq create_srq(ibv_pd* pd, std::uint32_t depth) {
  ibv_srq_init_attr attributes{};
  attributes.attr.max_wr = depth;
  attributes.attr.max_sge = 1;
  return own<Srq>(ibv_create_srq(pd, &attributes), "ibv_create_srq");
}
Qp create_qp(ibv_pd* pd, ibv_qp_init_attr& attributes) {
  errno = 0;
  Qp made(ibv_create_qp(pd, &attributes));
  if (!made) throw VerbsError("ibv_create_qp", errno != 0 ? errno : EINVAL);
  return made;
}
Mw alloc_mw(ibv_pd* pd) noexcept { return Mw(ibv_alloc_mw(pd, IBV_MW_TYPE_2)); }

}}}  // namespace conn::rdma
