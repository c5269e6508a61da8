// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// hiredis (1.0 and later) over any URL of this library: its contexts work with hiredis's own
// functions and replies. A program changes only the line that connects; docs/clients.md.
//
// Header only: link the program with libhiredis. A context belongs to the thread of its loop;
// registry and loop must outlive it.

#include <hiredis/async.h>
#include <hiredis/hiredis.h>
#include <sys/socket.h>
#include <unistd.h>

#include <string>
#include <utility>

#include "adapters/resp_client.h"
#include "ae/abi.h"

#if HIREDIS_MAJOR < 1
#error "adapters/hiredis.h needs hiredis 1.0 or later"
#endif

namespace adapters { inline namespace AECONN_ABI { namespace hiredis {

namespace detail {
struct Api {
  using Context = redisContext;
  using AsyncContext = redisAsyncContext;
  using Options = redisOptions;
  using Functions = redisContextFuncs;
  static constexpr int kOk = REDIS_OK, kUserFd = REDIS_CONN_USERFD;
  static constexpr int kBlock = REDIS_BLOCK, kConnected = REDIS_CONNECTED,
                       kInCallback = REDIS_IN_CALLBACK, kFreeing = REDIS_FREEING,
                       kDisconnecting = REDIS_DISCONNECTING;
  static constexpr int kErrorIo = REDIS_ERR_IO, kErrorEnd = REDIS_ERR_EOF,
                       kErrorOther = REDIS_ERR_OTHER, kErrorMemory = REDIS_ERR_OOM,
                       kErrorTimeout = REDIS_ERR_TIMEOUT;
  static Context* make(const Options* options) { return redisConnectWithOptions(options); }
  static AsyncContext* make_async(const Options* options) {
    return redisAsyncConnectWithOptions(options);
  }
  static void handle_read(AsyncContext* async) { redisAsyncHandleRead(async); }
  static void handle_write(AsyncContext* async) { redisAsyncHandleWrite(async); }
  static void handle_timeout(AsyncContext* async) { redisAsyncHandleTimeout(async); }
  static void free_async(AsyncContext* async) { redisAsyncFree(async); }
  static void disconnect(AsyncContext* async) { redisAsyncDisconnect(async); }
  static std::size_t buffered(const Context& context) { return sdslen(context.obuf); }
  template <class Async>
  static void tell_connected(Async& async, int status) {
    if (async.onConnect != nullptr) return async.onConnect(&async, status);
    if constexpr (requires { async.onConnectNC; }) {  // since hiredis 1.1
      if (async.onConnectNC != nullptr) async.onConnectNC(&async, status);
    }
  }
  static void complete(Functions&) {}
};
using Session = resp::Session<Api>;
}  // namespace detail

/// Connects like redisConnectWithOptions(); endpoint and type in `options` are ignored, and
/// `options` may be null. Waits until the context is connected or has err and errstr set. Returns
/// null if out of memory. Without a connect_timeout the URL's connect-timeout applies (5 s).
/// Commands block without running the loop; with REDIS_OPT_NONBLOCK they do not block.
inline redisContext* connect(const conn::Registry& registry, ae::EventLoop& loop,
                             const std::string& url, const redisOptions* options = nullptr) {
  // redisSetTimeout() and similar functions set options on the context's socket. This socket exists
  // only for them.
  const int fd = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  redisContext* context = detail::Session::open({&registry, &loop}, url, options, fd);
  if (context == nullptr && fd >= 0) ::close(fd);
  return context;
}

/// Connects like redisAsyncConnectWithOptions(): returns a connecting context on `loop`. No event
/// adapter of hiredis is attached. If the URL is invalid, err is set on return.
inline redisAsyncContext* connect_async(const conn::Registry& registry, ae::EventLoop& loop,
                                        const std::string& url,
                                        const redisOptions* options = nullptr) {
  return detail::Session::open_async({&registry, &loop}, url, options);
}

/// Does what redisReconnect() does, for a context of connect(), whose URL redisReconnect() does not
/// know. Connects to the same URL, also after an error. Unsent and unread data is lost.
inline int reconnect(redisContext* context) {
  auto* session = detail::Session::of(*context);
  if (session == nullptr) return redisReconnect(context);
  const auto origin = session->origin();
  const std::string url = session->url();
  // Takes the empty buffers of a new context, because sds.h cannot be used from C++.
  redisOptions nowhere{};
  nowhere.type = REDIS_CONN_USERFD;
  nowhere.endpoint.fd = REDIS_INVALID_FD;
  redisContext* fresh = redisConnectWithOptions(&nowhere);
  context->err = 0;
  context->errstr[0] = '\0';
  if (fresh == nullptr) {
    detail::Session::set_error(*context, REDIS_ERR_OOM, "out of memory");
    return REDIS_ERR;
  }
  std::swap(context->obuf, fresh->obuf);
  std::swap(context->reader, fresh->reader);
  redisFree(fresh);
  return detail::Session::establish(*context, origin, url) ? REDIS_OK : REDIS_ERR;
}

/// Returns the connection, for its facts (peer_address(), info()); null if there is none or the
/// context was not created by this header.
inline const conn::Connection* connection(const redisContext* context) {
  const auto* session = detail::Session::of(*context);
  return session != nullptr ? session->connection() : nullptr;
}

}}}  // namespace adapters::hiredis
