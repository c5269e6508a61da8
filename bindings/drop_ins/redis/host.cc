// SPDX-License-Identifier: BSD-3-Clause
#include "drop_ins/redis/host.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <sstream>
#include <string_view>
#include <system_error>
#include <thread>
#include <utility>

#include "drop_ins/redis/layout.h"
#include "drop_ins/redis/module_api.h"

namespace aeconn_redis {

Host* host = nullptr;

namespace {

// Never destroyed: threads of the server keep running after the module has ended and during static
// destruction.
std::thread::id main_thread;
ae::Poster& to_loop() noexcept {
  static auto* const kept = new ae::Poster;
  return *kept;
}

std::vector<std::string> words(const std::string& text) {
  std::istringstream in(text);
  std::vector<std::string> all;
  for (std::string word; in >> word;) all.push_back(word);
  return all;
}

/// "-::1", where '-' marks an address that may be missing, becomes "-[::1]" in a URL; "::*" becomes
/// "[::]".
std::string in_url(std::string address) {
  if (address.find(':') == std::string::npos) return address;
  if (address.ends_with("::*")) address.pop_back();
  return address.insert(address.starts_with('-') ? 1 : 0, "[") + "]";
}

/// The URL for Valkey's rdma-port and rdma-bind; empty if it must not listen.
std::string port_of(const ServerListener& listener) {
  if (listener.port == 0) return {};
  std::string hosts;
  for (int i = 0; i < listener.bindaddr_count; ++i)
    hosts += (i == 0 ? "" : ",") + in_url(listener.bindaddr[i]);
  return "rdma://" + (hosts.empty() ? "*,-[::]" : hosts) + ":" + std::to_string(listener.port);
}

/// Whether an entry of /proc/self/fd refers to an RDMA device file. The kernel destroys the
/// listening ids and queue pairs created through such a file when its last copy is closed.
bool is_rdma(int folder, const char* name) noexcept {
  constexpr std::string_view devices = "/dev/infiniband/";
  char target[devices.size()];
  const ssize_t size = readlinkat(folder, name, target, sizeof target);
  return size == ssize_t{sizeof target} && std::string_view(target, sizeof target) == devices;
}

void our_before_sleep(ServerLoop* of_server) {
  server.before_sleep(of_server);
  host->before_sleep();
}

}  // namespace

void log_warning(const std::string& sentence) noexcept {
  api.Log(nullptr, "warning", "%s", sentence.c_str());
}

Host::Host() {
  conn::add_all_transports(registry_);
  main_thread = std::this_thread::get_id();
  to_loop() = loop_.poster();
}

bool Host::here() noexcept { return std::this_thread::get_id() == main_thread; }
const ae::Poster& Host::poster() noexcept { return to_loop(); }

void Host::set_urls(const std::string& urls) {
  std::map<std::string, conn::ListenerPtr> next;
  for (const std::string& url : words(urls)) {
    const conn::Endpoint endpoint = conn::Endpoint::parse(url);
    registry_.require(endpoint.scheme).check(endpoint);
    if (next.contains(url)) throw conn::Error("aeconn: " + url + " is named twice");
    next[url] = listening_ && !listeners_.contains(url) ? open(url) : nullptr;
  }
  urls_ = urls;
  show_urls();
  if (!listening_) return;
  for (auto& [url, listener] : next)
    if (listener == nullptr) listener = std::move(listeners_[url]);
  listeners_ = std::move(next);
}

void Host::set_replicate(const std::string& scheme) {
  if (!scheme.empty()) {
    const std::size_t mark = std::min(scheme.find('?'), scheme.size());
    const std::string name = scheme.substr(0, mark);
    const conn::ConnectionType& type = registry_.require(name);
    if (conn::carries_path(name))
      throw conn::Error(name + " leads to a path, and a primary has a host and a port");
    const auto to = conn::Endpoint::parse(name + "://primary:6379" + scheme.substr(mark));
    type.check(to);
    // Also reads the files. Options given to configure() would apply to all connections, so
    // registry_ is not used.
    conn::all_transports().require(name).configure(to.options);
  }
  replicate_ = scheme;
}

conn::ListenerPtr Host::open(const std::string& url) {
  return registry_.listen(loop_, url, [this](conn::ConnectionPtr peer) {
    std::string ip = peer->peer_host_port().host;
    accepted(adopt(std::move(peer)), ip.data());
  });
}

void Host::listen(ServerListener& listener) {
  const std::string port = port_of(listener);
  show_in(listener);  // even if the following code throws
  if (!listening_) {
    if (const std::string why = listeners_unfit(); !why.empty()) throw conn::Error(why);
    for (const std::string& url : words(urls_)) listeners_[url] = open(url);
    listening_ = true;
    // A duplicate, because the server closes the descriptors it polls when it ends, and so do its
    // children.
    listener.fd[0] = fcntl(loop_.descriptor(), F_DUPFD_CLOEXEC, 0);
    if (listener.fd[0] < 0) throw std::system_error(errno, std::generic_category(), "dup");
    listener.count = 1;
  }
  if (port.empty()) return;
  port_ = open(port);
  port_url_ = port;
  show_urls();
}

void Host::close_port(ServerListener& listener) noexcept {
  port_.reset();
  port_url_.clear();
  show_urls();
  if (listener.port == 0) show_in(listener);  // else listen() reads its fields first
}

void Host::show_urls() {
  shown_ = urls_ + (urls_.empty() || port_url_.empty() ? "" : " ") + port_url_;
  bind_[0] = shown_.data();
}

void Host::show_in(ServerListener& listener) noexcept {
  listener.bindaddr = bind_;
  listener.bindaddr_count = 1;
}

void Host::turn(ServerLoop* of_server) noexcept {
  if (of_server_ == nullptr) {
    of_server_ = of_server;
    server.set_before_sleep(of_server, our_before_sleep);
  }
  try {
    loop_.dispatch();
  } catch (const std::exception& error) {
    log_warning(std::string("aeconn: ") + error.what());
  }
}

void Host::before_sleep() noexcept {
  try {
    loop_.prepare();  // needed also when the server polls within one of our handlers
  } catch (const std::exception& error) {
    log_warning(std::string("aeconn: ") + error.what());
  }
}

void Host::forked() noexcept {
  DIR* const all = host != nullptr ? opendir("/proc/self/fd") : nullptr;
  if (all == nullptr) return;
  while (const dirent* entry = readdir(all)) {
    const int fd = std::atoi(entry->d_name);  // 0 for "." and "..", which is never one of ours
    int listens = 0;
    socklen_t size = sizeof listens;
    const bool is_listener = host->loop_.file_events(fd) != ae::kNone &&
                             getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &size) == 0 &&
                             listens != 0;
    // Closes descriptors directly: the loop's epoll instance belongs to the parent, and librdmacm
    // and libibverbs would destroy objects that belong to the parent.
    if (is_listener || is_rdma(dirfd(all), entry->d_name)) ::close(fd);
  }
  closedir(all);
}

void Host::end() noexcept {
  host->listeners_.clear();
  host->port_.reset();
  close_all();
  if (host->loop_.in_handler())  // SHUTDOWN was received on one of our connections
    host->before_sleep();
  else
    delete std::exchange(host, nullptr);
}

ServerConnection* Host::adopt(conn::ConnectionPtr peer) {
  ServerConnection* object = new_connection(of_server_);
  become_ours(object, std::move(peer), kAccepting);
  return object;
}

}  // namespace aeconn_redis
