// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Common parts of the programs that test adapters/asio.h. Usage: PROGRAM LISTEN [QUERY [CERTIFICATE
// KEY]]: they serve at the URL LISTEN and connect to it with the options QUERY; with a certificate
// and its key they also test asio::ssl on top. -DAECONN_BOOST_ASIO: with Boost's asio. They end
// with "N passed, N failed".

#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include <functional>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "adapters/asio.h"
#include "ae/epoll_loop.h"
#include "conn/transports/transports.h"

namespace asio_kit {

namespace aio = adapters::asio;
namespace net = aio::detail::net;
using Error = aio::detail::ErrorCode;

inline int passed = 0, failed = 0;
inline const char* volatile doing = "nothing";

inline void check(bool fine, std::string_view what, std::string_view got = {}) {
  ++(fine ? passed : failed);
  if (!fine) std::cout << "FAIL " << what << (got.empty() ? "" : ": ") << got << std::endl;
}

/// Watchdog: a test that is not over by then hangs.
inline void watch() {
  const char* slower = ::getenv("AECONN_SLOWER");
  const int times = slower != nullptr ? ::atoi(slower) : 1;
  ::signal(SIGALRM, [](int) {
    const std::string_view words[] = {"FAIL hangs at: ", doing, "\n0 passed, 1 failed\n"};
    for (const std::string_view text : words)
      [[maybe_unused]] const ssize_t written = ::write(STDOUT_FILENO, text.data(), text.size());
    ::_exit(1);
  });
  ::alarm(60u * static_cast<unsigned>(times > 0 ? times : 1));
}

inline std::string bytes(std::size_t size, std::size_t seed = 0) {
  std::string result(size, '\0');
  for (std::size_t i = 0; i < size; ++i)
    result[i] = static_cast<char>((i * 31 + seed * 7 + i / 251) & 0xff);
  return result;
}

/// The result of an operation.
struct Result {
  std::optional<Error> error;
  std::size_t size = 0;
  explicit operator bool() const { return error.has_value(); }
  bool is(const Error& expected) const { return error == expected; }
  auto handler() {
    return [this](Error its, std::size_t bytes = 0) {
      error = its;
      size = bytes;
    };
  }
};

/// An asio context with a loop attached, an acceptor, and the URL that clients connect to.
struct Bed {
  Bed(std::string its_listen, std::string its_query)
      : listen(std::move(its_listen)), query(std::move(its_query)) {}

  std::string url() const {
    const conn::Endpoint at = acceptor.endpoints().front();
    const std::string where =
        at.hosts.empty() ? at.path : conn::host_port(at.hosts.front().name, at.port);
    return at.scheme + "://" + where + "?" + query;
  }
  /// Where a second acceptor may listen.
  std::string elsewhere() {
    std::string place = listen;
    if (const auto end = place.find(".sock"); end != std::string::npos)
      place.insert(end, std::to_string(++places));
    return place;
  }
  /// Runs the context until the condition holds.
  void until(const char* what, const std::function<bool()>& condition) {
    doing = what;
    while (!condition()) context.run_one();
  }
  template <class Done>
  void until(const char* what, const Done* done) {
    until(what, [done] { return static_cast<bool>(*done); });
  }
  struct Pair {
    aio::Stream client, server;
  };
  Pair connect() {
    aio::Stream client(context), server(context);
    int done = 0;
    acceptor.async_accept([&](Error error, aio::Stream stream) {
      if (error) check(false, "an accept", error.message());
      server = std::move(stream);
      ++done;
    });
    client.async_connect(registry, loop, url(), [&](Error error) {
      if (error) check(false, "a connect", client.last_error());
      ++done;
    });
    until("a pair", [&] { return done == 2; });
    return {std::move(client), std::move(server)};
  }

  std::string listen, query;
  int places = 0;
  const conn::Registry registry = conn::all_transports();
  ae::EpollLoop loop;
  net::io_context context;
  aio::Attachment attached{loop, context.get_executor()};
  aio::Acceptor acceptor{context.get_executor(), registry, loop, listen};
};

}  // namespace asio_kit
