// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// For tests of the C interface: owners for its handles, a loop that is run as a host would run it,
// and connected pairs over each transport.

#include <poll.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "c/aeconn.h"
#include "tests/support/catch.h"
#include "tests/support/testing.h"
#include "tests/support/tls_kit.h"

namespace testing::c {

inline constexpr int64_t kSecond = 1'000'000'000;

/// The transports of the C interface: all except memory, local and absent, which only the tests
/// have.
inline std::vector<testing::Transport> c_transports() {
  std::vector<testing::Transport> all = testing::transports();
  std::erase_if(all, [](const testing::Transport& one) { return !one.in_library || one.list; });
  return all;
}
/// Does nothing if AECONN_TRANSPORTS leaves none of them.
#define FOR_EVERY_C_TRANSPORT(transport)                                   \
  if (testing::c::c_transports().empty()) return;                          \
  const auto transport = GENERATE(from_range(testing::c::c_transports())); \
  DYNAMIC_SECTION(transport.name)

struct LoopEnd {
  void operator()(aeconn_loop* loop) const { aeconn_loop_free(loop); }
};
struct ListenerEnd {
  void operator()(aeconn_listener* listener) const { aeconn_listener_free(listener); }
};
struct ConnEnd {
  void operator()(aeconn_conn* conn) const { aeconn_close(conn); }
};
struct GroupEnd {
  void operator()(aeconn_group* group) const { aeconn_group_free(group); }
};
using Loop = std::unique_ptr<aeconn_loop, LoopEnd>;
using Group = std::unique_ptr<aeconn_group, GroupEnd>;
using Listener = std::unique_ptr<aeconn_listener, ListenerEnd>;
using Conn = std::unique_ptr<aeconn_conn, ConnEnd>;

/// Runs the loop by its descriptor, as a host does, until the condition holds.
inline void until(aeconn_loop* loop, const std::function<bool()>& condition) {
  const auto end = std::chrono::steady_clock::now() + testing::patience();
  while (!condition()) {
    REQUIRE(std::chrono::steady_clock::now() < end);
    if (testing::simulated()) {  // simulated devices wait within the loop's own sleep
      REQUIRE(aeconn_turn(loop, 1) >= 0);
      continue;
    }
    pollfd entry{aeconn_descriptor(loop), POLLIN, 0};
    REQUIRE(::poll(&entry, 1, 1000) >= 0);
    if (entry.revents != 0) REQUIRE(aeconn_dispatch(loop) >= 0);
  }
}

/// Sets the options for the tests' certificates.
inline void configure(const Transport& transport) {
#if AECONN_TLS
  if (!transport.name.starts_with("tls")) return;
  const std::string options =
      testing::test_tls_options(testing::test_server_name(transport.name)).to_string();
  INFO(aeconn_error());
  REQUIRE(aeconn_configure(transport.name.c_str(), options.c_str()) == 0);
#else
  static_cast<void>(transport);
#endif
}

struct Site {
  explicit Site(const Transport& its_transport)
      : transport(its_transport), cpp(its_transport), loop(aeconn_loop_new()) {
    REQUIRE(loop != nullptr);
    configure(transport);
  }
  Listener listen(aeconn_accept_fn fn, void* context, const conn::Options& options = {}) {
    conn::Endpoint at = cpp.fresh();
    at.options = at.options.merged_with(options);
    Listener listener(aeconn_listen(loop.get(), at.to_string().c_str(), fn, context));
    INFO(aeconn_error());
    REQUIRE(listener != nullptr);
    return listener;
  }
  Conn connect(const aeconn_listener* to) {
    Conn conn(aeconn_connect(loop.get(), aeconn_listener_url(to, 0), nullptr, nullptr));
    INFO(aeconn_error());
    REQUIRE(conn != nullptr);
    return conn;
  }
  const Transport transport;
  testing::Site cpp;  // provides addresses
  Loop loop;
};

/// Two ends of a connection on one loop.
struct Pair : Site {
  explicit Pair(const Transport& its_transport) : Site(its_transport) {
    listener = listen(
        [](void* self, aeconn_conn* conn) { static_cast<Pair*>(self)->server.reset(conn); }, this);
    client.reset(aeconn_connect(
        loop.get(), aeconn_listener_url(listener.get(), 0),
        [](void* self, aeconn_conn*) { ++static_cast<Pair*>(self)->connected; }, this));
    INFO(aeconn_error());
    REQUIRE(client != nullptr);
    REQUIRE(aeconn_get_state(client.get()) == AECONN_CONNECTING);
    until(loop.get(), [&] { return server && connected != 0; });
    INFO(aeconn_last_error(client.get()));
    REQUIRE(aeconn_get_state(client.get()) == AECONN_CONNECTED);
  }
  Listener listener;
  Conn client, server;
  int connected = 0;
};

/// Collects received bytes.
struct Reader {
  explicit Reader(aeconn_conn* conn) {
    REQUIRE(aeconn_on_readable(
                conn, [](void* self, aeconn_conn* its) { static_cast<Reader*>(self)->read(its); },
                this) == 0);
  }
  void read(aeconn_conn* conn) {
    std::array<char, 4096> buffer;
    const ssize_t n = aeconn_read(conn, buffer.data(), buffer.size());
    if (n > 0) return static_cast<void>(bytes.append(buffer.data(), static_cast<std::size_t>(n)));
    if (n < 0 && errno == EAGAIN) return;
    ended = n == 0;
    error = n == 0 ? 0 : errno;
    aeconn_on_readable(conn, nullptr, nullptr);
  }
  bool over() const { return ended || error != 0; }
  std::string bytes;
  bool ended = false;
  int error = 0;
};

}  // namespace testing::c
