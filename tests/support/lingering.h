// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// A descriptor whose last close() waits for a minute, and a client that notices if a loop does.

#include <netinet/in.h>
#include <pthread.h>
#include <sys/socket.h>

#include <array>
#include <atomic>
#include <chrono>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "conn/tcp/passed_descriptors.h"
#include "conn/tcp/socket.h"
#include "tests/support/catch.h"
#include "tests/support/pass_descriptors.h"
#include "tests/support/raw_socket.h"
#include "tests/support/testing.h"

namespace testing {

/// Waits until the other thread has closed all descriptors of peers.
inline bool is_closed_aside() {
  const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  while (conn::tcp::closing_aside() != 0) {
    if (std::chrono::steady_clock::now() > limit) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return true;
}

/// A socket of TCP with unsent bytes and SO_LINGER. None of an earlier test is being closed, so
/// that descriptors can be counted.
class Lingering {
 public:
  Lingering() : listening_(RawSocket::listening(1)) {
    REQUIRE(is_closed_aside());
    const int small = 4096;  // so that bytes stay unsent for good
    setsockopt(listening_.fd(), SOL_SOCKET, SO_RCVBUF, &small, sizeof small);
    own_ = RawSocket::connect(listening_.endpoint());
    far_ = listening_.accept();
    const std::string bytes(1 << 20, 'x');
    while (own_.send_what_fits(bytes) != 0) {
    }
    const linger waits{1, 60};
    REQUIRE(setsockopt(own_.fd(), SOL_SOCKET, SO_LINGER, &waits, sizeof waits) == 0);
  }
  int fd() const noexcept { return own_.fd(); }
  /// Passes it to a peer, which then has the last reference.
  void give(int socket, const std::string& bytes, int flags = 0) {
    REQUIRE(pass(socket, bytes, {own_.fd()}, flags) == 0);
    own_.close();
  }
  /// Passes it among the unread messages of a socket that is passed itself.
  void give_nested(int socket, const std::string& bytes) {
    std::array<int, 2> fds{};
    REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds.data()) == 0);
    const RawSocket near(fds[0]), far(fds[1]);
    give(far.fd(), "x");
    REQUIRE(pass(socket, bytes, {near.fd()}) == 0);
  }
  /// Ends the wait of a close().
  void free() noexcept { far_.reset(); }

 private:
  RawSocket listening_, own_, far_;
};

/// Lets peers pass descriptors as before Linux 6.16.
struct AsOlderKernel {
  explicit AsOlderKernel(bool older = true) { conn::tcp::use_kernel_refusal(!older); }
  ~AsOlderKernel() { conn::tcp::use_kernel_refusal(true); }
  AsOlderKernel(const AsOlderKernel&) = delete;
  AsOlderKernel& operator=(const AsOlderKernel&) = delete;
};

#ifdef __GLIBC__
/// While it exists this process can start no thread: none has room for its stack.
class NoThreads {
 public:
  NoThreads() {
    pthread_attr_t huge;
    REQUIRE(pthread_getattr_default_np(&before_) == 0);
    REQUIRE(pthread_attr_init(&huge) == 0);
    REQUIRE(pthread_attr_setstacksize(&huge, std::size_t{1} << 50) == 0);
    REQUIRE(pthread_setattr_default_np(&huge) == 0);
    pthread_attr_destroy(&huge);
  }
  ~NoThreads() {
    pthread_setattr_default_np(&before_);
    pthread_attr_destroy(&before_);
  }
  NoThreads(const NoThreads&) = delete;
  NoThreads& operator=(const NoThreads&) = delete;

 private:
  pthread_attr_t before_{};
};
#endif

/// A loop under attack: besides what a test does there, a client of tcp in a thread of its own gets
/// answers all the time.
class Attacked {
 public:
  Attacked(Site& site, Lingering& what)
      : loop_(site.loop), what_(what), type_(site.registry.require("tcp")) {
    listener_ = type_.listen(loop_, conn::Endpoint::parse("tcp://127.0.0.1:0"),
                             [this](conn::ConnectionPtr one) {
                               server_ = std::move(one);
                               server_->set_read_handler([](conn::Connection& c) {
                                 char byte;
                                 if (c.read(&byte, 1) == 1) (void)c.write(&byte, 1);
                               });
                             });
    client_ = RawSocket::connect(address_of(*listener_));
    // A third of Lingering's wait: a busy disk alone can hold up a test for some seconds.
    const timeval limit{20, 0};
    setsockopt(client_.fd(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    thread_ = std::thread([this] { ask(); });
    answers();
  }
  ~Attacked() {
    over_ = true;
    shutdown(client_.fd(), SHUT_RDWR);
    thread_.join();
  }
  Attacked(const Attacked&) = delete;
  Attacked& operator=(const Attacked&) = delete;

  /// The loop has always answered, and answers now.
  void answers() {
    const std::size_t before = count_;
    run_until(
        loop_, [&] { return late_ || count_ > before + 1; }, "the other client is answered");
    CHECK_FALSE(late_);
  }

 private:
  void ask() {
    try {
      while (!over_) {
        client_.send("?");
        if (client_.receive(1) != "?") return;
        ++count_;
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      }
    } catch (const std::system_error&) {
      late_ = !over_;
      what_.free();  // so that the test ends
    }
  }
  ae::EventLoop& loop_;
  Lingering& what_;
  conn::ConnectionType& type_;
  conn::ListenerPtr listener_;
  conn::ConnectionPtr server_;
  RawSocket client_;
  std::atomic<std::size_t> count_{0};
  std::atomic<bool> over_{false}, late_{false};
  std::thread thread_;
};

/// Runs the loop until so many descriptors are open: those of a peer are closed elsewhere.
inline bool descriptors_become(ae::EventLoop& loop, std::size_t count) {
  run_until(
      loop, [&] { return count_descriptors() == count; }, "descriptors are closed");
  return true;
}

/// A socket that listens on `path`, and whose owner has asked for the credentials of each sender.
inline int listening_with_credentials(const std::string& path) {
  const int fd = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const int yes = 1;
  conn::SocketAddress at = conn::tcp::unix_address(path);
  REQUIRE(::setsockopt(fd, SOL_SOCKET, SO_PASSCRED, &yes, sizeof yes) == 0);
  REQUIRE(::bind(fd, at.get(), at.size) == 0);
  REQUIRE(::listen(fd, 5) == 0);
  return fd;
}

/// A server of unix or shm, beside others on its loop, and what it has accepted and refused.
struct LocalServer : Site {
  explicit LocalServer(const Transport& over, const std::string& options = "") : Site(over) {
    conn::Endpoint at = fresh();
    at.options = conn::Options::parse(options);
    listener = type.listen(loop, at,
                           [this](conn::ConnectionPtr one) { accepted.push_back(std::move(one)); });
    listener->on_refused([this](const conn::Failure& why) { refused.push_back(why.text); });
    address = address_of(*listener);
  }
  conn::ListenerPtr listener;
  conn::Endpoint address;
  std::vector<conn::ConnectionPtr> accepted;
  std::vector<std::string> refused;
};

}  // namespace testing
