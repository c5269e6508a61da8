// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// local://NAME: connections whose two ends live on one loop. A complete transport in few lines:
// docs/add-a-transport.md explains it, and the conformance suite runs over it.

#include "conn/core/transport.h"

namespace local {

class LocalType final : public conn::Transport {
 public:
  std::string_view name() const noexcept override { return "local"; }
  conn::Capabilities capabilities() const noexcept override {
    return {.half_close = true, .reset = true};
  }
  void configure(const conn::Options& options) override;
  void check(const conn::Endpoint& endpoint) const override;
  conn::ListenerPtr listen(ae::EventLoop& loop, const conn::Endpoint& endpoint,
                           conn::AcceptHandler accepted) const override;
  conn::ConnectionPtr create(ae::EventLoop& loop) const override;

 private:
  conn::Options defaults_;
};

}  // namespace local
