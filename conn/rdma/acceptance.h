// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The accepting side of a path: a queue pair is made for the rdma_cm id of a connection request,
// and the request is accepted. (The connecting side: conn/rdma/setup.h.)

#include <functional>
#include <optional>

#include "ae/abi.h"
#include "conn/rdma/link.h"
#include "conn/rdma/private_data.h"
#include "conn/rdma/protocol/wire.h"

namespace conn { inline namespace AECONN_ABI { namespace rdma {

/// How a connection request is answered.
struct Acceptance {
  std::optional<Hello> asked;  ///< what the peer states; no value: it sent no hello
  /// Prepares the stream for a queue pair, and gives it what the peer states. It is called again if
  /// another queue pair is needed.
  std::function<void()> begin;
  /// Returns the private data of the answer; `ours` is what our stream and path state.
  std::function<PrivateData(Hello& ours)> data;
};

/// Creates the queue pair for the rdma_cm id of `link`, and accepts; the phase is then kAccepting.
/// Throws VerbsError.
void accept_request(Link& link, const Acceptance& how);

}}}  // namespace conn::rdma
