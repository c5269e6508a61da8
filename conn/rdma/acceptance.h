// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The accepting side of the set-up of an RDMA connection: creates a queue pair for a connection
// request, and accepts the request. (The connecting side: conn/rdma/setup.h.)

#include <functional>
#include <optional>

#include "ae/abi.h"
#include "conn/rdma/link.h"
#include "conn/rdma/private_data.h"
#include "conn/rdma/protocol/wire.h"

namespace conn { inline namespace AECONN_ABI { namespace rdma {

/// How to answer a connection request.
struct Acceptance {
  /// The hello in the request (private data that describes the peer); no value: it sent none.
  std::optional<Hello> asked;
  /// Resets the state of the byte stream for a new queue pair, and gives it `asked`, the hello
  /// (data that describes the peer). Called once for each queue pair: a second one is created if
  /// the first could not bind memory windows.
  std::function<void()> begin;
  /// Returns the private data for rdma_accept(). `ours`: the hello (data that describes our end)
  /// that it must contain, and which the function may change.
  std::function<PrivateData(Hello& ours)> data;
};

/// Creates the queue pair for the rdma_cm id of `link` and calls rdma_accept(). The phase of the
/// connection is kAccepting afterwards. Throws VerbsError.
void accept_request(Link& link, const Acceptance& how);

}}}  // namespace conn::rdma
