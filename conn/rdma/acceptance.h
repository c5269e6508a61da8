// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The accepting side of the set-up: creates a queue pair for a connection request, and accepts the
// request. (The connecting side: conn/rdma/setup.h.)

#include <functional>
#include <optional>

#include "ae/abi.h"
#include "conn/rdma/link.h"
#include "conn/rdma/private_data.h"
#include "conn/rdma/protocol/wire.h"

namespace conn { inline namespace AECONN_ABI { namespace rdma {

/// How to answer a connection request.
struct Acceptance {
  std::optional<Hello> asked;  ///< the peer's hello; no value: it sent none
  /// Resets the stream for a new queue pair and gives it the peer's hello. Called once for each
  /// queue pair: a second one is created if the first could not bind keys.
  std::function<void()> begin;
  /// Returns the private data of the answer. `ours`: the hello of our stream and path, which the
  /// function may change.
  std::function<PrivateData(Hello& ours)> data;
};

/// Creates the queue pair for the rdma_cm id of `link` and calls rdma_accept(). The phase is
/// kAccepting afterwards. Throws VerbsError.
void accept_request(Link& link, const Acceptance& how);

}}}  // namespace conn::rdma
