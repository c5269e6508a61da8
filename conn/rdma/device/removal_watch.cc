// SPDX-License-Identifier: BSD-3-Clause
#include "conn/rdma/device/removal_watch.h"

#include <cerrno>

#include "conn/rdma/device/availability.h"
#include "conn/rdma/device/verbs.h"

namespace conn { inline namespace AECONN_ABI { namespace rdma {

RemovalWatch::RemovalWatch(CmChannel& channel, const CmId& id)
    : RemovalWatch(channel, id.local()) {}

RemovalWatch::RemovalWatch(CmChannel& channel, SocketAddress address)
    : id_(channel.create_id(static_cast<CmUser*>(this))) {
  address.set_port(0);
  if (rdma_bind_addr(id_.get(), address.get()) != 0) throw VerbsError("rdma_bind_addr", errno);
  require_device(id_);
  device_ = ibv_get_device_name(id_->verbs->device);
}

void RemovalWatch::on_cm_event(const CmEvent& event) {
  if (event.type == RDMA_CM_EVENT_DEVICE_REMOVAL) id_.reset();
}

}}}  // namespace conn::rdma
