// SPDX-License-Identifier: BSD-3-Clause
// The loop, and connections over a Unix socket. Only instructions in user space are counted, those
// of libev included, not the kernel's: build/bench/loop-bench measures whole events.

#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <functional>
#include <utility>
#include <vector>

#include "ae/epoll_loop.h"
#include "ae/libev_loop.h"
#include "bench/micro/cases.h"
#include "conn/co.h"
#include "conn/tcp/unix_type.h"
#if AECONN_TLS
#include "conn/tls/type.h"
#endif

namespace micro {
namespace {

constexpr ae::Process kPoll = ae::kFullIteration | ae::kDontWait;

std::array<int, 2> socket_pair() {
  std::array<int, 2> ends{};
  require(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends.data()) == 0, "socketpair");
  return ends;
}

struct Files {
  explicit Files(std::size_t ready) {
    for (std::size_t i = 0; i < ready; ++i) {
      pairs.push_back(socket_pair());
      require(::write(pairs.back()[1], "x", 1) == 1, "write");
      loop.add_file_event(pairs.back()[0], ae::kReadable, [this](int, ae::Mask) { ++events; });
    }
  }
  Files(const Files&) = delete;
  Files& operator=(const Files&) = delete;
  ~Files() {
    for (const auto& pair : pairs) {
      loop.remove_file_event(pair[0], ae::kReadable);
      for (const int fd : pair) ::close(fd);
    }
  }
  ae::LibevLoop loop;
  std::vector<std::array<int, 2>> pairs;
  std::uint64_t events = 0;
};

auto iterate(std::size_t ready) {
  return [ready] {
    return [files = std::make_unique<Files>(ready), ready] {
      files->events = 0;
      // One iteration, unless the machine is so slow that the time-out expires first.
      do files->loop.process_events(kPoll);
      while (files->events < ready);
    };
  };
}

/// A source like that of a transport: a file event gives it work, and it sleeps once it is armed.
struct EventSource final : ae::Source {
  bool has_pending() const override { return pending; }
  std::size_t process_pending() override { return std::exchange(pending, false) ? 1 : 0; }
  bool pending = false;
};

/// Iterations of run(), each ended by one file event.
template <class Loop>
struct Running {
  explicit Running(std::size_t of_sources) : ends(socket_pair()), sources(of_sources) {
    require(::write(ends[1], "x", 1) == 1, "write");
    for (EventSource& each : sources) loop.add_source(each);
    loop.add_file_event(ends[0], ae::kReadable, [this](int, ae::Mask) {
      if (!sources.empty()) sources[0].pending = true;
      if (--left == 0) loop.stop();
    });
  }
  Running(const Running&) = delete;
  Running& operator=(const Running&) = delete;
  ~Running() {
    for (EventSource& each : sources) loop.remove_source(each);
    loop.remove_file_event(ends[0], ae::kReadable);
    for (const int fd : ends) ::close(fd);
  }
  void operator()(std::uint64_t iterations) {
    left = iterations;
    loop.run();
  }
  Loop loop;
  std::array<int, 2> ends;
  std::vector<EventSource> sources;
  std::uint64_t left = 0;
};

template <class Loop>
auto runs(std::size_t sources) {
  return [sources]() -> std::function<void(std::uint64_t)> {
    return [running = std::make_shared<Running<Loop>>(sources)](std::uint64_t iterations) {
      (*running)(iterations);
    };
  };
}

/// Implementation of the far end of an Echo.
enum class Far { kHandler, kCoroutine, kCoroutineWithLimits };

/// Two connections; the far one echoes what the near one sends.
struct Echo {
  static constexpr std::size_t kRoom = 4096;

  explicit Echo(std::size_t its_size, Far how = Far::kHandler)
      : size(its_size), message(its_size, 'x'), buffer(kRoom) {
    const auto ends = socket_pair();
    near = type.adopt(loop, ends[0]);
    far = type.adopt(loop, ends[1]);
    if (how == Far::kHandler) {
      far->set_read_handler([this](conn::Connection& connection) {
        const ssize_t n = connection.read(buffer.data(), buffer.size());
        if (n > 0) connection.write(buffer.data(), static_cast<std::size_t>(n));
      });
    } else {
      const auto limit =
          how == Far::kCoroutine ? conn::co::kNoLimit : ae::Duration(std::chrono::hours(1));
      scope.spawn(serve(std::move(far), limit));
    }
    near->set_read_handler([this](conn::Connection& connection) {
      const ssize_t n = connection.read(buffer.data(), buffer.size());
      if (n > 0) received += static_cast<std::size_t>(n);
    });
  }
  static conn::co::Task<> serve(conn::co::Stream peer, ae::Duration limit) {
    std::array<std::byte, kRoom> bytes;
    while (const conn::co::Result got = co_await peer.read(bytes, limit)) {
      if (!co_await peer.write(std::span(bytes).first(got.size), limit)) co_return;
    }
  }
  void operator()() {
    received = 0;
    near->write(message.data(), size);
    while (received < size) loop.process_events(kPoll);
  }
  conn::tcp::UnixType type;
  ae::LibevLoop loop;
  conn::ConnectionPtr near, far;
  std::size_t size, received = 0;
  std::string message;
  std::vector<char> buffer;
  conn::co::Scope scope;
};

#if AECONN_TLS
/// Destroys a loop with `connections` connections of each of two layers; the cost must be linear.
auto end_of_loop(std::size_t connections) {
  return [connections] {
    struct Types {
      conn::tcp::UnixType unix_sockets;
      conn::tls::TlsType tls{unix_sockets};
    };
    return [types = std::make_unique<Types>(), connections] {
      auto loop = std::make_unique<ae::LibevLoop>();
      std::vector<conn::ConnectionPtr> held;
      for (std::size_t i = 0; i < connections; ++i) {
        held.push_back(types->unix_sockets.create(*loop));
        held.push_back(types->tls.create(*loop));
      }
      loop.reset();
      for (const conn::ConnectionPtr& each : held)
        require(each->loop() == nullptr, "a connection outlives its loop");
    };
  };
}
#endif

}  // namespace

void add_loop_cases(Cases& cases) {
  cases.add("loop/iteration without events", iterate(0));
  cases.add("loop/1 ready file", iterate(1));
  cases.add("loop/64 ready files", iterate(64), 100);
  cases.add_runs("run/LibevLoop, a file", runs<ae::LibevLoop>(0));
  cases.add_runs("run/LibevLoop, a file and a source", runs<ae::LibevLoop>(1));
  cases.add_runs("run/LibevLoop, a file and two sources", runs<ae::LibevLoop>(2));
  cases.add_runs("run/EpollLoop, a file", runs<ae::EpollLoop>(0));
  cases.add_runs("run/EpollLoop, a file and a source", runs<ae::EpollLoop>(1));
  cases.add_runs("run/EpollLoop, a file and two sources", runs<ae::EpollLoop>(2));
  cases.add("loop/timer added and removed", [] {
    return [loop = std::make_unique<ae::LibevLoop>()] {
      const auto id = loop->add_time_event(std::chrono::hours(1), [] { return ae::kNoMore; });
      loop->remove_time_event(id);
    };
  });
  cases.add("loop/post and run", [] {
    return [loop = std::make_unique<ae::LibevLoop>()] {
      bool ran = false;
      loop->post([&ran] { ran = true; });
      loop->process_events(kPoll);
      require(ran, "a posted function did not run");
    };
  });
  cases.add("connection/echo of 64 B, both ends",
            [] { return [echo = std::make_unique<Echo>(64)] { (*echo)(); }; });
  cases.add("connection/the same, one a coroutine",
            [] { return [echo = std::make_unique<Echo>(64, Far::kCoroutine)] { (*echo)(); }; });
  cases.add("connection/the same, with time limits", [] {
    return [echo = std::make_unique<Echo>(64, Far::kCoroutineWithLimits)] { (*echo)(); };
  });
#if AECONN_TLS
  cases.add("loop/end with 500 of each of two layers", end_of_loop(500), 10);
  cases.add("loop/end with 4000 of each of two layers", end_of_loop(4000), 3);
#endif
}

}  // namespace micro
