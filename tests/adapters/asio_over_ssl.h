// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Tests asio::ssl on top of the streams of adapters/asio.h: a handshake, bytes, and a shutdown.

#include <array>
#include <string>
#include <utility>

#include "tests/adapters/asio_kit.h"

#ifdef AECONN_BOOST_ASIO
#include <boost/asio/ssl.hpp>
#else
#include <asio/ssl.hpp>
#endif

namespace asio_kit {

/// The contexts of a server with this certificate, and of a client that trusts it.
struct SslContexts {
  SslContexts(const std::string& certificate, const std::string& key) {
    for_server.use_certificate_chain_file(certificate);
    for_server.use_private_key_file(key, net::ssl::context::pem);
    for_client.load_verify_file(certificate);
    for_client.set_verify_mode(net::ssl::verify_peer);
  }
  net::ssl::context for_server{net::ssl::context::tls_server};
  net::ssl::context for_client{net::ssl::context::tls_client};
};

inline void over_ssl(Bed& bed, const std::string& certificate, const std::string& key) {
  namespace ssl = net::ssl;
  SslContexts contexts(certificate, key);
  auto& [for_server, for_client] = contexts;
  auto both = bed.connect();
  aio::Stream &client = both.client, &server = both.server;
  ssl::stream<aio::Stream> one(std::move(client), for_client), other(std::move(server), for_server);
  Result shook, shook_too;
  one.async_handshake(ssl::stream_base::client, shook.handler());
  other.async_handshake(ssl::stream_base::server, shook_too.handler());
  bed.until("an SSL handshake", [&] { return shook && shook_too; });
  check(!*shook.error && !*shook_too.error, "a handshake of asio::ssl", shook.error->message());
  const std::string sent = bytes(1 << 20);
  std::string got(sent.size(), '\0'), back(sent.size(), '\0');
  Result wrote, read, wrote_back, read_back;
  net::async_write(one, net::buffer(sent), wrote.handler());
  net::async_read(other, net::buffer(got), [&](Error error, std::size_t size) {
    read.handler()(error, size);
    net::async_write(other, net::buffer(got), wrote_back.handler());
  });
  net::async_read(one, net::buffer(back), read_back.handler());
  bed.until("1 MiB over SSL", [&] { return wrote && read && wrote_back && read_back; });
  check(back == sent, "1 MiB there and back");
  // Empty operations, and buffered bytes, while another read waits.
  Result waits, no_read, no_write, rest;
  std::array<char, 2> two{};
  char first = 0;
  other.async_read_some(net::buffer(got), waits.handler());
  other.async_write_some(net::const_buffer(), no_write.handler());
  bed.until("an SSL write of nothing beside a read", &no_write);
  other.async_read_some(net::mutable_buffer(), no_read.handler());
  bed.until("an SSL read of nothing beside a read", &no_read);
  check(!*no_write.error && !*no_read.error && !waits, "nothing over SSL, beside a read");
  net::async_write(one, net::buffer("abc", 3), wrote.handler());
  bed.until("an SSL read that waited", &waits);
  net::async_write(one, net::buffer("xyz", 3), wrote.handler());
  net::async_read(other, net::buffer(&first, 1), rest.handler());
  bed.until("one byte over SSL", &rest);
  rest = {};
  net::async_read(other, net::buffer(two), rest.handler());  // decrypted already
  bed.until("the rest of an SSL record", &rest);
  check(first == 'x' && two[1] == 'z', "the rest of an SSL record");
  Result down, end;
  char byte = 0;
  one.async_shutdown(down.handler());
  other.async_read_some(net::buffer(&byte, 1), [&](Error error, std::size_t) {
    end.error = error;
    other.async_shutdown([](Error) {});
  });
  bed.until("an SSL shutdown", [&] { return down && end; });
  check(!*down.error && end.is(net::error::eof), "a shutdown of asio::ssl", down.error->message());
}

}  // namespace asio_kit
