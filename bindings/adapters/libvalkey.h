// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// libvalkey over any URL of this library: its contexts work with libvalkey's own functions,
// including valkeyReconnect(). A program changes only the line that connects; docs/clients.md.
//
// Header only: link the program with libvalkey. A context belongs to the thread of its loop;
// registry and loop must outlive it.

#include <valkey/alloc.h>
#include <valkey/async.h>
#include <valkey/valkey.h>

#include <cstdint>
#include <cstring>
#include <string>

#include "adapters/resp_client.h"
#include "ae/abi.h"

namespace adapters { inline namespace AECONN_ABI { namespace libvalkey {

namespace detail {
struct Api {
  using Context = valkeyContext;
  using AsyncContext = valkeyAsyncContext;
  using Options = valkeyOptions;
  using Functions = valkeyContextFuncs;
  static constexpr int kOk = VALKEY_OK, kUserFd = VALKEY_CONN_USERFD;
  static constexpr int kBlock = VALKEY_BLOCK, kConnected = VALKEY_CONNECTED,
                       kInCallback = VALKEY_IN_CALLBACK, kFreeing = VALKEY_FREEING,
                       kDisconnecting = VALKEY_DISCONNECTING;
  static constexpr int kErrorIo = VALKEY_ERR_IO, kErrorEnd = VALKEY_ERR_EOF,
                       kErrorOther = VALKEY_ERR_OTHER, kErrorMemory = VALKEY_ERR_OOM,
                       kErrorTimeout = VALKEY_ERR_TIMEOUT;
  static Context* make(const Options* options) { return valkeyConnectWithOptions(options); }
  static AsyncContext* make_async(const Options* options) {
    return valkeyAsyncConnectWithOptions(options);
  }
  static void handle_read(AsyncContext* async) { valkeyAsyncHandleRead(async); }
  static void handle_write(AsyncContext* async) { valkeyAsyncHandleWrite(async); }
  static void handle_timeout(AsyncContext* async) { valkeyAsyncHandleTimeout(async); }
  static void free_async(AsyncContext* async) { valkeyAsyncFree(async); }
  static void disconnect(AsyncContext* async) { valkeyAsyncDisconnect(async); }
  static void tell_connected(AsyncContext& async, int status) {
    if (async.onConnect != nullptr) async.onConnect(&async, status);
  }
  /// Returns the number of bytes in the context's output buffer, an sds (libvalkey does not install
  /// sds.h). The low bits of the byte before an sds give the size of the length field, which
  /// precedes that byte.
  static std::size_t buffered(const Context& context) noexcept {
    const auto* text = reinterpret_cast<const unsigned char*>(context.obuf);
    const auto length = [text]<class Size>(Size size) {
      std::memcpy(&size, text - 1 - 2 * sizeof size, sizeof size);
      return static_cast<std::size_t>(size);
    };
    switch (text[-1] & 7) {
      case 0:
        return text[-1] >> 3;
      case 1:
        return length(std::uint8_t{});
      case 2:
        return length(std::uint16_t{});
      case 3:
        return length(std::uint32_t{});
      default:
        return length(std::uint64_t{});
    }
  }
  static void complete(Functions& ours);
};
using Session = resp::Session<Api>;

// Stores the URL and the origin in unix_sock.path of the context: the URL, NUL, and the origin.
// valkeyReconnect() passes this path to connect(), and nothing else of the context survives until
// then. libvalkey frees the path.
inline char* pack(const std::string& url, resp::Origin origin) {
  auto* path = static_cast<char*>(vk_malloc(url.size() + 1 + sizeof origin));
  if (path == nullptr) return nullptr;
  std::memcpy(path, url.c_str(), url.size() + 1);
  std::memcpy(path + url.size() + 1, &origin, sizeof origin);
  return path;
}
inline int connect_again(valkeyContext* context, const valkeyOptions* options) {
  const std::string url = options->endpoint.unix_socket;
  resp::Origin origin{};
  std::memcpy(&origin, options->endpoint.unix_socket + url.size() + 1, sizeof origin);
  return Session::establish(*context, origin, url) ? VALKEY_OK : VALKEY_ERR;
}
inline void Api::complete(Functions& ours) {
  ours.connect = &connect_again;
  ours.set_timeout = [](Context*, const timeval) -> int {
    return VALKEY_OK;
  };  // read() enforces this limit
  ours.read_zc = &Session::show;
  ours.read_zc_done = &Session::shown_done;
}
}  // namespace detail

/// Connects like valkeyConnectWithOptions(); endpoint and type in `options` are ignored, and
/// `options` may be null. Waits until the context is connected or has err and errstr set. Returns
/// null if out of memory. Without a connect_timeout the URL's connect-timeout applies (5 s).
/// Commands block without running the loop; with VALKEY_OPT_NONBLOCK they do not block.
inline valkeyContext* connect(const conn::Registry& registry, ae::EventLoop& loop,
                              const std::string& url, const valkeyOptions* options = nullptr) {
  valkeyContext* context = detail::Session::open({&registry, &loop}, url, options, -1);
  if (context != nullptr && detail::Session::of(*context) != nullptr) {
    context->unix_sock.path = detail::pack(url, {&registry, &loop});
    if (context->unix_sock.path != nullptr) context->connection_type = VALKEY_CONN_UNIX;
  }
  return context;
}

/// Connects like valkeyAsyncConnectWithOptions(): returns a connecting context on `loop`. No event
/// adapter of libvalkey is attached. If the URL is invalid, err is set on return.
inline valkeyAsyncContext* connect_async(const conn::Registry& registry, ae::EventLoop& loop,
                                         const std::string& url,
                                         const valkeyOptions* options = nullptr) {
  return detail::Session::open_async({&registry, &loop}, url, options);
}

/// Returns the connection, for its facts (peer_address(), info()); null if there is none or the
/// context was not created by this header.
inline const conn::Connection* connection(const valkeyContext* context) {
  const auto* session = detail::Session::of(*context);
  return session != nullptr ? session->connection() : nullptr;
}

}}}  // namespace adapters::libvalkey
