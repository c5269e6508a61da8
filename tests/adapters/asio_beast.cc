// SPDX-License-Identifier: BSD-3-Clause
// Boost.Beast on adapters/asio.h: HTTP with keep-alive, and WebSockets with messages of 1 MiB, also
// over asio::ssl. For the arguments see tests/adapters/asio_kit.h.

#define AECONN_BOOST_ASIO

#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>
#include <boost/beast/ssl.hpp>
#include <boost/beast/websocket.hpp>
#include <boost/beast/websocket/ssl.hpp>
#include <cctype>
#include <memory>
#include <optional>

#include "tests/adapters/asio_kit.h"
#include "tests/adapters/asio_over_ssl.h"

using namespace asio_kit;
namespace beast = boost::beast;
namespace http = beast::http;
namespace websocket = beast::websocket;

namespace {

/// Answers with the body in upper case, until the client closes.
class HttpServer {
 public:
  explicit HttpServer(aio::Stream stream) : stream_(std::move(stream)) { read(); }
  bool over() const { return over_; }

 private:
  void read() {
    parser_.emplace();
    parser_->body_limit(8 << 20);
    http::async_read(stream_, buffer_, *parser_, [this](Error error, std::size_t) {
      if (error) {
        check(error == http::error::end_of_stream, "the end of HTTP", error.message());
        over_ = true;
        return stream_.close();
      }
      answer();
    });
  }
  void answer() {
    const auto& request = parser_->get();
    response_ = {http::status::ok, request.version()};
    response_.keep_alive(request.keep_alive());
    for (const char c : request.body())
      response_.body() += static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
    response_.prepare_payload();
    http::async_write(stream_, response_, [this](Error error, std::size_t) {
      if (error) return check(false, "an answer is written", error.message());
      read();
    });
  }
  aio::Stream stream_;
  beast::flat_buffer buffer_;
  std::optional<http::request_parser<http::string_body>> parser_;
  http::response<http::string_body> response_;
  bool over_ = false;
};

void http_test(Bed& bed) {
  auto [client, accepted] = bed.connect();
  HttpServer server(std::move(accepted));
  beast::flat_buffer buffer;
  for (const std::size_t size : {std::size_t{3}, std::size_t{0}, std::size_t{1} << 20}) {
    http::request<http::string_body> request{http::verb::post, "/", 11};
    request.set(http::field::host, "test");
    request.body() = std::string(size, 'x');
    request.prepare_payload();
    std::optional<Error> wrote, read;
    http::response_parser<http::string_body> response;
    response.body_limit(8 << 20);
    http::async_write(client, request, [&](Error error, std::size_t) { wrote = error; });
    http::async_read(client, buffer, response, [&](Error error, std::size_t) { read = error; });
    bed.until("an HTTP request", [&] { return wrote && read; });
    check(!*wrote && !*read && response.get().body() == std::string(size, 'X'), "an HTTP request",
          read->message());
  }
  beast::close_socket(beast::get_lowest_layer(client));
  bed.until("the end of HTTP", [&] { return server.over(); });
}

/// Messages in both directions, then the closing handshake.
template <class Next>
void messages(Bed& bed, websocket::stream<Next>& client, websocket::stream<Next>& server) {
  const auto options = websocket::stream_base::timeout::suggested(beast::role_type::server);
  client.set_option(options);
  server.set_option(options);
  client.read_message_max(8 << 20);
  server.read_message_max(8 << 20);
  std::optional<Error> shook, shook_too;
  client.async_handshake("test", "/", [&](Error error) { shook = error; });
  server.async_accept([&](Error error) { shook_too = error; });
  bed.until("a WebSocket handshake", [&] { return shook && shook_too; });
  check(!*shook && !*shook_too, "a WebSocket handshake", shook->message());
  client.binary(true);
  server.binary(true);
  for (std::size_t i = 0; i < 3; ++i) {
    const std::string sent = bytes(1 << 20, i);
    beast::flat_buffer there, back;
    std::optional<Error> wrote, wrote_back, read, read_back;
    client.async_write(net::buffer(sent), [&](Error error, std::size_t) { wrote = error; });
    client.async_read(back, [&](Error error, std::size_t) { read_back = error; });
    server.async_read(there, [&](Error error, std::size_t) {
      read = error;
      server.async_write(there.data(), [&](Error its, std::size_t) { wrote_back = its; });
    });
    bed.until("a WebSocket message", [&] { return wrote && wrote_back && read && read_back; });
    check(!*read_back && beast::buffers_to_string(back.data()) == sent, "1 MiB there and back",
          read_back->message());
  }
  std::optional<Error> closed, ended;
  beast::flat_buffer rest;
  client.async_close(websocket::close_code::normal, [&](Error error) { closed = error; });
  server.async_read(rest, [&](Error error, std::size_t) { ended = error; });
  bed.until("a WebSocket's end", [&] { return closed && ended; });
  check(!*closed && *ended == websocket::error::closed, "a WebSocket's end", closed->message());
}

void websocket_test(Bed& bed) {
  auto [client, server] = bed.connect();
  websocket::stream<aio::Stream> one(std::move(client)), other(std::move(server));
  messages(bed, one, other);
  // Over SSL, Beast leaves closing to the program.
  check(!one.next_layer().is_open() && !other.next_layer().is_open(), "both ends are closed then");

  // Without an answer, the WebSocket's time-out closes the stream below.
  auto [asking, silent] = bed.connect();
  websocket::stream<aio::Stream> waits(std::move(asking));
  auto options = websocket::stream_base::timeout::suggested(beast::role_type::client);
  options.handshake_timeout = std::chrono::milliseconds(1);
  waits.set_option(options);
  std::optional<Error> late;
  waits.async_handshake("test", "/", [&](Error error) { late = error; });
  bed.until("a WebSocket's time-out", [&] { return late.has_value(); });
  check(*late == beast::error::timeout && !waits.next_layer().is_open(), "a WebSocket's time-out",
        late->message());
}

void ssl_test(Bed& bed, const std::string& certificate, const std::string& key) {
  namespace ssl = net::ssl;
  asio_kit::SslContexts contexts(certificate, key);
  auto& [for_server, for_client] = contexts;
  auto [client, server] = bed.connect();
  websocket::stream<ssl::stream<aio::Stream>> one(std::move(client), for_client);
  websocket::stream<ssl::stream<aio::Stream>> other(std::move(server), for_server);
  std::optional<Error> shook, shook_too;
  one.next_layer().async_handshake(ssl::stream_base::client, [&](Error error) { shook = error; });
  other.next_layer().async_handshake(ssl::stream_base::server,
                                     [&](Error error) { shook_too = error; });
  bed.until("an SSL handshake", [&] { return shook && shook_too; });
  check(!*shook && !*shook_too, "an SSL handshake", shook->message());
  messages(bed, one, other);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) return 2;
  watch();
  Bed bed(argv[1], argc > 2 ? argv[2] : "");
  http_test(bed);
  websocket_test(bed);
  if (argc > 4) ssl_test(bed, argv[3], argv[4]);
  std::cout << passed << " passed, " << failed << " failed" << std::endl;
  return failed == 0 ? 0 : 1;
}
