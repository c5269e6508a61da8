#include "conn/transports/transports.h"

#include "conn/tcp/tcp_type.h"
#include "conn/tcp/unix_type.h"
#if AECONN_RDMA
#include "conn/rdma/type.h"
#endif

namespace conn {

void add_all_transports(Registry& registry) {
  registry.add(std::make_unique<tcp::TcpType>());
  registry.add(std::make_unique<tcp::UnixType>());
#if AECONN_RDMA
  registry.add(std::make_unique<rdma::RdmaType>());
#else
  registry.add_unavailable("rdma", "this build of aeconn leaves RDMA out (make RDMA=yes)");
#endif
}

Registry all_transports() {
  Registry registry;
  add_all_transports(registry);
  return registry;
}

}  // namespace conn
