// SPDX-License-Identifier: BSD-3-Clause
// The server on libevent's bufferevents, with TLS those of bufferevent_openssl; see settings.h.

#include <arpa/inet.h>
#include <event2/buffer.h>
#include <event2/bufferevent.h>
#include <event2/bufferevent_ssl.h>
#include <event2/event.h>
#include <event2/listener.h>
#include <netinet/tcp.h>

#include <algorithm>
#include <csignal>

#include "frames.h"
#include "settings.h"
#include "tls_context.h"

namespace {

using peers::Settings;

constexpr std::size_t kMaxUnsent = 1 << 20;  // while more waits, nothing is read

struct Server {
  const Settings& set;
  event_base* base;
  SSL_CTX* context;
};

/// Moves whole requests from `input` to `output` and answers them on the way.
void answer_all(evbuffer* input, evbuffer* output, unsigned rounds) {
  std::byte header[peers::kHeader];
  while (evbuffer_copyout(input, header, sizeof header) == sizeof header) {
    const std::size_t size = peers::kHeader + peers::payload_size(header);
    if (evbuffer_get_length(input) < size) return;
    // The reply changes the first bytes only: the others move from buffer to buffer.
    const std::size_t front = std::min(size, peers::kHeader + sizeof(std::uint64_t));
    auto* const frame =
        reinterpret_cast<std::byte*>(evbuffer_pullup(input, static_cast<ev_ssize_t>(front)));
    peers::answer(frame, front, rounds);
    evbuffer_remove_buffer(input, output, size);
  }
}

void read(bufferevent* peer, void* data) {
  const Server& server = *static_cast<Server*>(data);
  evbuffer* const input = bufferevent_get_input(peer);
  evbuffer* const output = bufferevent_get_output(peer);
  if (server.set.frames) {
    try {
      answer_all(input, output, server.set.work);
    } catch (const std::length_error&) {
      return bufferevent_free(peer);
    }
  } else {
    evbuffer_add_buffer(output, input);
  }
  if (evbuffer_get_length(output) > kMaxUnsent) bufferevent_disable(peer, EV_READ);
}

void written(bufferevent* peer, void*) {  // all output is sent
  if ((bufferevent_get_enabled(peer) & EV_READ) == 0) bufferevent_enable(peer, EV_READ);
}

void event(bufferevent* peer, short what, void*) {
  if ((what & (BEV_EVENT_EOF | BEV_EVENT_ERROR)) != 0) bufferevent_free(peer);
}

void accepted(evconnlistener*, evutil_socket_t fd, sockaddr*, int, void* data) {
  const Server& server = *static_cast<Server*>(data);
  const int on = 1;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  bufferevent* const peer =
      server.context != nullptr
          ? bufferevent_openssl_socket_new(server.base, fd, SSL_new(server.context),
                                           BUFFEREVENT_SSL_ACCEPTING, BEV_OPT_CLOSE_ON_FREE)
          : bufferevent_socket_new(server.base, fd, BEV_OPT_CLOSE_ON_FREE);
  bufferevent_setcb(peer, read, written, event, data);
  bufferevent_enable(peer, EV_READ | EV_WRITE);
}

void serve(const Settings& set) {
  event_config* const config = event_config_new();
  event_config_set_flag(config, EVENT_BASE_FLAG_NOLOCK);
  event_config_set_flag(config, EVENT_BASE_FLAG_EPOLL_USE_CHANGELIST);
  Server server{set, event_base_new_with_config(config), nullptr};
  event_config_free(config);
  if (set.tls) {
    server.context = SSL_CTX_new(TLS_server_method());
    peers::configure(server.context, set);
  }
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(set.port);
  if (inet_pton(AF_INET, set.address.c_str(), &address.sin_addr) != 1) {
    throw std::runtime_error("not an IPv4 address: " + set.address);
  }
  if (evconnlistener_new_bind(server.base, accepted, &server,
                              LEV_OPT_CLOSE_ON_FREE | LEV_OPT_REUSEABLE, 512,
                              reinterpret_cast<sockaddr*>(&address), sizeof address) == nullptr) {
    throw std::runtime_error("cannot listen on " + set.url);
  }
  peers::announce(set);
  event_base_dispatch(server.base);
}

}  // namespace

int main(int argc, char** argv) {
  std::signal(SIGPIPE, SIG_IGN);
  return peers::run(argc, argv, serve);
}
