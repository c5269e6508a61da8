// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// A server and a client, both coroutines, that use every kind of wait. Each of their waits can be
// made the last one.

#include <algorithm>
#include <array>
#include <chrono>
#include <coroutine>
#include <cstddef>
#include <string>
#include <string_view>
#include <system_error>
#include <type_traits>
#include <utility>
#include <vector>

#include "conn/co.h"

namespace testing {

namespace co = conn::co;
using namespace std::chrono_literals;

/// Counts waits; at wait number `last` it cancels the scope, after which no task waits any more.
struct Waits {
  enum class Cancel { kInside, kBeforeSleep };

  co::Scope& scope;
  std::size_t last = 0;  // 0: no cancellation
  Cancel how = Cancel::kInside;
  std::size_t count = 0;
  bool due = false;  // kBeforeSleep: the scope is to be cancelled now

  void one() {
    if (++count != last) return;
    if (how == Cancel::kInside) return scope.cancel();
    due = true;
  }
};

/// Wraps an operation so that its wait is counted.
template <class Operation>
class Counted {
 public:
  Counted(Waits& waits, Operation&& operation)
      : waits_(waits), operation_(co::detail::operation_of(std::move(operation))) {}
  bool await_ready() { return operation_.await_ready(); }
  template <class Awaiting>
  bool await_suspend(std::coroutine_handle<Awaiting> awaiting) {
    if constexpr (std::is_void_v<decltype(operation_.await_suspend(awaiting))>) {
      operation_.await_suspend(awaiting);
    } else if (!operation_.await_suspend(awaiting)) {
      return false;
    }
    waits_.one();
    return true;
  }
  decltype(auto) await_resume() { return operation_.await_resume(); }

 private:
  Waits& waits_;
  co::detail::OperationOf<Operation> operation_;
};

struct CoSession {
  CoSession(const conn::Registry& its_registry, ae::EventLoop& its_loop, co::Scope& its_scope)
      : registry(its_registry), loop(its_loop), scope(its_scope), waits{its_scope} {}

  /// Throws what listen() throws.
  void start(const conn::Endpoint& at) { scope.spawn(accept(*this, at)); }

  const conn::Registry& registry;
  ae::EventLoop& loop;
  co::Scope& scope;
  Waits waits;
  ae::Duration patience = 3600s;  ///< how long the server waits for clients
  bool finished = false;          ///< everything was echoed
  std::string error;              ///< the client's error

 private:
  static constexpr std::size_t kMuch = 300'000;

  static co::Task<> accept(CoSession& self, conn::Endpoint at) {
    co::Acceptor acceptor(self.registry, self.loop, at);
    const conn::Endpoint here = acceptor.listener().endpoints().front();
    self.scope.spawn(ask(self, here));
    for (int i = 0; i < 2; ++i) {
      co::Stream peer = co_await Counted(self.waits, acceptor.next(self.patience));
      if (peer) self.scope.spawn(serve(self, std::move(peer)));
    }
  }

  static co::Task<> serve(CoSession& self, co::Stream peer) {
    std::array<char, 8192> buffer;
    const co::Result line = co_await Counted(self.waits, peer.read_line(buffer));
    if (!line) co_return;
    if (!co_await Counted(self.waits, peer.write({buffer.data(), line.size}))) co_return;
    for (;;) {
      std::size_t size = 0;
      {
        const co::Peeked view = co_await Counted(self.waits, peer.peek(1, 3600s));
        if (!view) co_return;
        size = std::min(view.first().size(), buffer.size());
        view.first().copy(buffer.data(), size);
      }
      peer.consume(size);
      if (!co_await Counted(self.waits, peer.write({buffer.data(), size}, 3600s))) co_return;
    }
  }

  static co::Task<std::errc> send(CoSession& self, co::Stream& to, std::string_view bytes) {
    if (!co_await Counted(self.waits, to.writable(3600s))) co_return std::errc::not_connected;
    const co::Result sent = co_await Counted(self.waits, to.write(bytes));
    co_return sent.error;
  }

  static co::Task<> pour(CoSession& self, co::Stream& to, const std::string& bytes) {
    const std::errc why = co_await Counted(self.waits, send(self, to, bytes));
    if (why != std::errc()) self.error = "pour: " + std::make_error_code(why).message();
  }

  static co::Task<> ask(CoSession& self, conn::Endpoint to) {
    {
      // First a connection that closes at once, then the one that sends.
      const co::Connected first =
          co_await Counted(self.waits, co::connect(self.registry, self.loop, to, 3600s));
      if (!first) self.error = "connect: " + first.failure.text;
    }
    co::Connected found = co_await Counted(self.waits, co::connect(self.registry, self.loop, to));
    if (!found) {
      self.error = "connect: " + found.failure.text;
      co_return;
    }
    co::Stream& peer = found.stream;
    std::array<char, 5> hello;
    const std::errc sent = co_await Counted(self.waits, send(self, peer, "hello\r\n"));
    if (sent != std::errc()) co_return;
    const co::Result answer = co_await Counted(self.waits, peer.read_exactly(hello, 3600s));
    if (!answer || std::string_view(hello.data(), 5) != "hello") co_return;
    std::array<char, 1024> more;
    const auto nothing = co_await Counted(
        self.waits, co::first(peer.read(more), co::sleep(self.loop, std::chrono::microseconds(1))));
    if (nothing.index() != 1) co_return;
    // Both directions at once, more bytes than fit into the buffers.
    const std::string much(kMuch, 'm');
    std::string got(kMuch, '\0');
    const auto back = co_await Counted(
        self.waits, co::first(together(self, peer, got), pour(self, peer, much), idle(self)));
    std::size_t size = back.index() == 0 ? std::get<0>(back) : 0;
    if (back.index() == 1) {
      // pour() finished first: the rest of its echo is for another read.
      size = co_await Counted(self.waits, together(self, peer, got));
    }
    self.finished = self.error.empty() && size != 0;
  }

  static co::Task<std::size_t> together(CoSession& self, co::Stream& from, std::string& got) {
    const co::Result all = co_await Counted(self.waits, from.read(got, 3600s));
    co_await Counted(self.waits, co::sleep(self.loop, ae::Duration::zero()));
    co_return all.size;
  }

  static co::Task<> idle(CoSession& self) {
    co_await Counted(self.waits, co::sleep(self.loop, std::chrono::hours(1)));
  }
};

}  // namespace testing
