// SPDX-License-Identifier: BSD-3-Clause
#include "conn/rdma/acceptance.h"

#include <cerrno>
#include <utility>

#include "conn/rdma/mtu.h"

namespace conn { inline namespace AECONN_ABI { namespace rdma {

void accept_request(Link& link, const Acceptance& how) {
  CmId& id = link.id();
  const Settings& settings = link.settings();
  const Phase phase = link.stage.phase();
  Mtu mtu;
  for (bool may_bind = true;; may_bind = false) {
    how.begin();
    link.make(may_bind);
    if (!link.path.iwarp())
      mtu.agree(id.get(), settings.fabric, how.asked ? how.asked->mtu : 0,
                link.context()->device().active_mtu(id->port_num, link.state().now()),
                link.path.device());
    link.connect(mtu.agreed());
    if (link.keys_work()) break;
    CmId kept = std::move(id);
    link.tear_down();
    id = std::move(kept);
  }
  // The phase has changed if an event of the device, which was read above, has ended the
  // connection.
  if (link.stage.phase() != phase) throw VerbsError("the device failed", ENODEV);
  if (!link.path.iwarp() && settings.fabric.ece) answer_ece(id.get(), link.queue_pair());
  Hello ours = link.stream.hello();
  mtu.tell(ours);
  const PrivateData data = how.data(ours);
  rdma_conn_param parameters = connection_parameters(link, data.data());
  if (rdma_accept(id.get(), &parameters) != 0) throw VerbsError("rdma_accept", errno);
  link.stage.advance(Handshake::kUnderWay);
  link.stage.move(Phase::kAccepting);
}

}}}  // namespace conn::rdma
