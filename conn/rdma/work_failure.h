// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// What follows for a connection from the status of a failed work request.

#include "ae/abi.h"
#include "conn/error.h"
#include "conn/rdma/device/verbs.h"

namespace conn { inline namespace AECONN_ABI { namespace rdma {

/// Returns the failure of a connection whose send request (`was_send`) or receive ended with
/// `status`.
Failure describe_work_failure(ibv_wc_status status, bool was_send);
/// Returns true if `status` may be caused by the network or by our device, so that the connection
/// may continue over another network path. False: the peer or a limit is the cause.
bool may_be_the_path(ibv_wc_status status) noexcept;
/// Returns true if a bind request that ended with `status` shows that the device cannot bind keys.
/// Other statuses may be caused by the peer: for example, if the queue pair has refused a message
/// of the peer, all its requests are flushed.
bool shows_inability(ibv_wc_status status) noexcept;

}}}  // namespace conn::rdma
