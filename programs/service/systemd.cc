// SPDX-License-Identifier: BSD-3-Clause
#include "programs/service/systemd.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <string>

#include "conn/error.h"

namespace service {
namespace {

std::optional<long> number_in(const char* variable) {
  const char* const text = std::getenv(variable);
  if (text == nullptr) return std::nullopt;
  long value = 0;
  const char* const end = text + std::strlen(text);
  const auto [at, error] = std::from_chars(text, end, value);
  if (error != std::errc() || at != end) return std::nullopt;
  return value;
}

}  // namespace

int take_listening_descriptors() {
  const std::optional<long> process = number_in("LISTEN_PID"), count = number_in("LISTEN_FDS");
  for (const char* each : {"LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES"}) ::unsetenv(each);
  if (!process || *process != ::getpid() || !count || *count < 0 || *count > 1000) return 0;
  return static_cast<int>(*count);
}

Activated::Activated(const std::string& text) {
  const std::size_t end = std::min(text.find('?'), text.size());
  const std::string type = text.substr(0, end);
  if (std::find(kTransports.begin(), kTransports.end(), type) == kTransports.end())
    throw conn::Error("--activated " + text + ": expected tcp or tls, optionally with options");
  tls_ = type == "tls";
  if (end != text.size()) options_ = conn::Options::parse(text.substr(end + 1));
}

std::string Activated::transport(int fd) const {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  const bool is_unix = ::getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size) == 0 &&
                       address.ss_family == AF_UNIX;
  return is_unix ? (tls_ ? "tls+unix" : "unix") : (tls_ ? "tls" : "tcp");
}

void notify(std::string_view state) noexcept {
  const char* const path = std::getenv("NOTIFY_SOCKET");
  sockaddr_un address{};
  if (path == nullptr || (path[0] != '/' && path[0] != '@')) return;
  const std::size_t length = std::strlen(path);
  if (length >= sizeof address.sun_path) return;
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, path, length);
  if (path[0] == '@') address.sun_path[0] = '\0';  // abstract namespace: unix(7)
  const int fd = ::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return;
  const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + length);
  (void)::sendto(fd, state.data(), state.size(), MSG_NOSIGNAL,
                 reinterpret_cast<const sockaddr*>(&address), size);
  ::close(fd);
}

}  // namespace service
