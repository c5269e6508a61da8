// SPDX-License-Identifier: BSD-3-Clause
#include "conn/tcp/vsock.h"

#include <fcntl.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <linux/vm_sockets.h>

#include <cerrno>
#include <charconv>

#include "conn/error.h"
#include "conn/tcp/socket.h"

namespace conn { inline namespace AECONN_ABI { namespace tcp {
namespace {

unsigned cid_of(const SocketAddress& address) noexcept {
  return reinterpret_cast<const sockaddr_vm*>(address.get())->svm_cid;
}

}  // namespace

SocketAddress vsock_address(const Endpoint& endpoint) {
  SocketAddress address;
  if (endpoint.hosts.empty()) return address;
  const std::string& host = endpoint.hosts.front().name;
  unsigned cid = VMADDR_CID_ANY;
  const char* const end = host.data() + host.size();
  if (host != "*") {
    const auto [rest, error] = std::from_chars(host.data(), end, cid);
    if (error != std::errc() || rest != end) return address;
  }
  auto* local = reinterpret_cast<sockaddr_vm*>(address.get());
  local->svm_family = AF_VSOCK;
  local->svm_cid = cid;
  local->svm_port = endpoint.port;
  address.size = sizeof *local;
  return address;
}

void set_own_cid(SocketAddress& local, const SocketAddress& peer) noexcept {
  auto* ours = reinterpret_cast<sockaddr_vm*>(local.get());
  if (local.family() != AF_VSOCK || ours->svm_cid != VMADDR_CID_ANY) return;
  if (cid_of(peer) == VMADDR_CID_LOCAL) {
    ours->svm_cid = VMADDR_CID_LOCAL;
    return;
  }
  const Fd device(::open("/dev/vsock", O_RDONLY | O_CLOEXEC));
  unsigned cid = 0;
  if (device && ioctl(device.get(), IOCTL_VM_SOCKETS_GET_LOCAL_CID, &cid) == 0) ours->svm_cid = cid;
}

std::optional<bool> is_same_machine(int fd) noexcept {
  const SocketAddress peer = peer_address_of(fd);
  SocketAddress local = local_address_of(fd);
  if (peer.family() != AF_VSOCK || local.family() != AF_VSOCK) return std::nullopt;
  set_own_cid(local, peer);
  const unsigned theirs = cid_of(peer), ours = cid_of(local);
  if (theirs == VMADDR_CID_LOCAL || theirs == ours) return true;
  return ours == VMADDR_CID_ANY ? std::nullopt : std::optional(false);
}

std::string vsock_error_text(int err) {
  const std::string text = errno_text(err);
  switch (err) {
    case EAFNOSUPPORT:
      return text + "; this kernel has no vsock, or its module vsock is not loaded";
    case EACCES:
      return text + "; ports below 1024 need the capability CAP_NET_BIND_SERVICE";
    case EPERM:
      return text + "; does a sandbox, such as a container's filter of system calls, forbid vsock?";
    case EADDRNOTAVAIL:
      return text +
             "; the context ID is not this machine's: * is any, and 1 needs the module "
             "vsock_loopback";
    case ENODEV:
    case ENETUNREACH:
      return text +
             "; no module of this kernel leads to that context ID: vsock_loopback leads to "
             "1, vhost_vsock to the virtual machines of this host, and a virtual machine "
             "needs a vsock device to reach its host";
    default:
      return text;
  }
}

SocketAddress fixed_address(const Endpoint& endpoint) {
  if (!endpoint.path.empty()) return unix_address(endpoint.path);
  return endpoint.scheme == "vsock" ? vsock_address(endpoint) : SocketAddress();
}

}}}  // namespace conn::tcp
