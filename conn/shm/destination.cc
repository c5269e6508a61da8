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

/// Stores the device and inode of a file, or of the file that a symbolic link leads to. Returns 0
/// or an errno value.
int identify(const char* path, Destination& out) noexcept {
  struct stat file {};
  if (::stat(path, &file) != 0) return errno;
  out.device = file.st_dev;
  out.inode = file.st_ino;
  return 0;
}

/// Stores the identity of the calling thread's network namespace: threads may be in different ones,
/// and the calling thread opens the sockets.
void identify_network(Destination& out) noexcept {
  (void)identify("/proc/thread-self/ns/net", out);
}

bool is_file(std::string_view text) noexcept {
  return text.starts_with('/') || text.starts_with("./");
}

/// Percent-encodes a path. A relative path gets "./" in front, with which no address begins.
std::string path_text(const std::string& path) {
  return percent_encode(is_file(path) || tcp::is_abstract(path) ? path : "./" + path,
                        UrlPart::kPath);
}

/// Returns the destination of a path. Sets `why` if it does not exist.
Destination of_path(const std::string& path, Failure& why) {
  Destination one;
  if (tcp::is_abstract(path)) {
    identify_network(one);
  } else if (const int err = identify(path.c_str(), one); err != 0) {
    why = errno_failure(err, "connect to " + path);
    return {};
  }
  one.text = path_text(path);
  return one;
}

/// Returns the address through which `address` is reached here, or an unset one if it belongs to
/// another machine. Connecting to 0.0.0.0 or :: leads to a loopback address.
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

/// Joins hosts and a port as in a URL; leaves out those that do not fit into `most` bytes.
std::string join(const std::vector<std::string>& hosts, std::uint16_t port, std::size_t most) {
  const std::string end = ":" + std::to_string(port);
  std::string text;
  for (const std::string& host : hosts) {
    const bool bracket = host.find(':') != std::string::npos;
    const std::string one = bracket ? "[" + host + "]" : host;
    if (text.size() + one.size() + 1 + end.size() > most) break;
    text.append(text.empty() ? "" : ",").append(one);
  }
  return text + end;
}

Destination of_addresses(const Endpoint& to, const std::vector<SocketAddress>& found,
                         Failure& why) {
  const std::vector<SocketAddress> local = local_addresses();
  std::vector<std::string> hosts;
  for (const SocketAddress& each : found) {
    const SocketAddress one = here(each, local);
    if (one.size == 0) continue;
    std::string host = one.host();
    if (std::find(hosts.begin(), hosts.end(), host) == hosts.end())
      hosts.push_back(std::move(host));
  }
  if (!hosts.empty()) {
    Destination one{join(hosts, to.port, kMostDestination)};
    identify_network(one);
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

/// Splits "a,[b]:1" into hosts and the port, the part from the last ':' on.
std::pair<std::string_view, std::string_view> split(std::string_view text) noexcept {
  const std::size_t colon = text.rfind(':');
  if (colon == text.npos) return {text, {}};
  return {text.substr(0, colon), text.substr(colon)};
}

/// Calls `wanted` with each host of "a,[b]", until one call returns true; returns whether one did.
template <class Wanted>
bool any_host(std::string_view hosts, Wanted wanted) {
  for (;;) {
    const std::size_t comma = hosts.find(',');
    if (wanted(hosts.substr(0, comma))) return true;
    if (comma == hosts.npos) return false;
    hosts.remove_prefix(comma + 1);
  }
}

}  // namespace

bool is_destination(std::string_view text) noexcept {
  return !text.empty() && text.size() <= kMostDestination &&
         std::all_of(text.begin(), text.end(), [](char c) { return c > ' ' && c < '\x7f'; });
}

// --- the server ----------------------------------------------------------------------------------

Served::Served(const Endpoint& endpoint) {
  if (!endpoint.options.has("shm-path")) return;
  Failure ignored;
  if (endpoint.hosts.empty()) {
    own_ = of_path(endpoint.path, ignored);
    return;
  }
  std::vector<std::string> hosts;
  for (const Endpoint::Host& host : endpoint.hosts) hosts.push_back(host.name);
  own_.text = join(hosts, endpoint.port, std::string::npos);
  identify_network(own_);
}

std::string Served::why_not(const Destination& asked) const {
  if (asked.text.empty()) return {};
  if (own_.text.empty())
    return "this listener serves its path alone, not " + asked.text +
           " (a list of schemes with shm-path would)";
  const bool same = own_.device == asked.device && own_.inode == asked.inode && own_.inode != 0;
  if (is_file(asked.text) != is_file(own_.text) || (is_file(asked.text) && !same))
    return "this server serves " + own_.text + ", not " + asked.text;
  if (is_file(asked.text)) return {};
  if (!same) {
    return own_.inode == 0 || asked.inode == 0
               ? "the network namespace of server or client is not known (is /proc mounted?)"
               : "the client is in another network namespace";
  }
  if (!has(asked.text)) return "this server serves " + own_.text + ", not " + asked.text;
  return {};
}

/// Whether the server serves one of these addresses, or this abstract name. The client has checked
/// that the addresses belong to this machine, so a listener on 0.0.0.0 or [::] serves them.
bool Served::has(std::string_view text) const {
  if (text.starts_with('@') || own_.text.starts_with('@')) return text == own_.text;
  const auto [asked, port] = split(text);
  const auto [own, own_port] = split(own_.text);
  if (port != own_port) return false;
  return any_host(asked, [&, served = own](std::string_view one) {
    const std::string_view all = one.starts_with('[') ? "[::]" : "0.0.0.0";
    return any_host(served, [&](std::string_view each) { return each == one || each == all; });
  });
}

// --- the client ----------------------------------------------------------------------------------

DestinationLookup::DestinationLookup(ae::EventLoop& loop, const Endpoint& to, Done done)
    : loop_(loop), to_(to), done_(std::move(done)) {
  if (!to_.hosts.empty()) {
    next_host();
    return;
  }
  timer_ = loop_.add_time_event(ae::Duration::zero(), [this] {
    timer_ = 0;
    finish();
    return ae::kNoMore;
  });
}

DestinationLookup::~DestinationLookup() {
  if (timer_ != 0) loop_.remove_time_event(timer_);
}

void DestinationLookup::next_host() {
  resolution_ = resolve_async(loop_, to_.hosts[host_++].name, to_.port,
                              [this](Resolved answer) { resolved(std::move(answer)); });
}

void DestinationLookup::resolved(Resolved answer) {
  resolution_.reset();
  try {
    if (answer.failure) failure_ = std::move(answer.failure);
    found_.insert(found_.end(), answer.addresses.begin(), answer.addresses.end());
    if (host_ < to_.hosts.size()) return next_host();
  } catch (const std::bad_alloc&) {
    found_.clear();
    failure_ = out_of_memory();
  }
  finish();
}

void DestinationLookup::finish() {
  Destination one;
  try {
    one = to_.hosts.empty() ? of_path(to_.path, failure_) : of_addresses(to_, found_, failure_);
  } catch (const std::bad_alloc&) {
    failure_ = out_of_memory();
  }
  Failure why = one.text.empty() ? std::move(failure_) : Failure();
  const Done done = std::move(done_);
  done(std::move(one), std::move(why));
}

Destination DestinationLookup::wait(const Endpoint& to, ae::TimePoint deadline, Failure& why) {
  if (to.hosts.empty()) return of_path(to.path, why);
  std::vector<SocketAddress> found;
  for (const Endpoint::Host& host : to.hosts) {
    Resolved answer = resolve_until(host.name, to.port, deadline);
    if (answer.failure) why = std::move(answer.failure);
    found.insert(found.end(), answer.addresses.begin(), answer.addresses.end());
  }
  Destination one = of_addresses(to, found, why);
  if (!one.text.empty()) why = {};
  return one;
}

}}}  // namespace conn::shm
