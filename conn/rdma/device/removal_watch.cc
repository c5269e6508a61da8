// SPDX-License-Identifier: BSD-3-Clause
#include "conn/rdma/device/removal_watch.h"

#include "conn/rdma/device/verbs.h"

namespace conn { inline namespace AECONN_ABI { namespace rdma {

RemovalWatch::RemovalWatch(CmChannel& channel)
    : id_(channel.create_id(static_cast<CmUser*>(this))) {}

bool RemovalWatch::begin(SocketAddress address) {
  address.set_port(0);
  if (rdma_bind_addr(id_.get(), address.get()) != 0 || id_->verbs == nullptr) {
    id_.reset();
    return false;
  }
  device_ = ibv_get_device_name(id_->verbs->device);
  return true;
}

void RemovalWatch::on_cm_event(const CmEvent& event) {
  if (event.type == RDMA_CM_EVENT_DEVICE_REMOVAL) id_.reset();
}

}}}  // namespace conn::rdma
