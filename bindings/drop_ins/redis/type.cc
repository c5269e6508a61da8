// SPDX-License-Identifier: BSD-3-Clause
// The server's table of connection operations, implemented with conn::Connection.

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <memory>
#include <unordered_set>
#include <utility>

#include "conn/kit/errno_of.h"
#include "drop_ins/redis/errand.h"
#include "drop_ins/redis/host.h"

namespace aeconn_redis {
namespace {

// The server's C code calls these functions and cannot propagate exceptions: they are noexcept, and
// the process terminates if memory is exhausted, as the server itself does.

struct Link;
std::unordered_set<Link*>& links() {
  static std::unordered_set<Link*> all;
  return all;
}

struct Link {
  Link(ServerType* type, conn::ConnectionPtr connection)
      : made_as(type), peer(std::move(connection)) {
    links().insert(this);
  }
  Link(const Link&) = delete;
  Link& operator=(const Link&) = delete;
  ~Link() { links().erase(this); }

  ServerType* made_as;  // the object's original type, which frees it
  conn::ConnectionPtr peer;
  ServerHandler connected = nullptr;
  std::string error;
};

Link* link_of(ServerConnection* c) noexcept {
  return reinterpret_cast<Link*>(handlers_of(c).connected);
}
conn::Connection* peer_of(ServerConnection* c) noexcept { return link_of(c)->peer.get(); }

constexpr ae::Duration kALook = std::chrono::milliseconds(100);
// Longer time-outs than a year are cut to it, so that the time at which they end can be computed.
ae::Duration milliseconds(long long ms) {
  return std::chrono::milliseconds(std::min(ms, 365LL * 24 * 3600 * 1000));
}

void free_object(ServerConnection* c) noexcept {
  const std::unique_ptr<Link> link(link_of(c));
  handlers_of(c).connected = nullptr;
  c->state = kNone;  // its original transport has never left this state
  c->type = link->made_as;
  get(c->type, slots::close)(c);
}

/// Like the server's own types, defers a close within a handler until the handler returns. Returns
/// false if the object was closed.
bool call(ServerConnection* c, ServerHandler handler) noexcept {
  ++c->refs;
  if (handler != nullptr) handler(c);
  --c->refs;
  if ((c->flags & kCloseScheduled) == 0) return true;
  if (c->refs == 0) free_object(c);
  return false;
}

void close(ServerConnection* c) noexcept {
  link_of(c)->peer.reset();
  if (c->refs != 0)
    c->flags = static_cast<short>(c->flags | kCloseScheduled);
  else
    free_object(c);
}

void shutdown(ServerConnection* c) noexcept {
  if (peer_of(c) != nullptr) peer_of(c)->shutdown_both();
}

int result(ServerConnection* c, ssize_t n) noexcept {
  if (n < 0 && errno != EAGAIN) {
    c->last_errno = errno;
    if (c->state == kConnected) c->state = kError;
  }
  return static_cast<int>(n);
}

int write(ServerConnection* c, const void* data, std::size_t size) noexcept {
  return peer_of(c) ? result(c, peer_of(c)->write(data, size)) : (errno = EPIPE, -1);
}
int writev(ServerConnection* c, const iovec* vectors, int count) noexcept {
  return peer_of(c) ? result(c, peer_of(c)->writev(vectors, count)) : (errno = EPIPE, -1);
}
int read(ServerConnection* c, void* buffer, std::size_t size) noexcept {
  if (!Host::here()) {
    // The caller retries, and in between checks whether the main thread wants it to end.
    const ssize_t n = read_elsewhere(c, buffer, size, kALook, link_of(c)->error);
    if (n == 0 && size != 0) c->state = kClosed;
    return result(c, n);
  }
  conn::Connection* peer = peer_of(c);
  if (peer == nullptr) return errno = ENOTCONN, -1;
  ssize_t n = peer->read(buffer, size);
  // If the server loads data from a connection, it has made it blocking and removed its handler.
  if (n < 0 && errno == EAGAIN && handlers_of(c).readable == nullptr) {
    const bool there = peer->sync_wait(ae::kReadable, host->time_limit());
    n = there ? peer->read(buffer, size) : -1;
    if (!there) errno = EAGAIN;
  }
  if (n == 0 && size != 0 && c->state == kConnected) c->state = kClosed;
  return result(c, n);
}

int set_write_handler(ServerConnection* c, ServerHandler handler, int barrier) noexcept {
  if (handler == handlers_of(c).writable) return kOk;
  handlers_of(c).writable = handler;
  c->flags = static_cast<short>(barrier ? c->flags | kWriteBarrier : c->flags & ~kWriteBarrier);
  if (peer_of(c) == nullptr) return kErr;
  conn::Connection::Handler run;
  if (handler != nullptr) run = [c](conn::Connection&) { call(c, handlers_of(c).writable); };
  peer_of(c)->set_write_handler(std::move(run), barrier ? conn::Barrier::kYes : conn::Barrier::kNo);
  return kOk;
}
int set_read_handler(ServerConnection* c, ServerHandler handler) noexcept {
  if (handler == handlers_of(c).readable) return kOk;
  handlers_of(c).readable = handler;
  if (peer_of(c) == nullptr) return kErr;
  conn::Connection::Handler run;
  if (handler != nullptr) run = [c](conn::Connection&) { call(c, handlers_of(c).readable); };
  peer_of(c)->set_read_handler(std::move(run));
  return kOk;
}

int accept(ServerConnection* c, ServerHandler handler) noexcept {
  if (c->state != kAccepting) return kErr;
  c->state = kConnected;
  ++c->refs;  // a close in the handler is completed by the caller
  const bool there = call(c, handler);
  --c->refs;
  return there ? kOk : kErr;
}

const char* get_last_error(ServerConnection* c) noexcept {
  Link* link = link_of(c);
  if (Host::here() && link->peer != nullptr && !link->peer->last_error().empty())
    link->error = link->peer->last_error();
  return link->error.empty() ? std::strerror(c->last_errno) : link->error.c_str();
}

ssize_t sync_write(ServerConnection* c, char* data, ssize_t size, long long ms) noexcept {
  if (peer_of(c) == nullptr) return errno = EPIPE, -1;
  return peer_of(c)->sync_write(data, static_cast<std::size_t>(size), milliseconds(ms));
}
ssize_t sync_read(ServerConnection* c, char* data, ssize_t size, long long ms) noexcept {
  if (peer_of(c) == nullptr) return errno = ENOTCONN, -1;
  const ssize_t n = peer_of(c)->sync_read(data, static_cast<std::size_t>(size), milliseconds(ms));
  return n == size ? n : -1;  // as the server's own types: all bytes or an error
}
ssize_t sync_readline(ServerConnection* c, char* data, ssize_t size, long long ms) noexcept {
  if (!Host::here())
    return readline_elsewhere(c, data, static_cast<std::size_t>(size), milliseconds(ms),
                              link_of(c)->error);
  if (peer_of(c) == nullptr) return errno = ENOTCONN, -1;
  return peer_of(c)->sync_readline(data, static_cast<std::size_t>(size), milliseconds(ms));
}

int addr(ServerConnection* c, char* ip, std::size_t size, int* port, int remote) noexcept {
  if (peer_of(c) == nullptr) return kErr;
  const conn::Address at = remote ? peer_of(c)->peer_host_port() : peer_of(c)->local_host_port();
  if (ip != nullptr) std::snprintf(ip, size, "%s", at.host.c_str());
  if (port != nullptr) *port = at.port;
  return kOk;
}
int is_local(ServerConnection* c) noexcept {
  return peer_of(c) ? peer_of(c)->is_local().value_or(false) : kErr;
}

int listen(ServerListener* listener) noexcept {
  try {
    host->listen(*listener);
    return kOk;
  } catch (const std::exception& error) {
    log_warning(std::string("aeconn: ") + error.what());
    return kErr;
  }
}

char* get_peer_cert(ServerConnection* c) noexcept {
  const std::string pem = peer_of(c) ? peer_of(c)->peer_certificate() : std::string();
  return pem.empty() ? nullptr : server.new_sds(pem.data(), pem.size());
}

void accept_handler(ServerLoop* of_server, int, void*, int) noexcept { host->turn(of_server); }

// --- connections initiated by the server: its own types, for addresses that are URLs -------------

struct Hooked {
  ServerType* type;
  ServerType before;
};
Hooked tcp, tls;  // the server's own types and their original functions

const ServerType* before(ServerConnection* c) {
  return c->type == tls.type ? &tls.before : &tcp.before;
}

/// From "rdma://host" and 6379, "tls://host?ca=x" and 6379, or "unix:///path" and any port.
std::string url_of(const std::string& address, int port) {
  const std::size_t scheme = address.find("://");
  if (conn::carries_path(address.substr(0, scheme))) return address;
  const std::size_t options = std::min(address.find('?'), address.size());
  return address.substr(0, options) + ":" + std::to_string(port) + address.substr(options);
}

std::string url_for(const char* address, int port, bool replication) {
  const std::string text = address;
  if (text.find("://") != std::string::npos) return url_of(text, port);
  if (!replication || host->replicate().empty()) return {};
  const bool v6 = text.find(':') != std::string::npos;
  std::string url = host->replicate();
  const std::size_t options = std::min(url.find('?'), url.size());
  return url_of(url.insert(options, "://" + (v6 ? "[" + text + "]" : text)), port);
}

/// A failure before the connection attempt: the object may still have the server's own type.
int failed(ServerConnection* c, const std::exception& error) noexcept {
  log_warning(std::string("aeconn: ") + error.what());
  c->state = kError;
  c->last_errno = EINVAL;
  return kErr;
}

void connected(ServerConnection* c, bool there) {
  c->state = there ? kConnected : kError;
  if (there) return;
  c->last_errno = conn::errno_of({peer_of(c)->error_code(), {}});
  log_warning("aeconn: " + peer_of(c)->last_error());
}

int connect_ours(ServerConnection* c, const std::string& url, ServerHandler handler) noexcept {
  try {
    const conn::Endpoint to = conn::Endpoint::parse(url);
    become_ours(c, host->registry().create(host->loop(), to), kConnecting);
    link_of(c)->connected = handler;
    peer_of(c)->connect(to, [c](conn::Connection& peer) {  // not called after a close
      connected(c, peer.state() == conn::State::kConnected);
      call(c, std::exchange(link_of(c)->connected, nullptr));
    });
    return kOk;
  } catch (const std::exception& error) {
    return failed(c, error);
  }
}

int connect_multipath(ServerConnection* c, const char* address, int port, const char* from,
                      int multipath, ServerHandler handler) noexcept {
  const std::string url = url_for(address, port, handler == server.sync_with_primary);
  if (!url.empty()) return connect_ours(c, url, handler);
  return get(before(c), slots::connect_multipath)(c, address, port, from, multipath, handler);
}
int connect(ServerConnection* c, const char* address, int port, const char* from,
            ServerHandler handler) noexcept {
  const std::string url = url_for(address, port, handler == server.sync_with_primary);
  if (!url.empty()) return connect_ours(c, url, handler);
  return get(before(c), slots::connect)(c, address, port, from, handler);
}

int blocking_connect(ServerConnection* c, const char* address, int port, long long ms) noexcept {
  const std::string url = url_for(address, port, false);
  if (url.empty()) return get(before(c), slots::blocking_connect)(c, address, port, ms);
  try {
    const conn::Endpoint to = conn::Endpoint::parse(url);
    become_ours(c, host->registry().create(host->loop(), to), kConnecting);
    const bool there = peer_of(c)->connect_blocking(to, milliseconds(ms));
    connected(c, there);
    return there ? kOk : kErr;
  } catch (const std::exception& error) {
    return failed(c, error);
  }
}

void put_connects(ServerType& type) {
  if (layout->multipath)
    put(type, slots::connect_multipath, connect_multipath);
  else
    put(type, slots::connect, connect);
  put(type, slots::blocking_connect, blocking_connect);
}

}  // namespace

ServerType our_type;

void make_our_type() {
  ServerType& type = our_type = {};
  if (layout->numbered)
    put(type, slots::get_type_number, [] { return static_cast<int>(TypeId::ours); });
  else
    put(type, slots::get_type_name, [](ServerConnection*) { return layout->our_name; });
  if (layout->loops)
    put(type, slots::conn_create_in_loop, new_connection);
  else
    put(type, slots::conn_create, [] { return new_connection(nullptr); });
  put(type, slots::close_listener, [](ServerListener* listener) { host->close_port(*listener); });
  put(type, slots::integrity_checked, [] { return 0; });
  put(type, slots::unbind_event_loop, [](ServerConnection*) {});  // for io-threads: refused
  put(type, slots::rebind_event_loop, [](ServerConnection*, ServerLoop*) { return kErr; });
  put(type, slots::accept_handler, accept_handler);
  put(type, slots::addr, addr);
  put(type, slots::is_local, is_local);
  put(type, slots::listen, listen);
  put(type, slots::shutdown, shutdown);
  put(type, slots::close, close);
  put_connects(type);
  put(type, slots::accept, accept);
  put(type, slots::write, write);
  put(type, slots::writev, writev);
  put(type, slots::read, read);
  put(type, slots::set_write_handler, set_write_handler);
  put(type, slots::set_read_handler, set_read_handler);
  put(type, slots::get_last_error, get_last_error);
  put(type, slots::sync_write, sync_write);
  put(type, slots::sync_read, sync_read);
  put(type, slots::sync_readline, sync_readline);
  put(type, slots::get_peer_cert, get_peer_cert);
}

void become_ours(ServerConnection* object, conn::ConnectionPtr peer, ServerState state) {
  auto link = std::make_unique<Link>(object->type, std::move(peer));
  object->type = &our_type;
  object->state = state;
  handlers_of(object).connected = reinterpret_cast<ServerHandler>(link.release());
}

conn::Connection* connection_of(ServerConnection* object) noexcept { return peer_of(object); }

void close_all() noexcept {
  for (Link* link : links()) link->peer.reset();
}

void hook_connects() {
  tcp.type = server.tcp();
  tls.type = server.tls();
  for (Hooked* one : {&tcp, &tls}) {
    if (one->type == nullptr) continue;
    std::memcpy(&one->before, one->type, layout->words() * sizeof(void*));
    put_connects(*one->type);
  }
}

}  // namespace aeconn_redis
