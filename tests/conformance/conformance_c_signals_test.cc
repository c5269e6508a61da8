// SPDX-License-Identifier: BSD-3-Clause
// Signals during blocking calls of the C interface: they do not end a call, unless the thread has
// set a callback to ask, and that callback says so.

#include <pthread.h>
#include <signal.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "c/aeconn.h"
#include "tests/support/c_kit.h"
#include "tests/support/catch.h"
#include "tests/support/raw_socket.h"
#include "tests/support/testing.h"

using namespace testing::c;

namespace {

/// While it exists, this thread receives signals repeatedly.
class Signals {
 public:
  explicit Signals(bool asks) {
    struct sigaction action {};
    action.sa_handler = [](int) {};
    REQUIRE(sigaction(SIGUSR1, &action, &before_) == 0);
    if (asks) {
      aeconn_on_signal([](void* self) { return ++static_cast<Signals*>(self)->asked > 3 ? 1 : 0; },
                       this);
    }
    sender_ = std::thread([this, target = pthread_self()] {
      while (!over_) {
        pthread_kill(target, SIGUSR1);
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      }
    });
  }
  ~Signals() {
    over_ = true;
    sender_.join();
    aeconn_on_signal(nullptr, nullptr);
    sigaction(SIGUSR1, &before_, nullptr);
  }
  Signals(const Signals&) = delete;
  Signals& operator=(const Signals&) = delete;
  int asked = 0;

 private:
  struct sigaction before_ {};
  std::atomic<bool> over_{false};
  std::thread sender_;
};

void require_interrupted(const std::function<long()>& call) {
  Signals signals(true);
  errno = 0;
  REQUIRE(call() == -1);
  const int err = errno;
  INFO(aeconn_error());
  REQUIRE(err == EINTR);
  REQUIRE(signals.asked == 4);
}

}  // namespace

TEST_CASE("C: a signal ends a call where the host wants it", "[conformance][c][signals]") {
  if (testing::simulated()) return;  // simulated time passes only while nothing else happens
  FOR_EVERY_C_TRANSPORT(transport) {
    Pair pair(transport);
    aeconn_conn* const conn = pair.client.get();
    std::array<char, 16> buffer;
    require_interrupted([&] { return aeconn_wait(conn, AECONN_READABLE, -1); });
    require_interrupted([&] { return aeconn_read_all(conn, buffer.data(), buffer.size(), -1); });
    require_interrupted([&] { return aeconn_read_line(conn, buffer.data(), buffer.size(), -1); });
    REQUIRE(aeconn_get_state(conn) == AECONN_CONNECTED);
    REQUIRE(aeconn_write(pair.server.get(), "still", 5) == 5);
    aeconn_flush(pair.server.get());
    REQUIRE(aeconn_wait(conn, AECONN_READABLE, 60 * kSecond) == 0);
    REQUIRE(aeconn_read(conn, buffer.data(), buffer.size()) == 5);
    const std::vector<char> much(64 << 20);  // more than fits into the buffers
    require_interrupted([&] { return aeconn_write_all(conn, much.data(), much.size(), -1); });
    REQUIRE(aeconn_get_state(conn) == AECONN_CONNECTED);
  }
}

TEST_CASE("C: a signal ends the wait for a connection", "[conformance][c][signals]") {
  if (testing::simulated()) return;
  FOR_EVERY_C_TRANSPORT(transport) {
    // accepted by the kernel
    if (transport.name == "tcp" || transport.name == "unix" || transport.name == "vsock") return;
    Site site(transport);
    const Listener listener =
        site.listen([](void*, aeconn_conn* conn) { aeconn_close(conn); }, nullptr);
    const Loop loop(aeconn_loop_new());  // the listener's loop does not run
    require_interrupted([&]() -> long {
      aeconn_conn* const made =
          aeconn_connect_wait(loop.get(), aeconn_listener_url(listener.get(), 0), -1);
      const int err = errno;
      aeconn_close(made);
      errno = err;
      return made == nullptr ? -1 : 0;
    });
  }
}

TEST_CASE("C: nobody who is asked, no end", "[conformance][c][signals]") {
  if (testing::simulated()) return;
  FOR_EVERY_C_TRANSPORT(transport) {
    Pair pair(transport);
    const Signals signals(false);
    errno = 0;
    REQUIRE(aeconn_wait(pair.client.get(), AECONN_READABLE, kSecond / 50) == -1);
    REQUIRE(errno == ETIMEDOUT);
  }
}
