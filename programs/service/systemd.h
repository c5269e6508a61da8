// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// What systemd asks of a service: sockets that it opened (sd_listen_fds(3)) and the word that the
// service is ready, or about to end (sd_notify(3)). Both are environment variables and datagrams,
// so no library is needed.

#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "conn/options.h"

namespace service {

/// How many descriptors were handed over, from 3 on; takes the variables out of the environment.
int take_listening_descriptors();

/// What such sockets speak: "tcp" or "tls", and options after it as in "tls?cert=FILE&key=FILE".
/// One that is a Unix socket speaks the same over that. Throws conn::Error for other words.
class Activated {
 public:
  static constexpr std::array<std::string_view, 2> kTransports{"tcp", "tls"};
  static constexpr const char* kHelp =
      "What sockets of systemd's socket activation speak: tcp or tls, and options after it as "
      "tls?cert=FILE&key=FILE";

  explicit Activated(const std::string& text);

  /// The transport of a listening socket, a name of the registry's.
  std::string transport(int fd) const;
  const conn::Options& options() const { return options_; }

 private:
  bool tls_;
  conn::Options options_;
};

/// "READY=1", "STOPPING=1". Nothing where nobody listens.
void notify(std::string_view state) noexcept;

}  // namespace service
