// SPDX-License-Identifier: BSD-3-Clause
// Listening, on sockets that the program hands over and on new ones, while
// memory runs out: the call either succeeds or leaves nothing behind.

#include <fcntl.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <memory>
#include <new>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>

#include "ae/loop_group.h"
#include "c/aeconn.h"
#include "conn/listener_group.h"
#include "conn/tcp/passed_descriptors.h"
#include "conn/tcp/unix_type.h"
#include "conn/transports/transports.h"
#include "tests/simulation/memory.h"
#include "tests/support/catch.h"
#include "tests/support/certificates.h"
#include "tests/support/descriptor_table.h"
#include "tests/support/raw_socket.h"
#include "tests/support/testing.h"

using conn::ConnectionPtr;
using testing::RawSocket;
using namespace simulation;

namespace {

// Its constructor makes the table of its options.
static_assert(
    !std::is_nothrow_default_constructible_v<conn::tcp::UnixType> &&
    !std::is_nothrow_constructible_v<conn::tcp::UnixType, std::string_view,
                                     const conn::ConnectionType*, conn::tcp::UnixType::Refusal>);

enum class On { kOneLoop, kLoopsOfThisThread, kThreads };

/// A listening socket of the program, and what may serve it.
class Bed {
 public:
  Bed(const std::string& scheme, On on, const conn::Options& tls_options = {})
      : is_path_(scheme.ends_with("unix") || scheme.ends_with("shm")),
        on_(on),
        type_(registry_.require(scheme)),
        here_(loop_, 3) {
    if (scheme.starts_with("tls"))
      type_.configure(testing::test_tls_options("localhost").merged_with(tls_options));
    if (on == On::kThreads) {
      threads_.emplace(ae::LoopGroup::Config{
          .loops = 2, .make = [](std::size_t) { return testing::make_loop(); }});
    }
  }

  /// A new socket that listens; its file, if it has one, replaces that of the
  /// last one.
  int open() {
    const int fd = ::socket(is_path_ ? AF_UNIX : AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    REQUIRE(fd >= 0);
    if (is_path_) {
      at_ = conn::Endpoint::parse("unix://" + folder_.path() + "/s");
      ::unlink(at_.path.c_str());
      const conn::SocketAddress address = conn::tcp::unix_address(at_.path);
      REQUIRE(::bind(fd, address.get(), address.size) == 0);
    }
    REQUIRE(::listen(fd, 16) == 0);  // a tcp socket at any port
    if (!is_path_) {
      sockaddr_in address{};
      socklen_t size = sizeof address;
      REQUIRE(::getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size) == 0);
      at_ = conn::Endpoint::parse("tcp://127.0.0.1:" + std::to_string(ntohs(address.sin_port)));
    }
    return fd;
  }
  void adopt(int fd) {
    if (on_ == On::kOneLoop)
      listener_ = type_.adopt_listener(loop_, fd, handler());
    else
      listener_ = conn::adopt_listener(type_, loops(), fd, makes());
  }
  void listen(const std::string& url) {
    if (on_ == On::kOneLoop)
      listener_ = registry_.listen(loop_, url, handler());
    else
      listener_ = conn::listen(registry_, loops(), url, makes());
    at_ = listener_->endpoints().front();
  }
  void end() { listener_.reset(); }

  /// Whether accept handlers exist.
  bool has_handlers() const { return held_.use_count() > 1; }
  /// Lets the loops do what is due.
  void turn() {
    testing::turns(loop_, 3);
    if (threads_) threads_->on_each([](ae::EventLoop&, std::size_t) {});
  }
  const conn::Endpoint& at() const { return at_; }
  const std::string& folder() const { return folder_.path(); }
  bool is_path() const { return is_path_; }

 private:
  ae::Loops& loops() { return threads_ ? static_cast<ae::Loops&>(*threads_) : here_; }
  conn::AcceptHandler handler() {
    return [held = held_](ConnectionPtr) {};
  }
  conn::MakeAcceptHandler makes() {
    return [this](ae::EventLoop&, std::size_t) { return handler(); };
  }

  const bool is_path_;
  const On on_;
  const std::shared_ptr<int> held_ = std::make_shared<int>();
  testing::TempFolder folder_;
  const conn::Registry registry_ = conn::all_transports();
  conn::ConnectionType& type_;
  testing::AnyLoop loop_;
  testing::SharedLoops here_;
  std::optional<ae::LoopGroup> threads_;
  conn::Endpoint at_;
  conn::ListenerPtr listener_;
};

/// Calls `attempt` with each allocation failing in turn, together with `count`
/// - 1 after it, until an attempt has none that fails. `attempt` returns
/// whether it succeeded; `check` gets that.
template <class Attempt, class Check>
void each_allocation(std::uint64_t count, Attempt attempt, Check check) {
  bool failed = true;
  for (std::uint64_t number = 1; failed; ++number) {
    CAPTURE(number);
    REQUIRE(number < 2000);
    fail_allocation(Allocator::kNew, number, count);
    bool done = true;
    try {
      attempt();
    } catch (const std::bad_alloc&) {
      done = false;
    }
    failed = allocation_failed();
    fail_allocation(Allocator::kNew, 0);
    check(done);
  }
}

}  // namespace

TEST_CASE(
    "simulation: a socket stays the caller's if a listener cannot adopt "
    "it for lack of memory",
    "[simulation][memory][group]") {
  const std::string scheme = GENERATE("tcp", "unix", "shm", "tls", "tls+unix", "tls+shm");
  const std::string reload = GENERATE("no", "auto");
  const On on = GENERATE(On::kOneLoop, On::kLoopsOfThisThread, On::kThreads);
  const std::uint64_t count = GENERATE(1u, 4u);
  if (reload == "auto" && !scheme.starts_with("tls")) return;
  CAPTURE(scheme, reload, on, count);
  testing::test_identity();
  Bed bed(scheme, on, {{"reload", reload}});
  bed.adopt(bed.open());  // opens what a loop keeps
  bed.end();
  bed.turn();
  const std::size_t before = testing::count_descriptors();
  int fd = bed.open();
  each_allocation(
      count, [&] { bed.adopt(fd); },
      [&](bool done) {
        if (done) {
          CHECK(::fcntl(fd, F_GETFD) == -1);
          bed.end();
          bed.turn();
          CHECK_FALSE(bed.has_handlers());
          REQUIRE(testing::count_descriptors() == before);
          fd = bed.open();
          return;
        }
        REQUIRE(::fcntl(fd, F_GETFD) != -1);
        CHECK_FALSE(bed.has_handlers());
        CHECK(testing::count_descriptors() == before + 1);
        if (bed.is_path()) CHECK_FALSE(conn::tcp::refuses_descriptors(fd));
        const RawSocket client = RawSocket::connect(bed.at());
        bed.turn();
        const RawSocket server(::accept4(fd, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
        CHECK(server.fd() >= 0);  // no listener has accepted it
      });
  ::close(fd);
}

TEST_CASE(
    "simulation: a Unix socket whose adoption fails lets descriptors "
    "pass as before",
    "[simulation][memory][group]") {
  const std::string scheme = GENERATE("unix", "shm", "tls+unix", "tls+shm");
  const On on = GENERATE(On::kOneLoop, On::kLoopsOfThisThread, On::kThreads);
  const bool refused = GENERATE(false, true);
  CAPTURE(scheme, on, refused);
  testing::test_identity();
  Bed bed(scheme, on);
  int fd = -1;
  RawSocket other;  // another holder of the socket
  bool found = false;
  const auto open = [&] {
    fd = bed.open();
    other = RawSocket(::fcntl(fd, F_DUPFD_CLOEXEC, 0));
    conn::tcp::refuse_descriptors(fd, refused);
    found = conn::tcp::refuses_descriptors(fd);  // false before Linux 6.16
  };
  open();
  int failures = 0;
  each_allocation(
      1, [&] { bed.adopt(fd); },
      [&](bool done) {
        bed.end();
        bed.turn();
        CHECK(conn::tcp::refuses_descriptors(other.fd()) == found);
        if (!done) {
          ++failures;
          ::close(fd);
        }
        open();
      });
  ::close(fd);
  CHECK(failures > 10);
}

TEST_CASE("simulation: nothing listens if a call to listen fails for lack of memory",
          "[simulation][memory][group]") {
  const std::string scheme = GENERATE("tcp", "unix", "tls", "rdma|tcp");
  const On on = GENERATE(On::kOneLoop, On::kLoopsOfThisThread, On::kThreads);
  const std::uint64_t count = GENERATE(1u, 4u);
  CAPTURE(scheme, on, count);
  testing::test_identity();
  Bed bed(scheme, on);
  const std::string url = scheme + (bed.is_path() ? "://" + bed.folder() + "/s" : "://127.0.0.1:0");
  bed.listen(url);
  bed.end();
  bed.turn();
  const std::size_t before = testing::count_descriptors();
  each_allocation(
      count, [&] { bed.listen(url); },
      [&](bool done) {
        if (done) RawSocket::connect(bed.at());
        bed.end();
        if (done) bed.turn();
        CHECK_FALSE(bed.has_handlers());
        REQUIRE(testing::count_descriptors() == before);
      });
}

TEST_CASE(
    "simulation: a socket stays the caller's if aeconn_listen_on() fails for "
    "lack of memory",
    "[simulation][memory][c]") {
  const std::string scheme = GENERATE("tcp", "unix", "shm");
  const std::uint64_t count = GENERATE(1u, 4u);
  CAPTURE(scheme, count);
  Bed bed(scheme, On::kOneLoop);
  REQUIRE(aeconn_has_transport("tcp") == 1);  // makes the registry
  aeconn_loop* const loop = aeconn_loop_new();
  REQUIRE(loop != nullptr);
  int fd = bed.open();
  aeconn_listener* listener = nullptr;
  const auto listen = [&] {
    const auto accepted = [](void*, aeconn_conn* conn) { aeconn_close(conn); };
    listener = aeconn_listen_on(loop, scheme.c_str(), fd, nullptr, accepted, nullptr);
    if (listener == nullptr) throw std::bad_alloc();
  };
  each_allocation(count, listen, [&](bool done) {
    REQUIRE((::fcntl(fd, F_GETFD) == -1) == done);
    if (!done) return;
    CHECK(aeconn_listener_url(listener, 0) != nullptr);
    CHECK(aeconn_listener_url(listener, 1) == nullptr);
    aeconn_listener_free(listener);
    fd = bed.open();
  });
  ::close(fd);
  aeconn_loop_free(loop);
}
