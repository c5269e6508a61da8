// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// A Unix socket whose name looks like the host and the port of another transport.

#include <sys/socket.h>
#include <sys/un.h>

#include <cstring>
#include <filesystem>

#include "tests/support/catch.h"
#include "tests/support/testing.h"

namespace testing {

inline constexpr char kLikeHostAndPort[] = "10.0.0.1:80";

/// Binds a Unix socket to that name, which only a relative path can have. The file is removed.
inline void bind_like_host_and_port(int fd) {
  const TempFolder folder;
  sockaddr_un at{};
  at.sun_family = AF_UNIX;
  std::memcpy(at.sun_path, kLikeHostAndPort, sizeof kLikeHostAndPort);
  const std::filesystem::path before = std::filesystem::current_path();
  std::filesystem::current_path(folder.path());
  const int result = ::bind(fd, reinterpret_cast<const sockaddr*>(&at), sizeof at);
  std::filesystem::current_path(before);
  REQUIRE(result == 0);
}

}  // namespace testing
