// SPDX-License-Identifier: BSD-3-Clause
#include "conn/transports/transports.h"

#include "conn/shm/type.h"
#include "conn/tcp/tcp_type.h"
#include "conn/tcp/unix_type.h"
#include "conn/tcp/vsock_type.h"
#if AECONN_RDMA
#include "conn/rdma/device/libraries.h"
#include "conn/rdma/type.h"
#endif
#if AECONN_TLS
#include "conn/tls/type.h"
#endif

namespace conn { inline namespace AECONN_ABI {
namespace {

void add_tls([[maybe_unused]] Registry& registry, [[maybe_unused]] const ConnectionType& below) {
#if AECONN_TLS
  registry.add(std::make_unique<tls::TlsType>(below));
#endif
}

}  // namespace

void add_all_transports(Registry& registry) {
  const ConnectionType& tcp = registry.add(std::make_unique<tcp::TcpType>());
  const ConnectionType& local = registry.add(std::make_unique<tcp::UnixType>());
  const ConnectionType& shared = registry.add(std::make_unique<shm::ShmType>());
  const ConnectionType& machines = registry.add(std::make_unique<tcp::VsockType>());
  add_tls(registry, tcp);
  add_tls(registry, local);
  add_tls(registry, shared);
  add_tls(registry, machines);
#if AECONN_RDMA
  add_tls(registry, registry.add(std::make_unique<rdma::RdmaType>()));
#else
  for (const char* name : {"rdma", "tls+rdma"}) {
    registry.add_unavailable(name, "this build of aeconn leaves RDMA out (make RDMA=yes)");
  }
#endif
#if !AECONN_TLS
  for (const char* name : {"tls", "tls+unix", "tls+shm", "tls+vsock", "tls+rdma"}) {
    registry.add_unavailable(name, "this build of aeconn leaves TLS out (make TLS=yes)");
  }
#endif
}

Registry all_transports() {
  Registry registry;
  add_all_transports(registry);
  return registry;
}

std::string build_text() {
  std::string text = "transports:";
  const Registry registry = all_transports();
  for (const auto& each : registry.types()) text += ' ' + std::string(each->name());
#if !AECONN_RDMA
  return text + "\nrdma: this build leaves it out (make RDMA=yes)";
#elif AECONN_RDMA_LINK
  return text + "\nrdma: libibverbs and librdmacm are linked";
#else
  return text + "\nrdma: libibverbs and librdmacm are loaded when it is first used";
#endif
}

RdmaLibraries rdma_libraries() {
#if AECONN_RDMA
  return {rdma::missing_libraries(), rdma::library_files()};
#else
  return {};
#endif
}

}}  // namespace conn
