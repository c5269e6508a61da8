// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// with_time(): sets how long the transport of one candidate of a list of schemes may take to
// connect.

#include "ae/abi.h"
#include "ae/time.h"
#include "conn/endpoint.h"
#include "conn/lists/dial.h"

namespace conn { inline namespace AECONN_ABI {

/// Returns the endpoint of `candidate`, whose transport must be available. If the transport has
/// option connect-timeout, sets it to slightly more than `left`: the transport's default may be
/// shorter, but the list of schemes is to report the time-out. Throws std::bad_alloc.
Endpoint with_time(const Candidate& candidate, ae::Duration left);

}}  // namespace conn
