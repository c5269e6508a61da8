// SPDX-License-Identifier: BSD-3-Clause
// The graceful stop of the C interface on one loop, over each transport. Several loops are in
// tests/conn/c_stop_test.cc, what C++ promises in conformance_stop_test.cc.

#include <pthread.h>
#include <signal.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <string>

#include "tests/support/c_stop_kit.h"
#include "tests/support/catch.h"
#include "tests/support/signal_mask.h"
#include "tests/support/testing.h"

using namespace testing::c;
using testing::Contains;

namespace {

constexpr int64_t kNoLimit = -1;

void signal_us(int number) { REQUIRE(pthread_kill(pthread_self(), number) == 0); }
bool is_blocked(int number) {
  sigset_t now;
  REQUIRE(pthread_sigmask(SIG_SETMASK, nullptr, &now) == 0);
  return sigismember(&now, number) == 1;
}

struct Server : Site {
  explicit Server(const testing::Transport& its_transport, int64_t limit,
                  const int* begin_it = nullptr)
      : Site(its_transport), clients(at_stop) {
    const aeconn_stop_settings settings{begin_it, begins, ends, this};
    stop.reset(aeconn_graceful_stop_new(loop.get(), nullptr, limit, &settings));
    INFO(aeconn_error());
    REQUIRE(stop != nullptr);
    at_stop = stop.get();
    Listener listener = listen(
        [](void* self, aeconn_conn* conn) { static_cast<Server*>(self)->clients.accept(conn); },
        this);
    url = aeconn_listener_url(listener.get(), 0);
    REQUIRE(aeconn_graceful_stop_add(stop.get(), listener.release()) == 0);
  }
  static void begins(void* self, aeconn_loop* on) {
    auto* const its = static_cast<Server*>(self);
    REQUIRE(on == its->loop.get());
    ++its->begun;
    if (its->frees_early) return its->stop.reset();
    its->clients.end_idle();
  }
  static void ends(void* self, aeconn_loop* on) {
    auto* const its = static_cast<Server*>(self);
    REQUIRE(on == its->loop.get());
    its->ended = true;
    if (!its->frees) return;
    its->at_stop = nullptr;
    its->stop.reset();
  }
  Conn client() {
    const int before = clients.accepted;
    Conn conn(aeconn_connect(loop.get(), url.c_str(), nullptr, nullptr));
    REQUIRE(conn != nullptr);
    until(loop.get(), [&] {
      return clients.accepted > before && aeconn_get_state(conn.get()) == AECONN_CONNECTED;
    });
    return conn;
  }
  void ask(const Conn& from, const std::string& line) {
    const int before = clients.taken;
    REQUIRE(aeconn_write(from.get(), line.data(), line.size()) ==
            static_cast<ssize_t>(line.size()));
    until(loop.get(), [&] { return clients.taken > before; });
  }
  aeconn_stop_phase phase() const { return aeconn_graceful_stop_get_phase(stop.get()); }
  int status() const { return aeconn_graceful_stop_status(stop.get(), &left, &bytes); }

  testing::SignalMask signals;  // restored last
  std::atomic<aeconn_graceful_stop*> at_stop{nullptr};
  Clients clients;
  GracefulStop stop;
  std::string url;
  int begun = 0;
  bool frees_early = false, frees = false, ended = false;
  mutable uint64_t left = 99, bytes = 99;
};

}  // namespace

TEST_CASE("C stop: idle clients end at a signal, a request under way is answered first",
          "[conformance][c]") {
  FOR_EVERY_C_TRANSPORT(transport) {
    const int number = GENERATE(SIGTERM, SIGINT);
    Server server(transport, kNoLimit);
    const Conn idle = server.client(), busy = server.client();
    Reader idles(idle.get()), answers(busy.get());
    server.ask(idle, "hello\n");
    server.ask(busy, "wait\n");
    REQUIRE(server.phase() == AECONN_SERVING);
    REQUIRE(server.begun == 0);
    signal_us(number);
    until(server.loop.get(), [&] { return idles.over(); });
    CHECK(idles.bytes == "hello\n");
    CHECK(idles.ended);
    CHECK(server.begun == 1);
    CHECK(server.phase() == AECONN_DRAINING);
    CHECK_FALSE(server.ended);
    server.clients.answer();
    until(server.loop.get(), [&] { return server.ended && answers.over(); });
    CHECK(answers.bytes == "wait\n");
    CHECK(answers.ended);
    CHECK(server.phase() == AECONN_ENDED);
    CHECK(server.status() == 0);
    CHECK(server.left == 0);
    CHECK(server.bytes == 0);
    // Nobody listens any more.
    const Conn late(aeconn_connect(server.loop.get(), server.url.c_str(), nullptr, nullptr));
    until(server.loop.get(), [&] { return aeconn_get_state(late.get()) == AECONN_FAILED; });
  }
}

TEST_CASE("C stop: what is left when the limit is over is aborted", "[conformance][c]") {
  FOR_EVERY_C_TRANSPORT(transport) {
    const int64_t limit = GENERATE(0, kSecond / 50);
    static const int none = 0;
    Server server(transport, limit, &none);
    CHECK_FALSE(is_blocked(SIGTERM));
    const Conn busy = server.client();
    server.ask(busy, "wait\n");
    Reader seen(busy.get());
    aeconn_graceful_stop_request(server.stop.get());
    until(server.loop.get(), [&] { return server.ended; });
    CHECK(server.phase() == AECONN_ENDED);
    CHECK(server.status() == 1);
    CHECK(server.left == 1);
    // The server's side learns of it as of a failure, and its client as of the end.
    until(server.loop.get(), [&] { return server.clients.all.empty() && seen.over(); });
    CHECK(server.clients.failure == ECANCELED);
    CHECK(seen.bytes.empty());
  }
}

TEST_CASE("C stop: a second signal aborts, two close together are one", "[conformance][c]") {
  FOR_EVERY_C_TRANSPORT(transport) {
    const bool close_together = GENERATE(false, true);
    CAPTURE(close_together);
    Server server(transport, kNoLimit);
    const Conn busy = server.client();
    server.ask(busy, "wait\n");
    signal_us(SIGTERM);
    if (close_together) signal_us(SIGINT);
    until(server.loop.get(), [&] { return server.phase() == AECONN_DRAINING; });
    bool waited = false;
    aeconn_timer_start(
        server.loop.get(), 3 * kSecond / 20,
        [](void* flag) -> int64_t { return *static_cast<bool*>(flag) = true, -1; }, &waited);
    until(server.loop.get(), [&] { return waited; });
    REQUIRE(server.phase() == AECONN_DRAINING);
    if (!close_together) {
      signal_us(SIGTERM);
      until(server.loop.get(), [&] { return server.ended; });
      CHECK(server.status() == 1);
      CHECK(server.left == 1);
    } else {
      server.clients.answer();
      until(server.loop.get(), [&] { return server.ended; });
      CHECK(server.status() == 0);
    }
  }
}

TEST_CASE("C stop: freed while it begins, it lets the clients live on", "[conformance][c]") {
  FOR_EVERY_C_TRANSPORT(transport) {
    Server server(transport, kSecond / 1000);
    const Conn client = server.client();
    server.frees_early = true;
    aeconn_graceful_stop_request(server.stop.get());
    server.at_stop = nullptr;
    until(server.loop.get(), [&] { return server.begun == 1; });
    bool later = false;
    aeconn_timer_start(
        server.loop.get(), kSecond / 100,
        [](void* flag) -> int64_t { return *static_cast<bool*>(flag) = true, -1; }, &later);
    until(server.loop.get(), [&] { return later; });
    Reader seen(client.get());
    server.ask(client, "still\n");
    until(server.loop.get(), [&] { return seen.bytes == "still\n"; });
    CHECK_FALSE(server.ended);
    // Another stop may follow.
    const aeconn_stop_settings settings{nullptr, Server::begins, Server::ends, &server};
    server.frees_early = false;
    server.stop.reset(aeconn_graceful_stop_new(server.loop.get(), nullptr, kNoLimit, &settings));
    REQUIRE(server.stop != nullptr);
    server.at_stop = server.stop.get();
    signal_us(SIGINT);
    until(server.loop.get(), [&] { return server.ended && seen.over(); });
    CHECK(server.status() == 0);
  }
}

TEST_CASE("C stop: freed at its end, also by the limit", "[conformance][c]") {
  FOR_EVERY_C_TRANSPORT(transport) {
    const bool cut = GENERATE(false, true);
    Server server(transport, cut ? 0 : kNoLimit);
    const Conn client = server.client();
    server.ask(client, cut ? "wait\n" : "hello\n");
    server.frees = true;
    Reader seen(client.get());
    aeconn_graceful_stop_request(server.stop.get());
    until(server.loop.get(), [&] { return server.ended && seen.over(); });
    CHECK(server.stop == nullptr);
    CHECK(seen.bytes == (cut ? "" : "hello\n"));
  }
}

TEST_CASE("C stop: aeconn_run() returns at its end", "[conformance][c]") {
  const testing::SignalMask signals;
  const Loop loop(aeconn_loop_new());
  const GracefulStop stop(aeconn_graceful_stop_new(loop.get(), nullptr, kNoLimit, nullptr));
  REQUIRE(stop != nullptr);
  CHECK(is_blocked(SIGTERM));
  signal_us(SIGTERM);
  CHECK(aeconn_run(loop.get()) == 0);
  CHECK(aeconn_graceful_stop_get_phase(stop.get()) == AECONN_ENDED);
  CHECK(aeconn_graceful_stop_status(stop.get(), nullptr, nullptr) == 0);
}

TEST_CASE("C stop: the program names the signals, and has them back afterwards",
          "[conformance][c]") {
  const testing::SignalMask signals;
  Loop loop(aeconn_loop_new());
  static constexpr int kOurs[] = {SIGUSR1, SIGUSR2, 0};
  const aeconn_stop_settings settings{kOurs, nullptr, nullptr, nullptr};
  {
    const GracefulStop stop(aeconn_graceful_stop_new(loop.get(), nullptr, kNoLimit, &settings));
    REQUIRE(stop != nullptr);
    CHECK(is_blocked(SIGUSR1));
    CHECK(is_blocked(SIGUSR2));
    CHECK_FALSE(is_blocked(SIGTERM));
  }
  CHECK_FALSE(is_blocked(SIGUSR1));
  GracefulStop stop(aeconn_graceful_stop_new(loop.get(), nullptr, kNoLimit, &settings));
  signal_us(SIGUSR2);
  REQUIRE(aeconn_run(loop.get()) == 0);
  loop.reset();  // it may outlive its loop
  CHECK(aeconn_graceful_stop_get_phase(stop.get()) == AECONN_ENDED);
  stop.reset();
  CHECK(is_blocked(SIGUSR1));  // the program is about to end
}

TEST_CASE("C stop: mistakes are one sentence", "[conformance][c]") {
  const testing::SignalMask signals;
  const Loop loop(aeconn_loop_new()), other(aeconn_loop_new());
  aeconn_loop* const loops[] = {loop.get()};
  const Group group(aeconn_group_of(loops, 1));
  const auto refused = [](aeconn_graceful_stop* made) {
    const int err = errno;
    const GracefulStop owner(made);
    return made == nullptr && err == EINVAL;
  };
  CHECK(refused(aeconn_graceful_stop_new(nullptr, nullptr, 0, nullptr)));
  CHECK(refused(aeconn_graceful_stop_new(nullptr, group.get(), 0, nullptr)));
  CHECK_THAT(aeconn_error(), Contains("needs a loop beside them"));
  CHECK(refused(aeconn_graceful_stop_new(loop.get(), group.get(), 0, nullptr)));
  CHECK_THAT(aeconn_error(), Contains("none of the group"));
  static constexpr int kWrong[] = {SIGTERM, 1000, 0};
  const aeconn_stop_settings settings{kWrong, nullptr, nullptr, nullptr};
  CHECK(refused(aeconn_graceful_stop_new(loop.get(), nullptr, 0, &settings)));
  CHECK_THAT(aeconn_error(), Contains("signal 1000 does not exist"));
  CHECK_FALSE(is_blocked(SIGTERM));
  CHECK(aeconn_graceful_stop_add(nullptr, nullptr) == -1);
  const GracefulStop stop(aeconn_graceful_stop_new(other.get(), nullptr, 0, nullptr));
  CHECK(aeconn_graceful_stop_add(stop.get(), nullptr) == -1);
  CHECK(aeconn_graceful_stop_get_phase(nullptr) == AECONN_SERVING);
  CHECK(aeconn_graceful_stop_status(nullptr, nullptr, nullptr) == -1);
  aeconn_graceful_stop_request(nullptr);
  aeconn_graceful_stop_free(nullptr);
}
