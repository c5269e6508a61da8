// SPDX-License-Identifier: BSD-3-Clause
// The server on libuv; see settings.h. libuv has no TLS: OpenSSL between two memory BIOs.

#include <uv.h>

#include <algorithm>
#include <csignal>
#include <memory>
#include <optional>
#include <vector>

#include "frames.h"
#include "settings.h"
#include "tls_context.h"

namespace {

using peers::Settings;

struct Free {
  void operator()(SSL* ssl) const noexcept { SSL_free(ssl); }
  void operator()(SSL_CTX* context) const noexcept { SSL_CTX_free(context); }
};
using Context = std::unique_ptr<SSL_CTX, Free>;

void check(int result, const char* what) {
  if (result < 0) throw std::runtime_error(std::string(what) + ": " + uv_strerror(result));
}

struct Server {
  const Settings& set;
  Context context;
  peers::Input input, sealed;  // of all sessions; `sealed`: as received, with TLS
};

/// Owns itself: deleted when its socket is closed.
class Session {
 public:
  Session(uv_stream_t* listener, Server& server) : server_(server) {
    check(uv_tcp_init(listener->loop, &socket_), "uv_tcp_init");
    socket_.data = request_.data = this;
    if (server.context) {
      tls_.reset(SSL_new(server.context.get()));
      from_peer_ = BIO_new(BIO_s_mem());
      to_peer_ = BIO_new(BIO_s_mem());
      SSL_set_bio(tls_.get(), from_peer_, to_peer_);  // owns both
      SSL_set_accept_state(tls_.get());
    }
    if (uv_accept(listener, stream()) != 0) {
      close();
    } else {
      uv_tcp_nodelay(&socket_, 1);
      read();
    }
  }

 private:
  uv_stream_t* stream() { return reinterpret_cast<uv_stream_t*>(&socket_); }
  static Session& of(void* data) { return *static_cast<Session*>(data); }

  void close() {
    if (uv_is_closing(reinterpret_cast<uv_handle_t*>(&socket_)) != 0) return;
    uv_close(reinterpret_cast<uv_handle_t*>(&socket_),
             [](uv_handle_t* handle) { delete &of(handle->data); });
  }

  void read() {
    uv_read_start(
        stream(),
        [](uv_handle_t* handle, std::size_t, uv_buf_t* buffer) {
          const std::span space = of(handle->data).space();
          *buffer = uv_buf_init(reinterpret_cast<char*>(space.data()),
                                static_cast<unsigned>(space.size()));
        },
        [](uv_stream_t* stream, ssize_t size, const uv_buf_t*) {
          if (size < 0) {
            of(stream->data).close();
          } else {
            of(stream->data).received(static_cast<std::size_t>(size));
          }
        });
  }
  std::span<std::byte> space() {
    if (tls_) return server_.sealed.space(peers::kReadSize);
    server_.input.restore(kept_);
    return server_.input.space(peers::kReadSize);
  }

  void received(std::size_t size) {
    if (tls_) {
      server_.sealed.received(size);
      const std::span bytes = server_.sealed.take_all();
      BIO_write(from_peer_, bytes.data(), static_cast<int>(bytes.size()));
      return open();
    }
    server_.input.received(size);
    if (const auto output = answer()) write(*output);
  }

  /// Decrypts what has arrived, answers it, and sends what OpenSSL has to send, also its handshake.
  void open() {
    int result;
    do {
      server_.input.restore(kept_);
      const std::span space = server_.input.space(peers::kReadSize);
      result = SSL_read(tls_.get(), space.data(), static_cast<int>(space.size()));
      if (result > 0) server_.input.received(static_cast<std::size_t>(result));
      const auto output = answer();
      if (!output) return;
      if (!output->empty()) SSL_write(tls_.get(), output->data(), static_cast<int>(output->size()));
    } while (result > 0);
    const bool ended = SSL_get_error(tls_.get(), result) != SSL_ERROR_WANT_READ;
    ERR_clear_error();
    if (ended) return close();
    char* data = nullptr;
    const long size = BIO_get_mem_data(to_peer_, &data);
    write({reinterpret_cast<const std::byte*>(data), static_cast<std::size_t>(size)});
  }

  /// The replies; none if a request was wrong and the session ends.
  std::optional<std::span<const std::byte>> answer() {
    try {
      const auto output = server_.set.frames ? server_.input.answer_all(server_.set.work)
                                             : server_.input.take_all();
      server_.input.save(kept_);
      return output;
    } catch (const std::length_error&) {
      close();
      return std::nullopt;
    }
  }

  void write(std::span<const std::byte> bytes) {
    if (bytes.empty()) return;
    uv_buf_t buffer = buffer_of(bytes);
    const int written = uv_try_write(stream(), &buffer, 1);
    if (written < 0 && written != UV_EAGAIN) return close();
    const std::span rest = bytes.subspan(static_cast<std::size_t>(std::max(written, 0)));
    unsent_.assign(rest.begin(), rest.end());
    if (tls_) BIO_reset(to_peer_);
    if (rest.empty()) return;
    buffer = buffer_of(unsent_);
    uv_read_stop(stream());  // a client that does not read is not read
    uv_write(&request_, stream(), &buffer, 1, [](uv_write_t* request, int status) {
      if (status < 0) return of(request->data).close();
      of(request->data).read();
    });
  }
  static uv_buf_t buffer_of(std::span<const std::byte> bytes) {
    auto* const data = reinterpret_cast<char*>(const_cast<std::byte*>(bytes.data()));
    return uv_buf_init(data, static_cast<unsigned>(bytes.size()));
  }

  Server& server_;
  uv_tcp_t socket_{};
  uv_write_t request_{};
  std::vector<std::byte> kept_;    // the beginning of a request
  std::vector<std::byte> unsent_;  // what uv_write() is to send
  std::unique_ptr<SSL, Free> tls_;
  BIO *from_peer_ = nullptr, *to_peer_ = nullptr;
};

void serve(const Settings& set) {
  Server server{set, nullptr, {}, {}};
  if (set.tls) {
    server.context.reset(SSL_CTX_new(TLS_server_method()));
    peers::configure(server.context.get(), set);
  }
  uv_loop_t* const loop = uv_default_loop();
  sockaddr_in address;
  uv_tcp_t listener;
  check(uv_ip4_addr(set.address.c_str(), set.port, &address), "uv_ip4_addr");
  check(uv_tcp_init(loop, &listener), "uv_tcp_init");
  check(uv_tcp_bind(&listener, reinterpret_cast<sockaddr*>(&address), 0), "uv_tcp_bind");
  listener.data = &server;
  check(uv_listen(reinterpret_cast<uv_stream_t*>(&listener), 512,
                  [](uv_stream_t* stream, int status) {
                    if (status == 0) new Session(stream, *static_cast<Server*>(stream->data));
                  }),
        "uv_listen");
  peers::announce(set);
  uv_run(loop, UV_RUN_DEFAULT);
}

}  // namespace

int main(int argc, char** argv) {
  std::signal(SIGPIPE, SIG_IGN);
  return peers::run(argc, argv, serve);
}
