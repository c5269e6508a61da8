// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The text with which a server explains why it rejects a connection. It is the private data of the
// reject.

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

#include "ae/abi.h"
#include "conn/rdma/device/functions.h"

namespace conn { inline namespace AECONN_ABI { namespace rdma {

/// Rejects a connection request. Sends `why` to the requester, at most its first 100 bytes.
void reject(rdma_cm_id* request, std::string_view why) noexcept;

/// Returns ": " and the text in the private data of a peer's reject; "" if there is no text.
std::string reject_reason_in(std::span<const std::byte> data);

}}}  // namespace conn::rdma
