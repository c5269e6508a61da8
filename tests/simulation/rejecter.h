// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// A program that rejects each connection request to an address.

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "ae/event_loop.h"
#include "conn/kit/resolver.h"
#include "conn/rdma/device/cm.h"
#include "conn/rdma/device/reject_reason.h"
#include "tests/support/catch.h"

namespace simulation {

struct Rejecter {
  /// `its_text`: the private data of the rejections. The loop must exist as long as this object.
  Rejecter(ae::EventLoop& its_loop, conn::SocketAddress here, std::string its_text)
      : loop(its_loop), text(std::move(its_text)) {
    REQUIRE(rdma_bind_addr(listener.get(), here.get()) == 0);
    REQUIRE(rdma_listen(listener.get(), 16) == 0);
    loop.add_file_event(channel.fd(), ae::kReadable, [this](int, ae::Mask) { take(); });
  }
  ~Rejecter() { loop.remove_file_event(channel.fd(), ae::kReadable); }
  Rejecter(const Rejecter&) = delete;
  Rejecter& operator=(const Rejecter&) = delete;
  void take() {
    while (const auto event = channel.next()) {
      if (event->type != RDMA_CM_EVENT_CONNECT_REQUEST) continue;
      const conn::rdma::CmId request(event->id);
      requests.emplace_back(event->data().begin(), event->data().end());
      conn::rdma::reject(request.get(), text);
    }
  }
  ae::EventLoop& loop;
  const std::string text;
  conn::rdma::CmChannel channel;
  conn::rdma::CmId listener = channel.create_id(nullptr);
  std::vector<std::vector<std::byte>> requests;
};

}  // namespace simulation
