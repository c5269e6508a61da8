// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// pipe:///PATH: connections over two pipes, one for each direction. A listener has a Unix socket at
// PATH. For each client that connects to it, it makes the pipes and passes the client's ends back.
// An example of a transport whose connections have descriptors.

#include "conn/core/transport.h"

namespace pipes {

/// The values of all options.
struct Settings {
  std::uint64_t most;
  int backlog;
  ae::Duration connect_timeout;
};

class PipeType final : public conn::Transport {
 public:
  std::string_view name() const noexcept override { return "pipe"; }
  conn::Capabilities capabilities() const noexcept override { return {.half_close = true}; }
  void configure(const conn::Options& options) override;
  void check(const conn::Endpoint& endpoint) const override;
  conn::ListenerPtr listen(ae::EventLoop& loop, const conn::Endpoint& endpoint,
                           conn::AcceptHandler accepted) const override;
  conn::ConnectionPtr create(ae::EventLoop& loop) const override;
  /// The options of an endpoint, and the defaults of the others. Throws Error.
  Settings settings(const conn::Options& options) const;

 private:
  conn::Options defaults_;
};

}  // namespace pipes
