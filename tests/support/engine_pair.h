// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Two TLS engines connected in memory, without sockets and loop; the wires between them transfer as
// little per call as the test says.
#if AECONN_TLS

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <deque>
#include <memory>
#include <string>
#include <utility>

#include "conn/tls/context.h"
#include "conn/tls/engine/engine.h"
#include "tests/support/certificates.h"

namespace testing {

using conn::tls::Context;
using conn::tls::Engine;
using conn::tls::Role;

/// The bytes under way in one direction. Each call transfers at most `step` bytes; `room` is the
/// capacity.
struct Pipe {
  std::deque<char> bytes;
  std::size_t step = SIZE_MAX, room = SIZE_MAX;
  bool ended = false;
  int error = 0;
};

class PipeWire final : public conn::tls::Wire {
 public:
  PipeWire(Pipe& in, Pipe& out) : in_(in), out_(out) {}
  ssize_t receive(void* buffer, std::size_t size) override {
    ++receives;
    if (size == 0) return 0;  // as read(2)
    if (in_.error != 0) return no(in_.error);
    if (in_.bytes.empty()) return in_.ended ? 0 : no(EAGAIN);
    const std::size_t n = std::min({size, in_.step, in_.bytes.size()});
    std::copy_n(in_.bytes.begin(), n, static_cast<char*>(buffer));
    in_.bytes.erase(in_.bytes.begin(), in_.bytes.begin() + static_cast<std::ptrdiff_t>(n));
    return static_cast<ssize_t>(n);
  }
  ssize_t transmit(const void* buffer, std::size_t size) override {
    ++transmits;
    if (out_.error != 0) return no(out_.error);
    const std::size_t free = out_.room - std::min(out_.room, out_.bytes.size());
    const std::size_t n = std::min({size, out_.step, free});
    if (n == 0) return no(EAGAIN);
    const char* from = static_cast<const char*>(buffer);
    out_.bytes.insert(out_.bytes.end(), from, from + n);
    return static_cast<ssize_t>(n);
  }
  ssize_t transmit_record(std::uint8_t, const void*, std::size_t) override { return no(EIO); }
  int receives = 0, transmits = 0;

 private:
  static ssize_t no(int error) {
    errno = error;
    return -1;
  }
  Pipe& in_;
  Pipe& out_;
};

struct Engines {
  /// The files of a context are read and parsed once for all engines that share it.
  static std::shared_ptr<const Context> context_of(const conn::Options& more) {
    return std::make_shared<Context>(
        conn::tls::parse_settings(test_tls_options("localhost").merged_with(more)),
        conn::tls::Secret());
  }
  explicit Engines(const conn::Options& more = {}) : Engines(context_of(more)) {}
  explicit Engines(std::shared_ptr<const Context> shared) : context(std::move(shared)) {
    context->prepare_client(client, "localhost", "memory");
  }
  /// Runs both engines in turn until both handshakes are complete or one has failed.
  bool handshake() {
    for (int turn = 0; turn < 100'000; ++turn) {
      const Engine::Step a = client.handshake();
      const Engine::Step b = server.handshake();
      client.flush();
      server.flush();
      if (a == Engine::Step::kFailed || b == Engine::Step::kFailed) return false;
      if (a == Engine::Step::kDone && b == Engine::Step::kDone) return true;
    }
    return false;
  }
  /// Transfers `bytes` through both engines, in steps of any size.
  static std::string carry(Engine& from, Engine& to, const std::string& bytes) {
    std::string got;
    std::size_t sent = 0;
    for (int turn = 0; turn < 1'000'000 && got.size() < bytes.size(); ++turn) {
      from.flush();
      if (sent < bytes.size()) {
        const ssize_t n = from.write(bytes.data() + sent, bytes.size() - sent);
        if (n > 0) sent += static_cast<std::size_t>(n);
      }
      char buffer[5000];
      const ssize_t n = to.read(buffer, sizeof buffer);
      if (n > 0) got.append(buffer, static_cast<std::size_t>(n));
      if (from.failed() || to.failed()) return "failed: " + from.failure().text + to.failure().text;
    }
    return got;
  }

  Pipe up, down;  // client to server, server to client
  PipeWire client_wire{down, up}, server_wire{up, down};
  std::shared_ptr<const Context> context;
  Engine client{context->client(), Role::kClient, client_wire};
  Engine server{context->server(), Role::kServer, server_wire};
};

}  // namespace testing

#endif  // AECONN_TLS
