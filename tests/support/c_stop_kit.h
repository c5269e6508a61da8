// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// A server in C terms that answers lines and ends by aeconn_graceful_stop: "wait" is answered once
// it may be, any other line at once.

#include <array>
#include <atomic>
#include <cerrno>
#include <map>
#include <memory>
#include <string>

#include "c/aeconn.h"
#include "tests/support/c_kit.h"
#include "tests/support/catch.h"

namespace testing::c {

struct StopEnd {
  void operator()(aeconn_graceful_stop* stop) const { aeconn_graceful_stop_free(stop); }
};
using GracefulStop = std::unique_ptr<aeconn_graceful_stop, StopEnd>;

/// The clients of one loop. All but `taken` and `failure` is used on its thread.
struct Clients {
  struct Client {
    std::string line;    // what has come of a request
    bool waits = false;  // its answer is due
  };
  explicit Clients(const std::atomic<aeconn_graceful_stop*>& its_stop) : stop(its_stop) {}
  Clients(const Clients&) = delete;
  Clients& operator=(const Clients&) = delete;
  ~Clients() {
    for (const auto& [conn, client] : all) aeconn_close(conn);
  }
  void accept(aeconn_conn* conn) {
    all[conn];
    ++accepted;
    if (!serving()) return end_idle();
    watch(conn);
  }
  void watch(aeconn_conn* conn) {
    aeconn_on_readable(
        conn, [](void* self, aeconn_conn* its) { static_cast<Clients*>(self)->read(its); }, this);
  }
  bool serving() const { return aeconn_graceful_stop_get_phase(stop) == AECONN_SERVING; }
  void close(aeconn_conn* conn) {
    all.erase(conn);
    aeconn_close(conn);
  }
  /// Returns whether the client is still there.
  bool read(aeconn_conn* conn) {
    Client& client = all[conn];
    std::array<char, 4096> bytes;
    for (;;) {
      const ssize_t n = aeconn_read(conn, bytes.data(), bytes.size());
      if (n < 0 && errno == EAGAIN) break;
      if (n < 0) failure = errno;
      if (n <= 0) return close(conn), false;
      client.line.append(bytes.data(), static_cast<std::size_t>(n));
    }
    for (std::size_t end = 0; (end = client.line.find('\n')) != std::string::npos;) {
      const std::string line = client.line.substr(0, end + 1);
      client.line.erase(0, end + 1);
      ++taken;
      if (line == "wait\n")
        client.waits = true;
      else
        aeconn_write(conn, line.data(), line.size());
    }
    if (serving() || client.waits || !client.line.empty()) return true;
    return close(conn), false;
  }
  /// Ends those that wait for nothing, after what has arrived.
  void end_idle() {
    for (auto each = all.begin(); each != all.end();) read((each++)->first);
  }
  void answer() {
    for (auto each = all.begin(); each != all.end();) {
      const auto now = each++;
      if (!now->second.waits) continue;
      now->second.waits = false;
      aeconn_write(now->first, "wait\n", 5);
      read(now->first);
    }
  }

  const std::atomic<aeconn_graceful_stop*>& stop;
  std::map<aeconn_conn*, Client> all;
  std::atomic<int> accepted{0}, taken{0}, failure{0};
};

}  // namespace testing::c
