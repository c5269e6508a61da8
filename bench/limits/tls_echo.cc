// SPDX-License-Identifier: BSD-3-Clause
// Minimum cost of an echo over TLS 1.3 with OpenSSL directly on the socket: one SSL_read() and one
// SSL_write() per wake-up.
//
//   tls-echo tcp://ADDRESS:PORT --cert FILE --key FILE [--no-tickets] [--read-ahead]

#include <openssl/err.h>
#include <openssl/ssl.h>

#include <CLI/CLI.hpp>
#include <csignal>
#include <cstdio>
#include <exception>
#include <memory>
#include <stdexcept>
#include <string>

#include "echo_server.h"

namespace {

template <auto Free>
struct Freer {
  template <class T>
  void operator()(T* object) const noexcept {
    Free(object);
  }
};
using Session = std::unique_ptr<SSL, Freer<SSL_free>>;

struct Settings {
  std::string url, certificate, key;
  bool no_tickets = false, read_ahead = false;
};

void check(bool worked, const std::string& what) {
  if (worked) return;
  const char* const reason = ERR_reason_error_string(ERR_peek_error());
  throw std::runtime_error(what + ": " + (reason != nullptr ? reason : "failed"));
}

class Context {
 public:
  explicit Context(const Settings& settings) : context_(SSL_CTX_new(TLS_server_method())) {
    SSL_CTX* const context = context_.get();
    check(context != nullptr, "SSL_CTX_new");
    SSL_CTX_set_min_proto_version(context, TLS1_3_VERSION);
    // Same preference as the library's servers, so that both sides use the same cipher.
    SSL_CTX_set_options(context, SSL_OP_CIPHER_SERVER_PREFERENCE);
    check(SSL_CTX_set_ciphersuites(context, "TLS_AES_128_GCM_SHA256:TLS_AES_256_GCM_SHA384") == 1,
          "SSL_CTX_set_ciphersuites");
    SSL_CTX_set_mode(context, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
    SSL_CTX_set_read_ahead(context, settings.read_ahead ? 1 : 0);
    if (settings.no_tickets) SSL_CTX_set_num_tickets(context, 0);
    const std::string& certificate = settings.certificate;
    check(SSL_CTX_use_certificate_chain_file(context, certificate.c_str()) == 1, certificate);
    check(SSL_CTX_use_PrivateKey_file(context, settings.key.c_str(), SSL_FILETYPE_PEM) == 1,
          settings.key);
    check(SSL_CTX_check_private_key(context) == 1, settings.key);
  }
  SSL_CTX* get() const noexcept { return context_.get(); }

 private:
  std::unique_ptr<SSL_CTX, Freer<SSL_CTX_free>> context_;
};

// The handshake runs within SSL_read().
class TlsStream {
 public:
  TlsStream(Context& context, limits::Descriptor fd)
      : fd_(std::move(fd)), session_(SSL_new(context.get())) {
    check(session_ && SSL_set_fd(session_.get(), fd_.get()) == 1, "SSL_set_fd");
    SSL_set_accept_state(session_.get());
  }
  ssize_t read(std::byte* buffer, std::size_t size) {
    std::size_t count = 0;
    const int returned = SSL_read_ex(session_.get(), buffer, size, &count);
    return result(returned, count);
  }
  ssize_t write(const std::byte* bytes, std::size_t size) {
    std::size_t count = 0;
    const int returned = SSL_write_ex(session_.get(), bytes, size, &count);
    return result(returned, count);
  }
  bool more_inside() const { return SSL_has_pending(session_.get()) == 1; }

 private:
  ssize_t result(int returned, std::size_t count) {
    if (returned == 1) return static_cast<ssize_t>(count);
    switch (SSL_get_error(session_.get(), returned)) {
      case SSL_ERROR_WANT_READ:
        return limits::kWantRead;
      case SSL_ERROR_WANT_WRITE:
        return limits::kWantWrite;
      default:
        ERR_clear_error();
        return limits::kEnd;
    }
  }

  limits::Descriptor fd_;
  Session session_;
};

void serve(const Settings& settings) {
  std::signal(SIGPIPE, SIG_IGN);  // OpenSSL writes without MSG_NOSIGNAL
  Context context(settings);
  const limits::ListeningSocket listener(settings.url);
  const auto server = std::make_unique<limits::EchoServer<TlsStream, Context>>(listener, context);
  std::printf("listening on %s\n", listener.url().c_str());
  std::fflush(stdout);
  server->run();
}

}  // namespace

int main(int argc, char** argv) try {
  Settings settings;
  CLI::App app("A minimal echo on bare OpenSSL and epoll.", "tls-echo");
  app.add_option("url", settings.url, "tcp://ADDRESS:PORT")->required();
  app.add_option("--cert", settings.certificate, "Certificate chain, PEM")->required();
  app.add_option("--key", settings.key, "Private key, PEM")->required();
  app.add_flag("--no-tickets", settings.no_tickets, "No session tickets");
  app.add_flag("--read-ahead", settings.read_ahead, "One read per record instead of two");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 1;
  }
  serve(settings);
  return 0;
} catch (const std::exception& error) {
  std::fprintf(stderr, "tls-echo: %s\n", error.what());
  return 1;
}
