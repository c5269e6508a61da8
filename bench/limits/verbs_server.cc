// SPDX-License-Identifier: BSD-3-Clause
#include "verbs_server.h"

#include <netinet/in.h>

#include <algorithm>
#include <cstdio>
#include <exception>

namespace limits {

VerbsServer::VerbsServer(const std::string& address, std::size_t window, bool spin)
    : Worker(spin), window_(window), listener_(create_id()) {
  sockaddr_storage where = parse_address(address);
  if (rdma_bind_addr(listener_.get(), reinterpret_cast<sockaddr*>(&where)) != 0) {
    fail(("cannot listen on " + address).c_str());
  }
  if (rdma_listen(listener_.get(), 1024) != 0) fail("rdma_listen");
}

VerbsServer::~VerbsServer() {
  for (const auto& [number, link] : connections_) link->disconnect();
}

std::uint16_t VerbsServer::port() const noexcept {
  return ntohs(rdma_get_src_port(listener_.get()));
}

void VerbsServer::on_cm(const CmEvent& event) {
  if (event.type == RDMA_CM_EVENT_CONNECT_REQUEST) return accept(event.id);
  auto* const link = static_cast<EchoLink*>(event.id->context);
  if (link == nullptr) return;
  if (event.type == RDMA_CM_EVENT_ESTABLISHED) {
    link->established();
  } else if (event.type != RDMA_CM_EVENT_TIMEWAIT_EXIT) {
    const std::uint32_t number = link->number();
    settle();  // may have found it broken and removed it
    if (const auto found = connections_.find(number); found != connections_.end()) {
      lost(*found->second);
    }
  }
}

void VerbsServer::accept(rdma_cm_id* id) try {
  id->context = nullptr;
  CmId owned(id);
  auto link = std::make_unique<EchoLink>(device(id->verbs), std::move(owned), window_);
  link->accept();
  id->context = link.get();
  add(*link);
  connections_[link->number()] = std::move(link);
} catch (const std::exception& error) {
  std::fprintf(stderr, "verbs-echo: connection refused: %s\n", error.what());
}

void VerbsServer::serve(Link& served) {
  auto& link = static_cast<EchoLink&>(served);
  link.established();  // a message may arrive before the event
  while (link.echoed < link.filled()) {
    const std::uint32_t size = std::min(link.filled() - link.echoed, link.room());
    if (size == 0) break;
    link.add_write(link.window() + link.echoed, size, link.window_key());
    link.echoed += size;
  }
  if (link.full() && link.echoed == link.filled()) {
    if (link.window_in_use()) {
      link.signal_last();  // its completion calls serve() again
    } else if (link.add_offer()) {
      link.echoed = 0;
    }
  }
  link.post();
}

void VerbsServer::lost(Link& link) {
  link.disconnect();
  remove(link);
  connections_.erase(link.number());
}

}  // namespace limits
