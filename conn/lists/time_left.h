// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// with_time(): sets how long the transport of one candidate of a list of schemes may take to
// connect.

#include "ae/abi.h"
#include "ae/time.h"
#include "conn/endpoint.h"
#include "conn/lists/dial.h"

namespace conn { inline namespace AECONN_ABI {

/// Returns the endpoint of `candidate`, whose transport must be available. Its option
/// connect-timeout, if the transport has one, is slightly more than `left`: then the list reports
/// the time-out and not the transport, whose own default may be shorter. Throws std::bad_alloc.
Endpoint with_time(const Candidate& candidate, ae::Duration left);

}}  // namespace conn
