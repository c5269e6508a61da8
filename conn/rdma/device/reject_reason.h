// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The reason in words that a server gives when it rejects a connection, as the private data of the
// reject.

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

#include "ae/abi.h"
#include "conn/rdma/device/functions.h"

namespace conn { inline namespace AECONN_ABI { namespace rdma {

/// Rejects a connection request. The first 100 bytes of `why` are sent to the requester.
void reject(rdma_cm_id* request, std::string_view why) noexcept;

/// Returns ": " and the reason that the private data of a peer's reject contains; "" if it contains
/// none.
std::string reject_reason_in(std::span<const std::byte> data);

}}}  // namespace conn::rdma
