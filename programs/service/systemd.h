// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The systemd protocols for services: sockets opened by systemd (sd_listen_fds(3)) and
// notifications of readiness or shutdown (sd_notify(3)). Both use only environment variables and
// datagrams, so no library is needed.

#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "conn/options.h"

namespace service {

/// Returns the number of descriptors that systemd passed, starting at descriptor 3, and removes its
/// variables from the environment.
int take_listening_descriptors();

/// The protocol of sockets that systemd passed: "tcp" or "tls", optionally with options as in
/// "tls?cert=FILE&key=FILE". On a Unix socket the same protocol is used. Throws conn::Error for
/// other words.
class Activated {
 public:
  static constexpr std::array<std::string_view, 2> kTransports{"tcp", "tls"};
  static constexpr const char* kHelp =
      "Protocol of the sockets of systemd's socket activation: tcp or tls, with options as in "
      "tls?cert=FILE&key=FILE";

  explicit Activated(const std::string& text);

  /// Returns the transport for a listening socket, as a name in the registry.
  std::string transport(int fd) const;
  const conn::Options& options() const { return options_; }

 private:
  bool tls_;
  conn::Options options_;
};

/// Sends a notification such as "READY=1" or "STOPPING=1" to systemd. Does nothing without a
/// notification socket.
void notify(std::string_view state) noexcept;

}  // namespace service
