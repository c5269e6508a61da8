// SPDX-License-Identifier: BSD-3-Clause
// The C interface: connections, their data and their properties.

#include <sys/socket.h>

#include <algorithm>
#include <cstring>

#include "adapters/descriptor.h"
#include "c/internal.h"
#include "conn/fallback_type.h"

using namespace aeconn_c;

struct aeconn_memory {
  std::unique_ptr<conn::Memory> memory;
};

namespace {

/// Copies an address as getpeername(2) does: as much as fits, and sets `*size` to the full size.
int copy_address(const sockaddr_storage& from, std::size_t length, sockaddr* to, socklen_t* size) {
  if (length == 0) {
    errno = ENOTCONN;
    return -1;
  }
  std::memcpy(to, &from, std::min<std::size_t>(length, *size));
  *size = static_cast<socklen_t>(length);
  return 0;
}

std::size_t address(const conn::Address& parts, char* host, std::size_t size, std::uint16_t* port) {
  if (port != nullptr) *port = parts.port;
  return copy_out(parts.host, host, size);
}

}  // namespace

extern "C" {

// --- connections ---------------------------------------------------------------------------------

aeconn_conn* aeconn_connect(aeconn_loop* loop, const char* url, aeconn_conn_fn done,
                            void* context) {
  if (loop == nullptr || url == nullptr) return no_handle<aeconn_conn*>();
  return guarded([&] {
    return handle(registry().connect(loop->loop, url, handler(done, context)).release());
  });
}

aeconn_conn* aeconn_connect_wait(aeconn_loop* loop, const char* url, int64_t timeout) {
  if (loop == nullptr || url == nullptr) return no_handle<aeconn_conn*>();
  return guarded([&]() -> aeconn_conn* {
    const conn::Endpoint to = conn::Endpoint::parse(url);
    ConnectionPtr connection = registry().create(loop->loop, to);
    if (connection->connect_blocking(to, limit(timeout))) return handle(connection.release());
    const int err = errno;
    const std::string why = connection->last_error();
    connection.reset();  // may change errno
    failed(err, why);
    return nullptr;
  });
}

aeconn_conn* aeconn_adopt(aeconn_loop* loop, const char* scheme, int fd) {
  if (loop == nullptr || scheme == nullptr) return no_handle<aeconn_conn*>();
  return guarded(
      [&] { return handle(registry().require(scheme).adopt(loop->loop, fd).release()); });
}

void aeconn_close(aeconn_conn* conn) {
  const NoCancel held;
  if (conn != nullptr) of(conn)->close();
}

void aeconn_abort(aeconn_conn* conn) {
  const NoCancel held;
  if (conn != nullptr) of(conn)->abort();
}

int aeconn_shutdown(aeconn_conn* conn, int directions) {
  if (conn == nullptr) return no_handle();
  switch (directions) {
    case AECONN_WRITABLE:
      return guarded([&] { return of(conn)->shutdown(); });
    case AECONN_READABLE | AECONN_WRITABLE:
      return guarded([&] { return of(conn)->shutdown_both(); });
    default:
      errno = EINVAL;
      return -1;
  }
}

int aeconn_on_readable(aeconn_conn* conn, aeconn_conn_fn fn, void* context) {
  if (conn == nullptr) return no_handle();
  return guarded([&] { return of(conn)->set_read_handler(handler(fn, context)), 0; });
}

int aeconn_on_writable(aeconn_conn* conn, aeconn_conn_fn fn, void* context) {
  if (conn == nullptr) return no_handle();
  return guarded([&] { return of(conn)->set_write_handler(handler(fn, context)), 0; });
}

int aeconn_on_closed(aeconn_conn* conn, aeconn_conn_fn fn, void* context) {
  if (conn == nullptr) return no_handle();
  return guarded([&] { return of(conn)->set_close_handler(handler(fn, context)), 0; });
}

int aeconn_on_failed(aeconn_conn* conn, aeconn_conn_fn fn, void* context) {
  if (conn == nullptr) return no_handle();
  return guarded([&] {
    return of(conn)->set_close_handler(handler(fn, context), conn::CloseOn::kFailure), 0;
  });
}

// --- data ----------------------------------------------------------------------------------------

ssize_t aeconn_read(aeconn_conn* conn, void* buffer, size_t size) {
  if (conn == nullptr) return no_handle<ssize_t>();
  return guarded([&] { return of(conn)->read(buffer, size); });
}

ssize_t aeconn_write(aeconn_conn* conn, const void* buffer, size_t size) {
  if (conn == nullptr) return no_handle<ssize_t>();
  return guarded([&] { return of(conn)->write(buffer, size); });
}

ssize_t aeconn_readv(aeconn_conn* conn, const iovec* vectors, int count) {
  if (conn == nullptr) return no_handle<ssize_t>();
  return guarded([&] { return of(conn)->readv(vectors, count); });
}

ssize_t aeconn_writev(aeconn_conn* conn, const iovec* vectors, int count) {
  if (conn == nullptr) return no_handle<ssize_t>();
  return guarded([&] { return of(conn)->writev(vectors, count); });
}

void aeconn_flush(aeconn_conn* conn) {
  const NoCancel held;
  if (conn != nullptr) of(conn)->flush();
}

ssize_t aeconn_peek(aeconn_conn* conn, size_t together, aeconn_view* view) {
  if (conn == nullptr || view == nullptr) return no_handle<ssize_t>();
  return guarded([&] {
    const conn::View seen = of(conn)->peek(together);
    view->pieces[0] = seen.pieces[0];
    view->pieces[1] = seen.pieces[1];
    view->count = seen.count;
    view->stable = seen.stable ? 1 : 0;
    view->last = seen.last ? 1 : 0;
    view->size = seen.size;
    return seen.size == 0 && errno != 0 ? ssize_t{-1} : static_cast<ssize_t>(seen.size);
  });
}

void aeconn_consume(aeconn_conn* conn, size_t size) {
  if (conn != nullptr) of(conn)->consume(size);
}

void* aeconn_reserve(aeconn_conn* conn, size_t size, size_t* room) {
  if (conn == nullptr || room == nullptr) return no_handle<void*>();
  *room = 0;
  return guarded([&]() -> void* {
    const std::span<std::byte> got = of(conn)->reserve(size);
    *room = got.size();
    return got.empty() ? nullptr : got.data();
  });
}

void aeconn_commit(aeconn_conn* conn, size_t size) {
  if (conn != nullptr) of(conn)->commit(size);
}

ssize_t aeconn_send(aeconn_conn* conn, aeconn_outgoing* outgoing) {
  if (conn == nullptr || outgoing == nullptr) return no_handle<ssize_t>();
  return guarded([&] {
    conn::Outgoing out;
    out.bytes = {static_cast<const std::byte*>(outgoing->bytes), outgoing->size};
    if (outgoing->memory != nullptr) out.memory = outgoing->memory->memory.get();
    if (outgoing->release != nullptr) {
      out.context = outgoing;
      out.release = [](void* context, std::error_code error) noexcept {
        auto* const its = static_cast<aeconn_outgoing*>(context);
        its->release(its, number_of(error));
      };
    }
    return of(conn)->send(out);
  });
}

aeconn_memory* aeconn_memory_register(aeconn_loop* loop, const char* scheme, void* bytes,
                                      size_t size) {
  if (loop == nullptr || scheme == nullptr || bytes == nullptr) return no_handle<aeconn_memory*>();
  return guarded([&] {
    return new aeconn_memory{registry().require(scheme).register_memory(
        loop->loop, {static_cast<std::byte*>(bytes), size})};
  });
}

void aeconn_memory_free(aeconn_memory* memory) {
  const NoCancel held;
  delete memory;
}

int aeconn_wait(aeconn_conn* conn, int direction, int64_t timeout) {
  if (conn == nullptr) return no_handle();
  if (direction != AECONN_READABLE && direction != AECONN_WRITABLE) {
    errno = EINVAL;
    return -1;
  }
  return guarded([&] { return of(conn)->sync_wait(mask_of(direction), limit(timeout)) ? 0 : -1; });
}

ssize_t aeconn_read_all(aeconn_conn* conn, void* buffer, size_t size, int64_t timeout) {
  if (conn == nullptr) return no_handle<ssize_t>();
  return guarded([&] { return of(conn)->sync_read(buffer, size, limit(timeout)); });
}

ssize_t aeconn_write_all(aeconn_conn* conn, const void* buffer, size_t size, int64_t timeout) {
  if (conn == nullptr) return no_handle<ssize_t>();
  return guarded([&] { return of(conn)->sync_write(buffer, size, limit(timeout)); });
}

ssize_t aeconn_read_line(aeconn_conn* conn, char* buffer, size_t size, int64_t timeout) {
  if (conn == nullptr) return no_handle<ssize_t>();
  return guarded([&] { return of(conn)->sync_readline(buffer, size, limit(timeout)); });
}

// --- facts ---------------------------------------------------------------------------------------

aeconn_state aeconn_get_state(const aeconn_conn* conn) {
  if (conn == nullptr) return AECONN_FAILED;
  switch (of(conn)->state()) {
    case conn::State::kNone:
      return AECONN_NEW;
    case conn::State::kConnecting:
    case conn::State::kAccepting:
      return AECONN_CONNECTING;
    case conn::State::kConnected:
      return AECONN_CONNECTED;
    case conn::State::kClosed:
      return AECONN_CLOSED;
    case conn::State::kError:
      return AECONN_FAILED;
  }
  return AECONN_FAILED;
}

const char* aeconn_last_error(const aeconn_conn* conn) {
  if (conn == nullptr) return "the handle is NULL";
  const std::string& reported = of(conn)->last_error();
  return reported.empty() ? of(conn)->why_ended().text.c_str() : reported.c_str();
}

int aeconn_last_errno(const aeconn_conn* conn) {
  if (conn == nullptr) return EINVAL;
  const std::error_code reported = of(conn)->error_code();
  return number_of(reported ? reported : of(conn)->why_ended().code);
}

const char* aeconn_transport(const aeconn_conn* conn) {
  // The name belongs to the type, which lives as long as the process; it is NUL-terminated.
  return conn == nullptr ? "" : of(conn)->type().name().data();
}

int aeconn_fd(const aeconn_conn* conn) { return conn == nullptr ? -1 : of(conn)->fd(); }

size_t aeconn_local(const aeconn_conn* conn, char* host, size_t size, uint16_t* port) {
  if (conn == nullptr) return copy_out("", host, size);
  const ssize_t length = guarded(
      [&] { return static_cast<ssize_t>(address(of(conn)->local_host_port(), host, size, port)); });
  return length < 0 ? copy_out("", host, size) : static_cast<size_t>(length);
}

size_t aeconn_peer(const aeconn_conn* conn, char* host, size_t size, uint16_t* port) {
  if (conn == nullptr) return copy_out("", host, size);
  const ssize_t length = guarded(
      [&] { return static_cast<ssize_t>(address(of(conn)->peer_host_port(), host, size, port)); });
  return length < 0 ? copy_out("", host, size) : static_cast<size_t>(length);
}

int aeconn_local_sockaddr(const aeconn_conn* conn, sockaddr* address, socklen_t* size) {
  if (conn == nullptr || address == nullptr || size == nullptr) return no_handle();
  sockaddr_storage its;
  return copy_address(its, of(conn)->local_sockaddr(its), address, size);
}

int aeconn_peer_sockaddr(const aeconn_conn* conn, sockaddr* address, socklen_t* size) {
  if (conn == nullptr || address == nullptr || size == nullptr) return no_handle();
  sockaddr_storage its;
  return copy_address(its, of(conn)->peer_sockaddr(its), address, size);
}

int aeconn_is_local(const aeconn_conn* conn) {
  if (conn == nullptr) return -1;
  return guarded([&] {
    const std::optional<bool> local = of(conn)->is_local();
    return local.has_value() ? (*local ? 1 : 0) : -1;
  });
}

size_t aeconn_peer_certificate(const aeconn_conn* conn, char* pem, size_t size) {
  if (conn == nullptr) return copy_out("", pem, size);
  const ssize_t length = guarded(
      [&] { return static_cast<ssize_t>(copy_out(of(conn)->peer_certificate(), pem, size)); });
  return length < 0 ? copy_out("", pem, size) : static_cast<size_t>(length);
}

size_t aeconn_peer_user(const aeconn_conn* conn, char* user, size_t size) {
  if (conn == nullptr) return copy_out("", user, size);
  const ssize_t length =
      guarded([&] { return static_cast<ssize_t>(copy_out(of(conn)->peer_user(), user, size)); });
  return length < 0 ? copy_out("", user, size) : static_cast<size_t>(length);
}

int aeconn_peer_credentials(const aeconn_conn* conn, pid_t* pid, uid_t* uid, gid_t* gid) {
  if (conn == nullptr) {
    errno = EINVAL;
    return -1;
  }
  const std::optional<conn::PeerCredentials> peer = of(conn)->peer_credentials();
  if (!peer) {
    errno = EOPNOTSUPP;
    return -1;
  }
  if (pid != nullptr) *pid = peer->pid;
  if (uid != nullptr) *uid = peer->uid;
  if (gid != nullptr) *gid = peer->gid;
  return 0;
}

size_t aeconn_path(const aeconn_conn* conn, char* line, size_t size) {
  if (conn == nullptr) return copy_out("", line, size);
  const ssize_t length =
      guarded([&] { return static_cast<ssize_t>(copy_out(of(conn)->path(), line, size)); });
  return length < 0 ? copy_out("", line, size) : static_cast<size_t>(length);
}

void aeconn_info(const aeconn_conn* conn, aeconn_fact_fn fn, void* context) {
  if (conn == nullptr || fn == nullptr) return;
  guarded([&] {
    for (const auto& [name, value] : of(conn)->info()) fn(context, name.c_str(), value.c_str());
    return 0;
  });
}

uint64_t aeconn_id(const aeconn_conn* conn) { return conn == nullptr ? 0 : of(conn)->id(); }

uint64_t aeconn_bytes_read(const aeconn_conn* conn) {
  return conn == nullptr ? 0 : of(conn)->bytes_read();
}

uint64_t aeconn_bytes_written(const aeconn_conn* conn) {
  return conn == nullptr ? 0 : of(conn)->bytes_written();
}

void* aeconn_user_data(const aeconn_conn* conn) {
  return conn == nullptr ? nullptr : of(conn)->private_data();
}

void aeconn_set_user_data(aeconn_conn* conn, void* data) {
  if (conn != nullptr) of(conn)->set_private_data(data);
}

int aeconn_leave(aeconn_conn* conn) {
  if (conn == nullptr) return no_handle();
  return guarded([&] { return of(conn)->leave() ? 0 : -1; });
}

int aeconn_join(aeconn_conn* conn, aeconn_loop* loop) {
  if (conn == nullptr || loop == nullptr) return no_handle();
  return guarded([&] { return of(conn)->join(loop->loop) ? 0 : -1; });
}

int aeconn_to_fd(aeconn_conn* conn, aeconn_ended_fn ended, void* context) {
  if (conn == nullptr) return no_handle();
  ConnectionPtr its(of(conn));
  const int fd = guarded([&] {
    adapters::DescriptorEnded told;
    if (ended != nullptr) {
      told = [ended, context](const conn::Failure& why) {
        ended(context, number_of(why.code), why.text.c_str());
      };
    }
    return adapters::to_descriptor(std::move(its), std::move(told));
  });
  (void)its.release();  // on failure the connection stays the caller's
  return fd;
}
}  // extern "C"
