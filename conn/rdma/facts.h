// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Facts about one RDMA connection that are shown to people: its addresses, its network path and
// details. They are available in any state, also without a queue pair.

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "ae/abi.h"
#include "conn/rdma/link.h"
#include "conn/rdma/path_recovery.h"
#include "conn/spi/carrier.h"

namespace conn { inline namespace AECONN_ABI { namespace rdma {

class RdmaFacts final : public CarrierFacts {
 public:
  /// Stores references to parts of the connection, which must outlive this object. `recovery`: the
  /// pointer it refers to is null if the connection cannot continue over another network path.
  RdmaFacts(const Link& link, const std::unique_ptr<PathRecovery>& recovery) noexcept
      : link_(link), recovery_(recovery) {}

  std::string local_address() const override { return link_.path.local().to_string(); }
  std::string peer_address() const override { return link_.path.peer().to_string(); }
  SocketAddress local_sockaddr() const noexcept override { return link_.path.local(); }
  SocketAddress peer_sockaddr() const noexcept override { return link_.path.peer(); }
  std::optional<bool> is_local() const override { return link_.path.is_local(); }
  std::string path() const override;
  std::vector<std::pair<std::string, std::string>> info() const override;

 private:
  const Link& link_;
  const std::unique_ptr<PathRecovery>& recovery_;
};

}}}  // namespace conn::rdma
