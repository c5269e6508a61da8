// SPDX-License-Identifier: BSD-3-Clause
// The server on asio and asio::ssl; see settings.h. One thread, hence without locks; sockets with
// the executor's own type, hence without virtual calls for it.

#include <asio.hpp>
#include <asio/ssl.hpp>
#include <memory>

#include "frames.h"
#include "settings.h"
#include "tls_context.h"

namespace {

using asio::ip::tcp;
using peers::Settings;
using Socket = asio::basic_stream_socket<tcp, asio::io_context::executor_type>;
using Acceptor = asio::basic_socket_acceptor<tcp, asio::io_context::executor_type>;
using TlsStream = asio::ssl::stream<Socket>;

template <class Stream>
class Session : public std::enable_shared_from_this<Session<Stream>> {
 public:
  template <class... Args>
  explicit Session(const Settings& set, Args&&... stream)
      : set_(set), stream_(std::forward<Args>(stream)...) {}

  void start() {
    if constexpr (std::is_same_v<Stream, TlsStream>) {
      stream_.async_handshake(asio::ssl::stream_base::server,
                              [this, self = this->shared_from_this()](std::error_code error) {
                                if (!error) read();
                              });
    } else {
      read();
    }
  }

 private:
  void read() {
    const std::span space = input_.space(peers::kReadSize);
    stream_.async_read_some(
        asio::buffer(space.data(), space.size()),
        [this, self = this->shared_from_this()](std::error_code error, std::size_t size) {
          if (error) return;  // the session ends with its last handler
          input_.received(size);
          answer();
        });
  }

  void answer() {
    std::span<const std::byte> output;
    try {
      output = set_.frames ? input_.answer_all(set_.work) : input_.take_all();
    } catch (const std::length_error&) {
      return;
    }
    if (output.empty()) return read();
    asio::async_write(stream_, asio::buffer(output.data(), output.size()),
                      [this, self = this->shared_from_this()](std::error_code error, std::size_t) {
                        if (!error) read();
                      });
  }

  const Settings& set_;
  Stream stream_;
  peers::Input input_;
};

class Server {
 public:
  Server(asio::io_context& io, const Settings& set)
      : set_(set),
        acceptor_(io, {asio::ip::make_address(set.address), set.port}),
        tls_(asio::ssl::context::tls_server) {
    if (set.tls) peers::configure(tls_.native_handle(), set);
  }

  void accept() {
    acceptor_.async_accept([this](std::error_code error, Socket socket) {
      if (!error) {
        socket.set_option(tcp::no_delay(true));
        if (set_.tls) {
          std::make_shared<Session<TlsStream>>(set_, std::move(socket), tls_)->start();
        } else {
          std::make_shared<Session<Socket>>(set_, std::move(socket))->start();
        }
      }
      accept();
    });
  }

 private:
  const Settings& set_;
  Acceptor acceptor_;
  asio::ssl::context tls_;
};

void serve(const Settings& set) {
  asio::io_context io(ASIO_CONCURRENCY_HINT_UNSAFE);
  Server server(io, set);
  server.accept();
  peers::announce(set);
  io.run();
}

}  // namespace

int main(int argc, char** argv) { return peers::run(argc, argv, serve); }
