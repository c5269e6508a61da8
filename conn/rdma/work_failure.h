// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// What it means for a connection that a work request failed.

#include "ae/abi.h"
#include "conn/error.h"
#include "conn/rdma/device/verbs.h"

namespace conn { inline namespace AECONN_ABI { namespace rdma {

/// Returns the failure to report for a connection whose send (`was_send`) or receive ended with
/// `status`.
Failure describe_work_failure(ibv_wc_status status, bool was_send);
/// Returns true if a request may have failed with `status` for a reason of the network or of our
/// device, so that the connection could go on over another path. False: the peer, or a limit, is
/// the reason.
bool may_be_the_path(ibv_wc_status status) noexcept;
/// Returns true if a bind of a key that ended with `status` shows that the device cannot bind keys.
/// Other statuses may be caused by the peer: for example, a queue pair that refused one of the
/// peer's messages flushes its requests.
bool shows_inability(ibv_wc_status status) noexcept;

}}}  // namespace conn::rdma
