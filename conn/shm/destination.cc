// SPDX-License-Identifier: BSD-3-Clause
#include "conn/shm/destination.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <new>
#include <utility>

#include "conn/kit/local_addresses.h"
#include "conn/tcp/socket.h"
#include "conn/url/percent.h"

namespace conn { inline namespace AECONN_ABI { namespace shm {
namespace {

// Names the network namespace of the calling thread, which opens the sockets: other threads may be
// in other ones.
constexpr const char* kNetwork = "/proc/thread-self/ns/net";

/// Stores the device and inode of a file, or of the file that a symbolic link leads to. Returns 0
/// or an errno value.
int identify(const char* path, Destination& out) noexcept {
  struct stat file {};
  if (::stat(path, &file) != 0) return errno;
  out.device = file.st_dev;
  out.inode = file.st_ino;
  return 0;
}

bool is_file(std::string_view text) noexcept {
  return text.starts_with('/') || text.starts_with("./");
}

/// Returns the destination (what a server has to serve) that is this path. Sets `why` if the path
/// does not exist.
Destination of_path(const std::string& path, Failure& why) {
  Destination one;
  const bool abstract = tcp::is_abstract(path);
  if (const int err = identify(abstract ? kNetwork : path.c_str(), one); err != 0 && !abstract) {
    why = errno_failure(err, "connect to " + path);
    return {};
  }
  // A relative path gets "./" in front, so that it cannot be taken for an address.
  one.text = percent_encode(abstract || is_file(path) ? path : "./" + path, UrlPart::kPath);
  return one;
}

/// Returns the address at which `address` is reached if it belongs to this machine, or an unset one
/// if it belongs to another. Connecting to 0.0.0.0 or :: leads to a loopback address.
SocketAddress here(SocketAddress address, const std::vector<SocketAddress>& local) noexcept {
  auto* const four = reinterpret_cast<sockaddr_in*>(&address.storage);
  auto* const six = reinterpret_cast<sockaddr_in6*>(&address.storage);
  if (address.family() == AF_INET && four->sin_addr.s_addr == htonl(INADDR_ANY))
    four->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (address.family() == AF_INET6 && IN6_IS_ADDR_UNSPECIFIED(&six->sin6_addr))
    six->sin6_addr = in6addr_loopback;
  const bool ours = is_loopback(address) || std::any_of(local.begin(), local.end(), [&](auto& one) {
                      return one.same_host(address);
                    });
  return ours ? address : SocketAddress();
}

std::string in_url(const std::string& host) {
  return host.find(':') == std::string::npos ? host : "[" + host + "]";
}

/// Joins hosts and a port as in a URL; leaves out the first host with which the text would exceed
/// `most` bytes, and all after it.
std::string join(const std::vector<std::string>& hosts, const std::string& port,
                 std::size_t most = std::string::npos) {
  std::string text;
  for (const std::string& host : hosts) {
    if (text.size() + host.size() + 1 + port.size() > most) break;
    text.append(text.empty() ? "" : ",").append(host);
  }
  return text + port;
}

}  // namespace

bool is_destination(std::string_view text) noexcept {
  return !text.empty() && text.size() <= kMostDestination &&
         std::all_of(text.begin(), text.end(), [](char c) { return c > ' ' && c < '\x7f'; });
}

// --- the server: which destinations it serves ----------------------------------------------------

Served::Served(const Endpoint& endpoint) {
  if (!endpoint.options.has("shm-path")) return;
  Failure ignored;
  if (endpoint.hosts.empty()) {
    own_ = of_path(endpoint.path, ignored);
    return;
  }
  for (const Endpoint::Host& host : endpoint.hosts) hosts_.push_back(in_url(host.name));
  port_ = ":" + std::to_string(endpoint.port);
  own_.text = join(hosts_, port_);
  (void)identify(kNetwork, own_);
}

std::string Served::why_not(const Destination& asked) const {
  if (asked.text.empty()) return {};
  if (own_.text.empty())
    return "this listener serves its path alone, not " + asked.text +
           " (a list of schemes with shm-path would)";
  const bool file = is_file(asked.text);
  const bool same = own_.device == asked.device && own_.inode == asked.inode && own_.inode != 0;
  if (file == is_file(own_.text)) {
    if (same && (file || has(asked.text))) return {};
    if (!file && (own_.inode == 0 || asked.inode == 0))
      return "the network namespace of server or client is not known (is /proc mounted?)";
    if (!file && !same) return "the client is in another network namespace";
  }
  return "this server serves " + own_.text + ", not " + asked.text;
}

/// Whether the server serves one of the addresses in `text`, or the abstract name `text`. The
/// client has checked that the addresses belong to this machine, so a listener on 0.0.0.0 or [::]
/// serves them.
bool Served::has(std::string_view text) const {
  if (hosts_.empty() || text.starts_with('@')) return text == own_.text;
  if (!text.ends_with(port_)) return false;
  text.remove_suffix(port_.size());
  for (;;) {
    const std::size_t comma = text.find(',');
    const std::string_view one = text.substr(0, comma);
    const std::string_view all = one.starts_with('[') ? "[::]" : "0.0.0.0";
    if (std::any_of(hosts_.begin(), hosts_.end(),
                    [&](const std::string& each) { return each == one || each == all; }))
      return true;
    if (comma == text.npos) return false;
    text.remove_prefix(comma + 1);
  }
}

// --- the client: the destination of its endpoint -------------------------------------------------

Destination destination_of(const Endpoint& to, const std::vector<SocketAddress>& found,
                           Failure& why) {
  if (to.hosts.empty()) return of_path(to.path, why);
  const std::vector<SocketAddress> local = local_addresses();
  std::vector<std::string> hosts;
  for (const SocketAddress& each : found) {
    const SocketAddress one = here(each, local);
    if (one.size == 0) continue;
    std::string host = in_url(one.host());
    if (std::find(hosts.begin(), hosts.end(), host) == hosts.end())
      hosts.push_back(std::move(host));
  }
  if (!hosts.empty()) {
    Destination one{join(hosts, ":" + std::to_string(to.port), kMostDestination)};
    (void)identify(kNetwork, one);
    return one;
  }
  if (found.empty() && why) return {};
  std::string names;
  for (const Endpoint::Host& host : to.hosts)
    names.append(names.empty() ? "" : ", ").append(host.name);
  why = {std::make_error_code(std::errc::host_unreachable),
         to.hosts.size() == 1 ? names + " is not this host" : "none of " + names + " is this host"};
  return {};
}

}}}  // namespace conn::shm
