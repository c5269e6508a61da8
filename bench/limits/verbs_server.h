// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Echo server: sends received data back directly from the window, without a copy.

#include <memory>
#include <string>
#include <unordered_map>

#include "verbs_worker.h"

namespace limits {

class VerbsServer final : public Worker {
 public:
  /// `address` is ADDRESS:PORT. Throws std::exception if it cannot listen there.
  VerbsServer(const std::string& address, std::size_t window, bool spin);
  ~VerbsServer() override;
  std::uint16_t port() const noexcept;

 private:
  struct EchoLink : Link {
    using Link::Link;
    std::uint32_t echoed = 0;  // bytes of the window
  };
  void on_cm(const CmEvent& event) override;
  void serve(Link& link) override;
  void lost(Link& link) override;
  void accept(rdma_cm_id* id);

  std::size_t window_;
  CmId listener_;
  std::unordered_map<std::uint32_t, std::unique_ptr<EchoLink>> connections_;
};

}  // namespace limits
