// SPDX-License-Identifier: BSD-3-Clause
#include "conn/tcp/vsock_type.h"

#include <sys/socket.h>

#include <linux/vm_sockets.h>

#include <cerrno>
#include <random>

#include "conn/error.h"
#include "conn/tcp/vsock.h"

namespace conn { inline namespace AECONN_ABI { namespace tcp {
namespace {

// For port 0 ports are tried at random: the kernel itself may choose a port above 65535, which a
// URL cannot contain.
constexpr int kTries = 64;
constexpr unsigned kFirstFree = 1024, kLastFree = 65535;

}  // namespace

VsockType::VsockType() : table_(vsock_options()) { configure({}); }

Settings VsockType::parse(const Options& options) const { return vsock_settings(options); }

bool VsockType::is_family(int family) const noexcept { return family == AF_VSOCK; }

void VsockType::check_address(const Endpoint& endpoint) const {
  if (!endpoint.path.empty() || endpoint.hosts.size() != 1 || endpoint.hosts.front().optional ||
      endpoint.no_port || vsock_address(endpoint).size == 0)
    throw Error("a vsock URL needs a context ID and a port, as in vsock://2:6379");
}

std::vector<SocketType::Bound> VsockType::bind(const Endpoint& endpoint,
                                               const Settings& settings) const {
  const auto fail = [&](int err) {
    throw Error(std::error_code(err, std::generic_category()),
                endpoint.to_string() + ": listen: " + vsock_error_text(err));
  };
  Fd fd = open_socket(AF_VSOCK);
  if (!fd) fail(errno);
  SocketAddress address = vsock_address(endpoint);
  std::random_device random;
  std::uniform_int_distribution<unsigned> draw(kFirstFree, kLastFree);
  for (int n = 1;; ++n) {
    if (endpoint.port == 0) address.set_port(static_cast<std::uint16_t>(draw(random)));
    if (::bind(fd.get(), address.get(), address.size) == 0) break;
    if (errno != EADDRINUSE || endpoint.port != 0 || n == kTries) fail(errno);
  }
  if (::listen(fd.get(), settings.backlog) != 0) fail(errno);
  Endpoint real;
  real.scheme = endpoint.scheme;
  real.hosts.push_back({address.host(), false});
  real.port = address.port();
  std::vector<Bound> sockets;
  sockets.push_back({std::move(fd), std::move(real), nullptr});
  return sockets;
}

}}}  // namespace conn::tcp
